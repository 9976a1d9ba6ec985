"""Routed expert MLPs of a step: time, work by number format, and the conversions of their weights and inputs."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from models.checks import FloatArray, IntArray
from models.hardware.design import DesignBatch, peak_flop_per_s
from models.hardware.rates import NativeClasses
from models.operators.activity import (
    DEQUANTISED_ROWS,
    Columns,
    TermActivity,
    beside_conversions,
    class_rates,
    codes,
    macs_by_class,
    widened,
)
from models.operators.axes import size_arrays
from models.operators.calibration import Calibration
from models.operators.moe import expected_distinct_experts, expert_mlp_parts_s, load_imbalance_ratio, permuted_bytes


def routing_columns(
    tokens: ArrayLike, n_experts: ArrayLike, top_k: ArrayLike, expert_parallel: ArrayLike, zipf_exponent: ArrayLike
) -> Columns:
    """
    Columns of an experts term that say which experts a step meets, none of which a design changes.

    Parameters
    ----------
    tokens, n_experts, top_k, expert_parallel, zipf_exponent : arrays that broadcast to shape (n_alternatives,)
        As for `expert_mlp_time_s`.
    """
    columns = dict(
        zip(
            ("tokens", "n_experts", "top_k", "expert_parallel", "zipf_exponent"),
            np.broadcast_arrays(*size_arrays(tokens, n_experts, top_k, expert_parallel, zipf_exponent)), strict=True,
        )
    )  # fmt: skip
    skew = columns.pop("zipf_exponent")
    m, experts, k, ranks = columns.values()
    return columns | {
        "touched_experts": expected_distinct_experts(experts, k, m, skew),
        "busiest_load_ratio": load_imbalance_ratio(experts, k, ranks, skew),
    }


def expert_activity(
    op: str, c: Columns, designs: DesignBatch, classes: NativeClasses, calibration: Calibration
) -> TermActivity:
    """All routed expert MLPs of a layer on the busiest chip; the rates are those of each column's classes."""
    up, down = _classes(c, classes)
    share = _up_share(op)
    rate = expert_rate(op, class_rates(designs, up), class_rates(designs, down))
    touched, ranks = c["touched_experts"], c["expert_parallel"]
    time_s = sum(expert_parts_s(op, c, designs, rate, calibration).values(), np.zeros(1))
    expert = c["hidden"] * c["inter"] / (1.0 - share)
    macs = np.atleast_2d(_rows(c) / ranks * expert)
    weights = touched / ranks * expert
    least = np.atleast_2d(weights * c["weight_bytes"])
    traffic = least + permuted_expert_bytes(c, calibration)
    conversions = _conversions(c, classes, (up, down), weights * np.ceil(_rows(c) / touched / DEQUANTISED_ROWS), share)
    zero = np.zeros_like(traffic)
    return TermActivity(
        beside_conversions(designs, time_s, conversions),
        2.0 * macs / (peak_flop_per_s(designs)[:, None] * rate),
        least / designs.memory_bandwidth_bytes_per_s[:, None],
        macs_by_class((macs * share, up), (macs * (1.0 - share), down)),
        traffic,
        zero + conversions,
        zero,
        conversion_ops=np.atleast_2d(conversions),
    )


def expert_parts_s(
    op: str, c: Columns, designs: DesignBatch, rate: FloatArray, calibration: Calibration
) -> dict[str, FloatArray]:
    """Return what follows each other on the busiest chip, conversions aside: start, sorting, up, down, moving [s]."""
    ranks, busiest = c["expert_parallel"], c["busiest_load_ratio"]
    local = c["n_experts"] / ranks
    return expert_mlp_parts_s(
        designs, np.minimum(c["touched_experts"] / ranks * busiest, local), _rows(c) / ranks * busiest, c["hidden"],
        c["inter"], local, _rows(c), weight_bytes_per_element=c["weight_bytes"],
        matrix_rate_ratio=rate, gated=op == "gated",
        constants=calibration.constants("experts"),
    )  # fmt: skip


def permuted_expert_bytes(c: Columns, calibration: Calibration) -> FloatArray:
    """Return what the rows of the mean chip move beside weights, into the order of the experts and back [B]."""
    used = calibration.constants("experts")
    return np.atleast_2d(permuted_bytes(_rows(c) / c["expert_parallel"], c["hidden"], c["inter"], used))


def _up_share(op: str) -> float:
    """Share of the work of an expert that is in the matrices before its activation [1]."""
    return 2.0 / 3.0 if op == "gated" else 0.5


def _classes(c: Columns, classes: NativeClasses) -> tuple[IntArray, IntArray]:
    """Codes of the classes that run the matrices before and after the activation."""
    asked = (c["rate_class"], c.get("down_class", c["rate_class"]))
    up, down = (classes.promoted[codes(each)] for each in asked)
    return up, down


def expert_rate(op: str, up: FloatArray, down: FloatArray) -> FloatArray:
    """Return the rate of all matrices of an expert together from those before and after its activation [1]."""
    share = _up_share(op)
    return np.asarray(1.0 / (share / up + (1.0 - share) / down))


def _rows(c: Columns) -> FloatArray:
    """Rows of all experts together [1]."""
    return np.asarray(c["tokens"] * c["top_k"])


def _conversions(
    c: Columns, classes: NativeClasses, computed: tuple[IntArray, IntArray], weights: FloatArray, up_share: float
) -> FloatArray | float:
    """Vector operations that widen the weights of the experts met and round the inputs of both matrices."""
    if "up_dequant_ops" not in c:
        return 0.0
    inputs = c["up_quantise_ops"] * c["hidden"] + c["down_quantise_ops"] * c["top_k"] * c["inter"]
    ops = c["tokens"] / c["expert_parallel"] * inputs
    for side, runs, part in zip(("up", "down"), computed, (up_share, 1.0 - up_share), strict=True):
        needed = widened(c[f"{side}_native"], c[f"{side}_weight_class"], runs, classes)
        ops = ops + part * weights * c[f"{side}_dequant_ops"] * needed
    return ops
