"""Attention tables: which kernel a row ran, its predicted time, and the reports."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from models.checks import BoolArray, FloatArray
from models.fidelity.attention_throughput import throughput_reports
from models.fidelity.fitting import constants_without, merged_constants
from models.fidelity.grouped import Labels, calibrated_prediction, grouped_reports, left_out_prediction
from models.fidelity.report import GroupReport, TableError, TableReader
from models.fidelity.rows import (
    ELEMENT_BYTES,
    MeasuredRows,
    StringArray,
    chip_id_of_rows,
    designs_of_chips,
    element_bytes,
    rate_ratio,
    read_measured,
    with_known,
    with_known_devices,
)
from models.hardware.design import DesignBatch, peak_flop_per_s, take
from models.operators.attention import (
    attention_bytes,
    attention_decode_time_s,
    attention_flop,
    attention_prefill_time_s,
    mean_keys,
)
from models.operators.calibration import Calibration
from models.operators.smooth import smooth_maximum

FAMILIES = ("attention", "attention_sources")
LARGE_TOKENS = 128
SCALAR_ROWS = 32
"""Query heads per KV head beyond which TensorRT-LLM has no matrix kernel for decode."""

SizeColumn = FloatArray
"""Sizes of shape (n_rows, 1): row i meets design i alone."""


@dataclass(frozen=True)
class AttentionRows:
    """Sizes of measured calls with the design of each, all of shape (n_rows, 1) but for designs and flags."""

    rows: MeasuredRows
    designs: DesignBatch
    chip_id: StringArray
    dtype: StringArray
    decode: BoolArray
    batch: SizeColumn
    tokens: SizeColumn
    past_tokens: SizeColumn
    """Cached before the tokens of a prompt; decode counts its cache in `tokens`."""
    n_heads: SizeColumn
    n_kv_heads: SizeColumn
    head_dim_qk: SizeColumn
    head_dim_v: SizeColumn
    kv_bytes: SizeColumn
    kv_elements: SizeColumn
    trtllm: BoolArray
    sglang: BoolArray
    infersim: BoolArray
    measured_s: FloatArray

    def take(self, index: Any) -> AttentionRows:
        """Return the rows at `index`."""
        parts = {name: getattr(self, name)[index] for name in self.__dataclass_fields__ if name not in _WHOLE}
        return AttentionRows(rows=self.rows.take(index), designs=take(self.designs, index), **parts)


_WHOLE = ("rows", "designs")


def aiconfigurator_rows(path: Path) -> AttentionRows:
    """Read `aic_attention_prefill.csv` or `aic_attention_decode.csv`."""
    required = ("device", "op", "batch", "n_heads", "n_kv_heads", "head_dim", "kv_dtype", "latency_us", "source")
    rows = with_known(with_known_devices(read_measured(path, required)), "kv_dtype", ELEMENT_BYTES)
    tokens = "kv_tokens" if "kv_tokens" in rows.columns else "seq_tokens"
    dim, kv_heads = rows.number("head_dim")[:, None], rows.number("n_kv_heads")[:, None]
    chip_id = chip_id_of_rows(rows)
    return AttentionRows(
        rows=rows,
        designs=designs_of_chips(chip_id),
        chip_id=chip_id,
        dtype=rows.text("kv_dtype"),
        decode=rows.text("op") == "attention_decode",
        batch=rows.number("batch")[:, None],
        tokens=rows.number(tokens)[:, None],
        past_tokens=np.zeros((len(rows), 1)),
        n_heads=rows.number("n_heads")[:, None],
        n_kv_heads=kv_heads,
        head_dim_qk=dim,
        head_dim_v=dim,
        kv_bytes=element_bytes(rows.text("kv_dtype"))[:, None],
        kv_elements=2.0 * kv_heads * dim,
        trtllm=np.char.find(rows.text("source"), "trtllm") >= 0,
        sglang=np.char.find(rows.text("source"), "sglang") >= 0,
        infersim=np.zeros(len(rows), dtype=np.bool_),
        measured_s=rows.number("latency_us") * 1e-6,
    )


def infersim_rows(path: Path) -> AttentionRows:
    """Read `infersim_attention.csv`; `head_cfg` is KV heads and head size, or the two parts of an MLA head."""
    required = ("device", "op", "n_heads", "head_cfg", "kv_dtype", "batch", "seq_or_kv_tokens", "latency_us")
    rows = with_known(with_known_devices(read_measured(path, required)), "kv_dtype", ELEMENT_BYTES)
    first, second = _head_sizes(rows)
    op, heads = rows.text("op"), rows.number("n_heads")
    latent, expanded = op == "mla_decode", op == "mla_prefill"
    qk = np.where(latent | expanded, first + second, second)
    v = np.where(latent | expanded, first, second)
    kv_heads = np.where(latent, 1.0, np.where(expanded, heads, first))
    chip_id = chip_id_of_rows(rows)
    no = np.zeros(len(rows), dtype=np.bool_)
    return AttentionRows(
        rows=rows,
        designs=designs_of_chips(chip_id),
        chip_id=chip_id,
        dtype=rows.text("kv_dtype"),
        decode=np.char.endswith(op, "_decode"),
        batch=rows.number("batch")[:, None],
        tokens=rows.number("seq_or_kv_tokens")[:, None],
        past_tokens=np.zeros((len(rows), 1)),
        n_heads=heads[:, None],
        n_kv_heads=kv_heads[:, None],
        head_dim_qk=qk[:, None],
        head_dim_v=v[:, None],
        kv_bytes=element_bytes(rows.text("kv_dtype"))[:, None],
        kv_elements=np.where(latent, qk, kv_heads * (qk + v))[:, None],
        trtllm=no,
        sglang=no,
        infersim=~no,
        measured_s=rows.number("latency_us") * 1e-6,
    )


def _head_sizes(rows: MeasuredRows) -> tuple[FloatArray, FloatArray]:
    """Both numbers of `head_cfg`, each of shape (n_rows,)."""
    texts = rows.text("head_cfg")
    bad = np.flatnonzero([not re.fullmatch(r"[1-9]\d*-[1-9]\d*", text) for text in texts])
    if bad.size:
        rule = f"head_cfg must be two whole numbers as in 8-128, got '{texts[bad[0]]}'"
        raise TableError(rule, rows.file, int(rows.lines[bad[0]]), "head_cfg")
    first, second = np.char.partition(texts, "-").T[::2].astype(np.float64)
    return first, second


def decode_time_s(rows: AttentionRows, values: Mapping[str, float]) -> FloatArray:
    """Predicted decode time of every row with the constants of the kernel it ran, shape (n_rows,) [s]."""
    predicted = attention_decode_time_s(
        rows.designs, rows.batch, rows.tokens, rows.n_heads, rows.n_kv_heads, rows.head_dim_qk, rows.head_dim_v,
        rows.kv_bytes, rows.kv_elements, constants=decode_kernel_constants(rows, values),
    )  # fmt: skip
    return predicted[:, 0]


def decode_kernel_constants(rows: AttentionRows, values: Mapping[str, float]) -> dict[str, Any]:
    """
    Return the decode constants with those that depend on the software of a row as arrays (n_rows, 1).

    Facts about TensorRT-LLM 1.3: chips with native fp4 and fp8 caches with grouped heads run generated kernels;
    16-bit grouped heads elsewhere an older one; one query head per KV head without fp4, and more than 32,
    run on the vector lanes head by head. SGLang and the InferSim harness have floors of their own.
    """
    group = (rows.n_heads / rows.n_kv_heads)[:, 0]
    fp4 = rows.designs.fp4_rate_ratio > 0
    fp8 = rows.kv_bytes[:, 0] < 2
    scalar = rows.trtllm & ((group > SCALAR_ROWS) | (~fp4 & (group == 1)))
    grouped = rows.trtllm & ~fp4 & ~scalar
    plain = rows.sglang | (rows.trtllm & ~fp4 & ~(fp8 & (group > 1)))
    v = values
    column = _choices(len(group))
    return dict(values) | {
        "decode_rows_per_unit": column(v["decode_rows_per_unit"], (scalar, 1.0)),
        "decode_vector_cycles_per_element": column(0.0, (scalar, v["scalar_cycles_per_element"])),
        "decode_matrix_efficiency_fraction": column(
            v["decode_matrix_efficiency_fraction"],
            (grouped & fp8, v["decode_matrix_efficiency_fraction"] / v["fp8_grouped_matrix_ratio"]),
            (rows.infersim, v["infersim_decode_matrix_efficiency_fraction"]),
            (scalar, 1e9),
        ),
        "decode_stream_cycles_per_byte": column(
            v["decode_stream_cycles_per_byte"], (plain, v["plain_stream_cycles_per_byte"])
        ),
        "decode_combine_cycles": column(v["decode_combine_cycles"], (plain, v["plain_combine_cycles"])),
        "decode_unit_cycles": column(
            v["decode_unit_cycles"],
            (grouped & ~fp8, v["decode_unit_cycles"] * v["plain_grouped_unit_ratio"]),
            (rows.sglang, v["sglang_decode_unit_cycles"]),
        ),
        "decode_row_cycles": column(v["decode_row_cycles"], (rows.sglang | scalar, 1.0)),
        "decode_memory_efficiency_fraction": column(
            v["decode_memory_efficiency_fraction"], (rows.sglang, v["sglang_decode_memory_efficiency_fraction"])
        ),
        "decode_start_cycles": column(
            v["decode_start_cycles"],
            (grouped & fp8, v["decode_start_cycles"] * v["fp8_grouped_start_ratio"]),
            (rows.sglang, v["sglang_decode_start_cycles"]),
            (rows.infersim, v["infersim_start_s"] * rows.designs.clock_hz),
        ),
    }


def prefill_time_s(rows: AttentionRows, values: Mapping[str, float]) -> FloatArray:
    """
    Predicted prefill time of every row, shape (n_rows,) [s].

    TensorRT-LLM rows hold a pass before the kernel that rotates, converts and stores queries, keys and values;
    the model prices that pass as operators of its own.
    """
    column = _choices(len(rows.trtllm))
    c = dict(values) | {
        name: column(values[name], (rows.infersim, values[own]))
        for name, own in (
            ("prefill_start_s", "infersim_start_s"),
            ("prefill_matrix_efficiency_fraction", "infersim_prefill_matrix_efficiency_fraction"),
        )
    }
    fp8 = rows.kv_bytes < 2
    predicted = attention_prefill_time_s(
        rows.designs, rows.batch, rows.tokens, rows.past_tokens, rows.n_heads, rows.n_kv_heads, rows.head_dim_qk,
        rows.head_dim_v,
        rows.kv_bytes, matrix_rate_ratio=rate_ratio(rows.designs, rows.kv_bytes[:, 0])[:, None], constants=c,
    )  # fmt: skip
    heads = rows.n_heads + values["conversion_kv_fraction"] * 2.0 * rows.n_kv_heads
    elements = rows.batch * rows.tokens * heads * rows.head_dim_qk
    core_hz = (rows.designs.n_cores * rows.designs.clock_hz)[:, None]
    conversion_s = smooth_maximum(
        elements * values["conversion_cycles_per_element"] / core_hz,
        elements * values["conversion_bytes_per_element"] / rows.designs.memory_bandwidth_bytes_per_s[:, None],
        2.0,
    ) * np.where(fp8, values["conversion_fp8_ratio"], 1.0)
    return np.asarray((predicted + np.where(rows.trtllm[:, None], conversion_s, 0.0))[:, 0])


def roofline_s(rows: AttentionRows) -> FloatArray:
    """FLOP at peak against compulsory bytes at peak bandwidth, shape (n_rows,) [s]."""
    decode = rows.decode[:, None]
    queries = np.where(decode, 1.0, rows.tokens)
    keys = np.where(decode, rows.tokens, mean_keys(rows.tokens, rows.past_tokens))
    heads = (rows.n_heads, rows.head_dim_qk, rows.head_dim_v)
    flop = attention_flop(rows.batch, queries, keys, *heads)
    moved = attention_bytes(
        rows.batch, queries, rows.tokens + rows.past_tokens, *heads, rows.kv_bytes, rows.kv_elements
    )
    ratio = rate_ratio(rows.designs, rows.kv_bytes[:, 0])[:, None]
    peak = peak_flop_per_s(rows.designs)[:, None] * np.where(decode, 1.0, ratio)
    return np.asarray(np.maximum(flop / peak, moved / rows.designs.memory_bandwidth_bytes_per_s[:, None])[:, 0])


def predicted_time_s(rows: AttentionRows, values: Mapping[str, float]) -> FloatArray:
    """Predicted time of every row, prefill and decode, shape (n_rows,) [s]."""
    predicted = np.empty(len(rows.measured_s))
    for part, model in ((rows.decode, decode_time_s), (~rows.decode, prefill_time_s)):
        if part.any():
            predicted[part] = model(rows.take(part), values)
    return predicted


def time_under_s(rows: AttentionRows, calibration: Calibration) -> FloatArray:
    """Predicted time of every row with the constants of its phase, shape (n_rows,) [s]."""
    predicted = np.empty(len(rows.measured_s))
    for part, model, family in (
        (rows.decode, decode_time_s, "attention_decode"),
        (~rows.decode, prefill_time_s, "attention_prefill"),
    ):
        if part.any():
            predicted[part] = model(rows.take(part), calibration.constants(family))
    return predicted


def compute_bound_s(rows: AttentionRows) -> FloatArray:
    """Arithmetic at the peak of the format, shape (n_rows,) [s]."""
    decode = rows.decode[:, None]
    queries = np.where(decode, 1.0, rows.tokens)
    keys = np.where(decode, rows.tokens, mean_keys(rows.tokens, rows.past_tokens))
    flop = attention_flop(rows.batch, queries, keys, rows.n_heads, rows.head_dim_qk, rows.head_dim_v)
    ratio = rate_ratio(rows.designs, rows.kv_bytes[:, 0])
    return np.asarray(flop[:, 0] / (peak_flop_per_s(rows.designs) * ratio))


def attention_reports(rows: AttentionRows) -> list[GroupReport]:
    """Reports of one table: prefill in `large` (128 tokens and more) and `small`, decode, MLA apart."""
    group = np.where(rows.decode, "decode", np.where(rows.tokens[:, 0] >= LARGE_TOKENS, "large", "small"))
    if rows.infersim.any():
        group = rows.rows.text("op")
    values = merged_constants(FAMILIES)
    predicted = predicted_time_s(rows, values)
    left_out = left_out_prediction(
        predicted, rows.chip_id, lambda chip: constants_without(FAMILIES, chip), lambda v: predicted_time_s(rows, v)
    )
    notes = _source_notes(rows, values)
    labels = Labels(group, rows.chip_id, rows.dtype)
    return grouped_reports(
        rows.rows, labels, rows.measured_s, predicted, roofline_s(rows), left_out,
        notes=notes,
        calibrated=calibrated_prediction(rows.rows.table, rows.chip_id, lambda used: time_under_s(rows, used)),
    )  # fmt: skip


def _source_notes(rows: AttentionRows, values: Mapping[str, float]) -> dict[str, str]:
    """Say what left-out errors become where one source is on one device alone and its own constants are kept."""
    own = rows.sglang & rows.decode
    if not own.any():
        return {}
    part = rows.take(own)
    chip = str(part.chip_id[0])
    physical = constants_without(FAMILIES, chip) or values
    kept = {**physical, **{name: values[name] for name in values if name.startswith("sglang_")}}
    error = np.abs(decode_time_s(part, kept) / part.measured_s - 1.0).mean()
    return {
        "decode": f"SGLang rows exist on {chip} alone; without them its floor and its share of the bandwidth are "
        f"unknown: left-out error {error:.3f} with these three constants kept"
    }


def _choices(n_rows: int) -> Any:
    def column(default: float, *cases: tuple[BoolArray, float | FloatArray]) -> FloatArray:
        chosen = np.full(n_rows, default, dtype=np.float64)
        for where, value in cases:
            chosen[where] = np.broadcast_to(value, chosen.shape)[where]
        return chosen[:, None]

    return column


TABLES: dict[str, TableReader] = {
    "aic_attention_prefill*.csv": lambda path: attention_reports(aiconfigurator_rows(path)),
    "aic_attention_decode*.csv": lambda path: attention_reports(aiconfigurator_rows(path)),
    "infersim_attention*.csv": lambda path: attention_reports(infersim_rows(path)),
    "attention_throughput*.csv": throughput_reports,
}
