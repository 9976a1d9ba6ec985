"""Fits the elementwise constants: run with `--data DIR`, it writes them with residuals."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from models.checks import FloatArray, IntArray
from models.fidelity.elementwise import ElementwiseRows, elementwise_rows, predicted_time_s
from models.fidelity.fitting import (
    Parameter,
    Sample,
    fit_constants,
    left_out_ranges,
    write_constants,
    write_left_out,
)

FITTED_OPERATORS = {"norm": 0.6, "layer_norm": 0.4, "rope": 0.5, "activation": 0.55, "residual": 0.05, "embedding": 1.4}
"""Operators of the vidur rows with the cycles per element from which their fit starts."""

CYCLES = "cycles per element and core at 128 lanes"


def _operator(name: str, cycles: float) -> tuple[Parameter, ...]:
    return (
        Parameter(f"{name}_cycles_per_element", cycles, 0.001, 5, CYCLES, "issue and arithmetic"),
        Parameter(f"{name}_cycles_per_row", 100, 1, 5000, "cycles per row and core", "fixed work of one row"),
        Parameter(f"{name}_start_s", 2e-6, 2e-7, 8e-6, "s", "start of the kernel"),
    )


SHARED = (
    Parameter("memory_efficiency_fraction", 0.86, 0.5, 1, "1", "of the bandwidth"),
    Parameter("l2_share_fraction", 0.8, 0.02, 1, "1", "of the shared buffer that keeps operands"),
    Parameter("l2_rate_ratio", 4, 4, 4, "1", "traffic kept on the chip against main memory"),
    Parameter("issue_fraction", 0.7, 0.7, 0.7, "1", "of the cycles at 128 lanes that more lanes do not shorten; chosen "
              "on all devices, since only one has 64 lanes"),
)  # fmt: skip
VIDUR = SHARED + tuple(each for name, cycles in FITTED_OPERATORS.items() for each in _operator(name, cycles))
HOST = (
    Parameter("softmax_cycles_per_element", 0.7, 0.001, 10, CYCLES, "issue and arithmetic"),
    Parameter("softmax_cycles_per_row", 100, 1, 5000, "cycles per row and core", "fixed work of one row"),
    Parameter("llmcompass_softmax_start_s", 2e-5, 1e-6, 1e-4, "s", "host and framework of LLMCompass rows"),
    Parameter("llmcompass_layer_norm_start_s", 3e-5, 1e-6, 1e-4, "s", "host and framework of LLMCompass rows"),
    Parameter("llmcompass_activation_start_s", 3e-5, 1e-6, 1e-4, "s", "host and framework of LLMCompass rows"),
)
UNMEASURED = {"softmax": "norm", "router": "norm", "quantise": "rope", "dequantise": "rope"}
"""Operators whose kernels no row times alone -> the fitted one whose constants they borrow."""

SOURCE = "least squares on measured/vidur_elementwise.csv, models/fidelity/fit_elementwise.py"
HOST_SOURCE = "least squares on measured/llmcompass_elementwise.csv, models/fidelity/fit_elementwise.py"


def fit_all(vidur: ElementwiseRows, host: ElementwiseRows, left_out: str) -> dict[str, float]:
    """All constants, fitted on the rows of every chip but `left_out`: device kernels first, host rows on top."""
    values = fit_constants(VIDUR, _sample(vidur, {}), np.flatnonzero(vidur.chip_id != left_out), rows_per_group=150)
    values |= fit_constants(HOST, _sample(host, values | _borrowed(values)), np.flatnonzero(host.chip_id != left_out))
    return values | _borrowed(values)


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit on all rows and again without each chip, and write the constants of elementwise operators."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the measured tables")
    folder = parser.parse_args(arguments).data
    vidur, host = (elementwise_rows(folder / f"{name}_elementwise.csv") for name in ("vidur", "llmcompass"))
    values = fit_all(vidur, host, "")
    chips = np.unique(np.concatenate([vidur.chip_id, host.chip_id]))
    left_out = {str(chip): fit_all(vidur, host, str(chip)) for chip in chips}
    _write(values, left_out)


def _sample(rows: ElementwiseRows, known: Mapping[str, float]) -> Sample:
    def predictor(index: IntArray) -> Callable[[Mapping[str, float]], FloatArray]:
        taken = rows.take(index)
        return lambda values: predicted_time_s(taken, {**known, **values})

    groups: NDArray[np.str_] = np.char.add(np.char.add(rows.chip_id, " "), rows.operator)
    return Sample(predictor, rows.measured_s, groups)


def _borrowed(values: Mapping[str, float]) -> dict[str, float]:
    parts = ("cycles_per_element", "cycles_per_row", "start_s")
    named = {f"{own}_{part}": values[f"{other}_{part}"] for own, other in UNMEASURED.items() for part in parts}
    fitted = {each.name for each in VIDUR + HOST}
    return {name: value for name, value in named.items() if name not in fitted}


def _write(values: Mapping[str, float], left_out: Mapping[str, Mapping[str, float]]) -> None:
    borrowed = tuple(
        Parameter(
            name, value, value, value, "s" if name.endswith("_s") else "cycles", "borrowed, no row times it alone"
        )
        for name, value in _borrowed(values).items()
    )
    softmax = HOST[:2]
    notes = left_out_ranges(left_out)
    write_constants("elementwise", VIDUR + softmax + borrowed, values, SOURCE, notes)
    write_constants("elementwise_sources", HOST[2:], values, HOST_SOURCE, notes)
    write_left_out("elementwise", VIDUR + HOST, left_out, SOURCE)


if __name__ == "__main__":
    main()
