"""Best published attention rates: what the model reaches at its best over a grid of shapes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from models.checks import BoolArray, FloatArray
from models.fidelity.fitting import constants_without, merged_constants
from models.fidelity.grouped import Labels, grouped_reports, left_out_prediction, with_skipped
from models.fidelity.report import GroupReport
from models.fidelity.rows import (
    MeasuredRows,
    chip_id_of_rows,
    designs_of_chips,
    rate_ratio,
    read_measured,
    with_known_devices,
)
from models.hardware.design import DesignBatch, peak_flop_per_s
from models.operators.attention import (
    attention_bytes,
    attention_decode_time_s,
    attention_flop,
    attention_prefill_time_s,
)

COLUMNS = ("device", "dtype", "phase", "tflops", "memory_gb_per_s", "metric_definition")
FAMILIES = ("attention", "attention_sources")
SEQUENCE_TOKENS = np.array([4096.0, 8448.0, 16384.0, 65536.0])
SKIPPED = {
    "sparse": "sparse attention is not modelled",
    "backward": "the backward pass is priced as GEMMs of training, not as this kernel",
    "ablation": "the same shape with a part of the kernel switched off",
}


def throughput_reports(path: Path) -> list[GroupReport]:
    """Reports of `attention_throughput.csv`: forward passes in FLOP/s, MLA decode in FLOP/s and in bytes/s."""
    rows = with_known_devices(read_measured(path, COLUMNS))
    reason = np.array([_skip(rows, index) for index in range(len(rows))])
    kept = rows.take(reason == "")
    chip_id = chip_id_of_rows(kept)
    designs = designs_of_chips(chip_id)
    memory = kept.text("memory_gb_per_s") != ""
    measured = np.where(memory, _rate(kept, "memory_gb_per_s", memory) * 1e9, _rate(kept, "tflops", ~memory) * 1e12)
    decode = np.char.find(kept.text("phase"), "decode") >= 0
    fp8 = np.char.startswith(kept.text("dtype"), "FP8")
    ratio = rate_ratio(designs, np.where(fp8, 1.0, 2.0))

    def predict(values: Mapping[str, float]) -> FloatArray:
        prefill = _prefill_flop_per_s(designs, ratio, values)
        flop, moved = _latent_decode_rates(designs, values)
        return np.asarray(np.where(decode, np.where(memory, moved, flop), prefill))

    values = merged_constants(FAMILIES)
    predicted = predict(values)
    left_out = left_out_prediction(predicted, chip_id, lambda chip: constants_without(FAMILIES, chip), predict)
    roofline = np.where(memory, designs.memory_bandwidth_bytes_per_s, peak_flop_per_s(designs, ratio))
    group = np.where(decode, np.where(memory, "latent_decode_bytes", "latent_decode_flop"), "forward")
    labels = Labels(group, chip_id, kept.text("dtype"))
    reports = grouped_reports(kept, labels, measured, predicted, roofline, left_out, quantity="throughput")
    skipped = [{"reason": SKIPPED[name], "rows": int((reason == name).sum())} for name in np.unique(reason) if name]
    return with_skipped(reports, rows.table, skipped, "throughput")


def _skip(rows: MeasuredRows, index: int) -> str:
    phase = str(rows.text("phase")[index])
    definition = str(rows.text("metric_definition")[index])
    for word in ("sparse", "backward"):
        if word in phase:
            return word
    return "ablation" if definition.startswith("same shape without") else ""


def _rate(rows: MeasuredRows, column: str, needed: BoolArray) -> FloatArray:
    rate = np.ones(len(rows))
    rate[needed] = rows.take(needed).number(column)
    return rate


def _prefill_flop_per_s(designs: DesignBatch, ratio: FloatArray, values: Mapping[str, float]) -> FloatArray:
    """Best rate of a forward pass with 16 heads of 128 and batch 4, shape (n_designs,) [FLOP/s]."""
    flop = attention_flop(4.0, SEQUENCE_TOKENS, SEQUENCE_TOKENS, 16.0, 128.0, 128.0)
    time_s = attention_prefill_time_s(
        designs, 4.0, SEQUENCE_TOKENS, 0.0, 16.0, 16.0, 128.0, 128.0, 2.0, matrix_rate_ratio=ratio, causal=False,
        constants=values,
    )  # fmt: skip
    return np.asarray((flop / time_s).max(axis=1))


def _latent_decode_rates(designs: DesignBatch, values: Mapping[str, float]) -> tuple[FloatArray, FloatArray]:
    """Best FLOP/s of MLA decode with 128 heads, and best bytes/s with 16, each of shape (n_designs,)."""
    flop = attention_flop(128.0, 1.0, SEQUENCE_TOKENS, 128.0, 576.0, 512.0)
    moved = attention_bytes(128.0, 1.0, SEQUENCE_TOKENS, 16.0, 576.0, 512.0, 2.0, 576.0)
    many_s, few_s = (
        attention_decode_time_s(designs, 128.0, SEQUENCE_TOKENS, heads, 1.0, 576.0, 512.0, 2.0, 576.0, constants=values)
        for heads in (128.0, 16.0)
    )
    return np.asarray((flop / many_s).max(axis=1)), np.asarray((moved / few_s).max(axis=1))
