"""Fits the attention constants: `python -m models.fidelity.fit_attention --data DIR`; writes them with residuals."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from models.checks import BoolArray, FloatArray, IntArray
from models.fidelity.attention import (
    LARGE_TOKENS,
    AttentionRows,
    aiconfigurator_rows,
    decode_time_s,
    infersim_rows,
    prefill_time_s,
)
from models.fidelity.fitting import (
    Parameter,
    Sample,
    fit_constants,
    left_out_ranges,
    write_constants,
    write_left_out,
)

PREFILL = (
    Parameter("prefill_tile_rows", 128, 128, 128, "rows", "query rows of one tile"),
    Parameter("prefill_matrix_efficiency_fraction", 0.7, 0.3, 1, "1", "of the peak inside a tile"),
    Parameter(
        "prefill_softmax_cycles_per_score", 0.07, 0.001, 1, "cycles per score and core at 128 lanes", "exponential"
    ),
    Parameter("prefill_narrow_format_exponent", 0.55, 0.1, 1, "1", "rate ratio of a narrow format to this power"),
    Parameter("prefill_tile_cycles", 6400, 1, 40000, "cycles", "fixed work of one tile"),
    Parameter("prefill_tail_fraction", 0.64, 0.01, 2, "1", "share of the longest tile that no other hides"),
    Parameter("prefill_memory_efficiency_fraction", 0.85, 0.85, 0.85, "1", "not identified by the rows: decode's"),
    Parameter("prefill_start_s", 11e-6, 1e-6, 3e-5, "s", "start of the kernel"),
)
CONVERSION = (
    Parameter("conversion_cycles_per_element", 0.43, 0.01, 5, "cycles per element and core", "pass before prefill"),
    Parameter("conversion_bytes_per_element", 6.6, 0.1, 30, "B", "traffic of that pass"),
    Parameter("conversion_kv_fraction", 0.2, 0.01, 2, "1", "weight of keys and values in that pass"),
    Parameter("conversion_fp8_ratio", 0.87, 0.2, 2, "1", "that pass with an fp8 cache"),
    Parameter("infersim_prefill_matrix_efficiency_fraction", 0.9, 0.3, 1, "1", "FlashAttention-3 of that harness"),
)
DECODE = (
    Parameter("decode_rows_per_unit", 128, 128, 128, "rows", "query heads that one unit takes"),
    Parameter("decode_matrix_efficiency_fraction", 0.34, 0.02, 1, "1", "of the peak, query heads as rows"),
    Parameter("decode_latent_efficiency_fraction", 0.65, 0.1, 1, "1", "of the peak where one latent serves twice"),
    Parameter("decode_vector_cycles_per_element", 0, 0, 0, "cycles per element and core", "no vector path"),
    Parameter("decode_stream_cycles_per_byte", 0.01, 0.0005, 1, "cycles per byte and core", "one unit alone"),
    Parameter("decode_split_tokens", 128, 128, 128, "tokens", "shortest piece of a split cache"),
    Parameter("decode_combine_cycles", 7300, 10, 60000, "cycles", "combining the pieces"),
    Parameter("decode_memory_efficiency_fraction", 0.88, 0.5, 1, "1", "of the bandwidth"),
    Parameter("decode_unit_cycles", 2400, 10, 30000, "cycles", "fixed work of one sequence and KV head"),
    Parameter("decode_row_cycles", 280, 1, 3000, "cycles", "fixed work of one query head"),
    Parameter("decode_unit_dim_fraction", 0.27, 0.0001, 0.999, "1", "share of it that grows with the head size"),
    Parameter("decode_start_per_further_die_fraction", 1e-3, 1e-4, 1, "1", "start that each further die adds"),
    Parameter("decode_start_cycles", 17000, 2000, 60000, "cycles", "start of the kernel"),
)
DECODE_SOURCES = (
    Parameter("plain_stream_cycles_per_byte", 0.03, 0.0005, 1, "cycles per byte and core", "kernels not generated"),
    Parameter("plain_combine_cycles", 10000, 10, 60000, "cycles", "kernels not generated"),
    Parameter("plain_grouped_unit_ratio", 3.5, 1, 6, "1", "TensorRT-LLM, 16-bit grouped heads without fp4"),
    Parameter("fp8_grouped_start_ratio", 0.67, 0.3, 1, "1", "TensorRT-LLM, fp8 grouped heads without fp4"),
    Parameter("fp8_grouped_matrix_ratio", 3, 0.2, 20, "1", "TensorRT-LLM, fp8 grouped heads without fp4"),
    Parameter("scalar_cycles_per_element", 0.064, 0.001, 1, "cycles per element and core", "no matrix kernel"),
    Parameter("sglang_decode_unit_cycles", 5600, 10, 30000, "cycles", "SGLang 0.5"),
    Parameter("sglang_decode_memory_efficiency_fraction", 0.5, 0.3, 1, "1", "SGLang 0.5"),
    Parameter("sglang_decode_start_cycles", 19500, 2000, 60000, "cycles", "SGLang 0.5"),
    Parameter("infersim_start_s", 2.2e-5, 1e-6, 6e-5, "s", "floor of the InferSim harness"),
    Parameter("infersim_decode_matrix_efficiency_fraction", 0.5, 0.02, 1, "1", "FlashInfer and FlashAttention-3"),
)
WITHOUT_SGLANG = {
    "sglang_decode_unit_cycles": "decode_unit_cycles",
    "sglang_decode_memory_efficiency_fraction": "decode_memory_efficiency_fraction",
    "sglang_decode_start_cycles": "decode_start_cycles",
}
"""What stands in for a constant of SGLang when no row of it is left."""

WITHOUT_INFERSIM = {"infersim_prefill_matrix_efficiency_fraction": "prefill_matrix_efficiency_fraction"}

ROWS_PER_GROUP = 300
SOURCE = "least squares on measured/aic_attention_*.csv and infersim_attention.csv, models/fidelity/fit_attention.py"


def fit_prefill(parts: Sequence[AttentionRows], keep: BoolArray, infersim_start_s: float) -> dict[str, float]:
    """Constants of prefill fitted on the rows of `keep`, every device and cache format weighted alike."""
    sample = _sample(parts, prefill_time_s, {"infersim_start_s": infersim_start_s})
    values = fit_constants(PREFILL + CONVERSION, sample, np.flatnonzero(keep), rows_per_group=ROWS_PER_GROUP)
    infersim = np.concatenate([part.infersim for part in parts])
    return (
        values
        if (infersim & keep).any()
        else values | {own: values[general] for own, general in WITHOUT_INFERSIM.items()}
    )


def fit_decode(parts: Sequence[AttentionRows], keep: BoolArray) -> dict[str, float]:
    """Constants of decode and of the kernels behind it, fitted on the rows of `keep` of all `parts` in order."""
    sample = _sample(parts, decode_time_s, {})
    values = fit_constants(DECODE + DECODE_SOURCES, sample, np.flatnonzero(keep), rows_per_group=ROWS_PER_GROUP)
    sglang = np.concatenate([part.sglang for part in parts])
    return (
        values if (sglang & keep).any() else values | {own: values[general] for own, general in WITHOUT_SGLANG.items()}
    )


def fit_all(prefills: Sequence[AttentionRows], decodes: Sequence[AttentionRows], left_out: str) -> dict[str, float]:
    """All constants of attention, fitted on the rows of every chip but `left_out`."""
    prefill_chips, decode_chips = (np.concatenate([part.chip_id for part in parts]) for parts in (prefills, decodes))
    values = fit_decode(decodes, decode_chips != left_out)
    return values | fit_prefill(prefills, prefill_chips != left_out, values["infersim_start_s"])


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit on all rows and again without each chip, and write the constants of attention."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the measured tables")
    folder = parser.parse_args(arguments).data
    infersim = infersim_rows(folder / "infersim_attention.csv")
    aic = [aiconfigurator_rows(folder / f"aic_attention_{kind}.csv") for kind in ("prefill", "decode")]
    prefills = [
        aic[0].take(aic[0].tokens[:, 0] >= LARGE_TOKENS),
        infersim.take(infersim.rows.text("op") == "mha_prefill"),
    ]
    decodes = [aic[1], infersim.take(infersim.decode)]
    values = fit_all(prefills, decodes, "")
    chips = np.unique(np.concatenate([part.chip_id for part in decodes]))
    _write(values, {str(chip): fit_all(prefills, decodes, str(chip)) for chip in chips})


def _sample(
    parts: Sequence[AttentionRows],
    model: Callable[[AttentionRows, Mapping[str, float]], FloatArray],
    fixed: Mapping[str, float],
) -> Sample:
    starts = np.cumsum([0] + [len(part.measured_s) for part in parts])

    def predictor(index: IntArray) -> Callable[[Mapping[str, float]], FloatArray]:
        taken = [
            part.take(index[(index >= low) & (index < high)] - low)
            for part, low, high in zip(parts, starts[:-1], starts[1:], strict=True)
        ]
        return lambda values: np.concatenate([model(part, {**fixed, **values}) for part in taken])

    groups = np.concatenate([_group(part) for part in parts])
    return Sample(predictor, np.concatenate([part.measured_s for part in parts]), groups)


def _group(rows: AttentionRows) -> NDArray[np.str_]:
    op = np.char.add(np.char.add(rows.chip_id, " "), rows.rows.text("op"))
    return np.asarray(np.char.add(np.char.add(op, " "), rows.dtype))


def _write(values: Mapping[str, float], left_out: Mapping[str, Mapping[str, float]]) -> None:
    ranges = left_out_ranges(left_out)
    write_constants("attention", PREFILL + DECODE, values, SOURCE, ranges)
    write_constants("attention_sources", CONVERSION + DECODE_SOURCES, values, SOURCE, ranges)
    write_left_out("attention", PREFILL + CONVERSION + DECODE + DECODE_SOURCES, left_out, SOURCE)


if __name__ == "__main__":
    main()
