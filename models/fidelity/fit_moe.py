"""Fits the constants of expert MLPs: run with `--data DIR`, it writes them with residuals."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from models.checks import BoolArray, FloatArray, IntArray
from models.fidelity.fitting import (
    Parameter,
    Sample,
    fit_constants,
    left_out_ranges,
    write_constants,
    write_left_out,
)
from models.fidelity.moe import (
    ExpertRows,
    aiconfigurator_rows,
    grouped_gemm_rows_time_s,
    infersim_rows,
    is_fallback,
    layer_time_s,
)

LAYER = (
    Parameter("padding_rows_per_expert", 10, 0.1, 300, "rows", "rows computed in vain for each expert"),
    Parameter("matrix_efficiency_fraction", 0.9, 0.3, 1, "1", "of the peak"),
    Parameter("older_matrix_efficiency_fraction", 0.52, 0.2, 1, "1", "of the peak without bulk asynchronous copies"),
    Parameter("memory_efficiency_fraction", 0.93, 0.4, 1, "1", "of the bandwidth"),
    Parameter("chain_cycles_per_depth", 6, 0.001, 20, "cycles", "one tile's loop along k, per element of k"),
    Parameter("moving_bytes_per_element", 12, 0.01, 40, "B", "permutation, quantisation and sum of routed rows"),
    Parameter("start_s", 1.5e-5, 5e-6, 6e-5, "s", "start of all kernels of the layer"),
    Parameter("cycles_per_local_expert", 250, 1, 3000, "cycles", "pointers and offsets of each stored expert"),
    Parameter("cycles_per_choice", 200, 0.1, 3000, "cycles and core", "sorting of each token's choice"),
)  # fmt: skip
GROUPED = (
    Parameter("infersim_start_s", 1e-5, 1e-7, 6e-5, "s", "floor of the InferSim harness"),
    Parameter("infersim_matrix_efficiency_fraction", 0.7, 0.2, 1, "1", "DeepGEMM"),
    Parameter("infersim_padding_rows_per_expert", 20, 0.1, 300, "rows", "DeepGEMM"),
)
SOURCE = "least squares on measured/aic_moe.csv, tuned series, models/fidelity/fit_moe.py"
GROUPED_SOURCE = "least squares on measured/infersim_grouped_gemm.csv, models/fidelity/fit_moe.py"

Model = Callable[[ExpertRows, Mapping[str, float]], FloatArray]


def fit_all(layers: ExpertRows, grouped: ExpertRows, fallback: BoolArray, left_out: str) -> dict[str, float]:
    """All constants without one chip: routed layers, then the harness of single grouped GEMMs on top."""
    kept = np.flatnonzero((layers.chip_id != left_out) & ~fallback)
    values = fit_constants(LAYER, _sample(layers, layer_time_s, {}), kept, rows_per_group=400)
    rows = np.flatnonzero(grouped.chip_id != left_out)
    values |= fit_constants(GROUPED, _sample(grouped, grouped_gemm_rows_time_s, values), rows)
    if (layers.designs.bulk_async_copy[kept] == 0).all():  # no newer kernel is left: single GEMMs of other chips are
        values["matrix_efficiency_fraction"] = values["infersim_matrix_efficiency_fraction"]
    if (layers.designs.bulk_async_copy[kept] > 0).all():
        values["older_matrix_efficiency_fraction"] = values["matrix_efficiency_fraction"]
    return values


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit on all rows and again without each chip, and write the constants of expert MLPs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the measured tables")
    folder = parser.parse_args(arguments).data
    layers = aiconfigurator_rows(folder / "aic_moe.csv")
    grouped = infersim_rows(folder / "infersim_grouped_gemm.csv")
    fallback = is_fallback(layers)
    values = fit_all(layers, grouped, fallback, "")
    chips = np.unique(np.concatenate([layers.chip_id, grouped.chip_id]))
    left_out = {str(chip): fit_all(layers, grouped, fallback, str(chip)) for chip in chips}
    notes = left_out_ranges(left_out)
    write_constants("moe", LAYER, values, SOURCE, notes)
    write_constants("moe_sources", GROUPED, values, GROUPED_SOURCE, notes)
    write_left_out("moe", LAYER + GROUPED, left_out, SOURCE)


def _sample(rows: ExpertRows, model: Model, known: Mapping[str, float]) -> Sample:
    def predictor(index: IntArray) -> Callable[[Mapping[str, float]], FloatArray]:
        taken = rows.take(index)
        return lambda values: model(taken, {**known, **values})

    kind = "routing" if "routing" in rows.rows.columns else "op"
    groups: NDArray[np.str_] = np.char.add(
        np.char.add(np.char.add(rows.chip_id, " "), rows.dtype), np.char.add(" ", rows.rows.text(kind))
    )
    return Sample(predictor, rows.measured_s, groups)


if __name__ == "__main__":
    main()
