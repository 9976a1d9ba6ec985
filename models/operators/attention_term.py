"""Attention operators of a step: time, work by number format, and the conversions of queries, scores and cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from models.checks import FloatArray, IntArray
from models.hardware.design import DesignBatch, peak_flop_per_s
from models.hardware.rates import NativeClasses, class_code, rate_ratios
from models.operators.activity import (
    Columns,
    TermActivity,
    beside_conversions,
    class_rates,
    codes,
    macs_by_class,
    widened,
)
from models.operators.attention import (
    attention_bytes,
    attention_decode_time_s,
    attention_flop,
    attention_prefill_time_s,
    mean_keys,
)
from models.operators.calibration import Calibration

SOFTMAX_OPS_PER_SCORE = 4
"""Subtract, exponential, sum and rescale of one score: the definition of online softmax."""

BF16_CODE = class_code("bf16")


def decode_activity(
    op: str, c: Columns, designs: DesignBatch, classes: NativeClasses, calibration: Calibration
) -> TermActivity:
    """One attention operator with one query per sequence over its cache."""
    time_s = attention_decode_time_s(
        designs, c["batch"], c["tokens"], c["n_heads"], c["n_kv_heads"], c["head_dim_qk"], c["head_dim_v"],
        c["kv_bytes_per_element"], c["kv_elements_per_token"], matrix_rate_ratio=_rate(c, designs, classes),
        constants=_decode_constants(c, calibration.constants("attention_decode")),
    )  # fmt: skip
    return _activity(c, designs, classes, time_s, np.ones_like(c["tokens"]), c["tokens"])


def _decode_constants(c: Columns, matrix: Mapping[str, float]) -> Mapping[str, Any]:
    """Constants of each column's kernel: one without the matrix arrays treats query heads one by one on the lanes."""
    if "on_lanes" not in c or not c["on_lanes"].any():
        return matrix
    lanes = matrix["scalar_cycles_per_element"]
    of_lanes = {
        "decode_rows_per_unit": 1.0, "decode_vector_cycles_per_element": lanes, "decode_row_cycles": 1.0,
        "decode_matrix_efficiency_fraction": np.inf,
    }  # fmt: skip
    return dict(matrix) | {name: np.where(c["on_lanes"], value, matrix[name]) for name, value in of_lanes.items()}


def prefill_activity(
    op: str, c: Columns, designs: DesignBatch, classes: NativeClasses, calibration: Calibration
) -> TermActivity:
    """One attention operator over causal prompts."""
    window = float(c["window_tokens"].max())
    time_s = attention_prefill_time_s(
        designs, c["batch"], c["tokens"], 0.0, c["n_heads"], c["n_kv_heads"], c["head_dim_qk"], c["head_dim_v"],
        c["kv_bytes_per_element"], window_tokens=window, matrix_rate_ratio=_rate(c, designs, classes),
        constants=calibration.constants("attention_prefill"),
    )  # fmt: skip
    return _activity(c, designs, classes, time_s, c["tokens"], mean_keys(c["tokens"], 0.0, True, window))


def _classes(c: Columns, classes: NativeClasses) -> tuple[IntArray, IntArray]:
    """Codes of the classes that run scores and context; bf16 where a term states none."""
    asked = (c.get(name, np.full_like(c["tokens"], BF16_CODE)) for name in ("scores_class", "context_class"))
    scores, context = (classes.promoted[codes(each)] for each in asked)
    return scores, context


def _rate(c: Columns, designs: DesignBatch, classes: NativeClasses) -> FloatArray:
    """Rate of both products together over bf16, (n_designs,) where all run alike, else (n_designs, n_columns)."""
    scores, context = _classes(c, classes)
    first = scores.flat[0]
    if (scores == first).all() and (context == first).all():
        return np.asarray(rate_ratios(designs)[:, first])
    share = c["head_dim_qk"] / (c["head_dim_qk"] + c["head_dim_v"])
    return np.asarray(1.0 / (share / class_rates(designs, scores) + (1.0 - share) / class_rates(designs, context)))


def _activity(
    c: Columns,
    designs: DesignBatch,
    classes: NativeClasses,
    time_s: FloatArray,
    queries: FloatArray,
    keys: FloatArray,
) -> TermActivity:
    """Work and traffic of an attention operator whose time is known but for conversions, which overlap with it."""
    scores, context = _classes(c, classes)
    n_scores = c["batch"] * queries * keys * c["n_heads"]
    flop = np.atleast_2d(attention_flop(c["batch"], queries, keys, c["n_heads"], c["head_dim_qk"], c["head_dim_v"]))
    traffic = np.atleast_2d(
        attention_bytes(
            c["batch"], queries, c["tokens"], c["n_heads"], c["head_dim_qk"], c["head_dim_v"],
            c["kv_bytes_per_element"], c["kv_elements_per_token"],
        )
    )  # fmt: skip
    conversions = _conversions(c, classes, scores, context)
    rate = _rate(c, designs, classes).reshape(designs.n_designs, -1)
    score_macs = np.atleast_2d(n_scores * c["head_dim_qk"])
    return TermActivity(
        beside_conversions(designs, time_s, conversions),
        flop / (peak_flop_per_s(designs)[:, None] * rate),
        traffic / designs.memory_bandwidth_bytes_per_s[:, None],
        macs_by_class((score_macs, scores), (flop / 2.0 - score_macs, context)),
        traffic,
        np.atleast_2d(SOFTMAX_OPS_PER_SCORE * n_scores + conversions),
        np.zeros_like(traffic),
        conversion_ops=np.atleast_2d(conversions),
    )


def _conversions(c: Columns, classes: NativeClasses, scores: IntArray, context: IntArray) -> FloatArray | float:
    """Vector operations that round queries, scores and new cache entries and widen cached ones."""
    if "rounding_ops" not in c:
        return 0.0
    ops = c["rounding_ops"]
    for operand, computed in (("key", scores), ("value", context)):
        needed = widened(c[f"{operand}_native"], c[f"{operand}_class"], computed, classes)
        ops = ops + c[f"{operand}_widening_ops"] * needed
    return ops
