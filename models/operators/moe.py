"""Expert MLPs of a mixture of experts: which experts are touched, how unevenly, and the grouped GEMMs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from models import tables
from models.checks import FloatArray
from models.hardware.design import DesignBatch, macs_per_cycle_per_core
from models.operators.axes import per_design, size_arrays

Constants = Mapping[str, Any]
"""Name -> value, or one value per row of sizes where kernels differ."""


RANKS_OF_A_SKEW = 16
"""Intervals of rank, equal on a log scale, that stand for all experts of a skewed router."""


def expected_distinct_experts(
    n_experts: ArrayLike, top_k: ArrayLike, tokens: ArrayLike, zipf_exponent: ArrayLike = 0.0
) -> FloatArray:
    """
    Return how many different experts `tokens` tokens touch, each choosing `top_k` of them.

    Uniform routing gives E (1 - (1 - k/E)^M). Skewed routing draws experts with shares proportional to
    rank^-zipf_exponent, without repeating one for the same token. Sizes broadcast to (n_shapes,). [1]

    Examples
    --------
    >>> round(float(expected_distinct_experts(128, 8, 16)[0]), 1)
    82.4
    """
    experts, k, m, zipf = size_arrays(n_experts, top_k, tokens, zipf_exponent)
    uniform = experts * -np.expm1(m * np.log1p(-np.minimum(k / experts, 1.0 - 1e-12)))
    if not np.any(zipf > 0):
        return np.asarray(np.minimum(uniform, m * k))
    chance, width, _ = _expert_chances(experts, k, zipf)
    touched = (width * -np.expm1(m[..., None] * np.log1p(-chance))).sum(axis=-1)
    return np.asarray(np.minimum(np.where(zipf > 0, touched, uniform), m * k))


def load_imbalance_ratio(
    n_experts: ArrayLike, top_k: ArrayLike, expert_parallel: ArrayLike, zipf_exponent: ArrayLike = 0.0
) -> FloatArray:
    """
    Return the load of the busiest of `expert_parallel` ranks over the mean, at least 1.

    The busiest rank holds the most popular expert and average ones beside it. Sizes broadcast to (n_shapes,). [1]

    Examples
    --------
    >>> float(load_imbalance_ratio(256, 8, 32)[0])
    1.0
    """
    experts, k, ranks, zipf = size_arrays(n_experts, top_k, expert_parallel, zipf_exponent)
    if not np.any(zipf > 0):
        return np.ones_like(experts)
    first = np.maximum(_expert_chances(experts, k, zipf)[2], k / experts)
    others = (experts / ranks - 1.0) * (k - first) / np.maximum(experts - 1.0, 1.0)
    return np.asarray(np.where(zipf > 0, np.clip((first + others) * ranks / k, 1.0, ranks), 1.0))


def _expert_chances(experts: FloatArray, k: FloatArray, zipf: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """
    Chance that one token chooses an expert, by intervals of rank; experts in each; chance of the first expert.

    Drawing without repetition is a race of exponential clocks with rates in proportion to the shares: expert i is
    among the first k with chance 1 - exp(-x share_i), x such that the chances sum to k (Newton, from below).
    """
    edges = np.exp(np.linspace(0.0, 1.0, RANKS_OF_A_SKEW + 1) * np.log(experts[..., None] + 1.0))
    width = np.diff(edges, axis=-1)
    share = np.sqrt(edges[..., 1:] * edges[..., :-1]) ** -zipf[..., None]
    share = share / (share * width).sum(axis=-1, keepdims=True)
    reach = k.astype(np.float64)
    for _ in range(12):
        left = np.exp(-reach[..., None] * share)
        missing = k - (width * (1.0 - left)).sum(axis=-1)
        reach = reach + missing / np.maximum((width * share * left).sum(axis=-1), 1e-12)
    chance = np.minimum(-np.expm1(-reach[..., None] * share), 1.0 - 1e-12)
    return chance, width, chance[..., 0]


def expert_mlp_time_s(
    designs: DesignBatch,
    tokens: ArrayLike,
    hidden: ArrayLike,
    inter: ArrayLike,
    n_experts: ArrayLike,
    top_k: ArrayLike,
    *,
    expert_parallel: ArrayLike = 1.0,
    weight_bytes_per_element: ArrayLike = 2.0,
    matrix_rate_ratio: ArrayLike = 1.0,
    zipf_exponent: ArrayLike = 0.0,
    gated: bool = True,
    start_s: ArrayLike | None = None,
    constants: Constants | None = None,
) -> FloatArray:
    """
    Return the time of all routed expert MLPs of one layer on the busiest chip of an expert-parallel group.

    Parameters
    ----------
    designs : DesignBatch
        Of n_designs designs.
    tokens : array broadcastable to (n_shapes,) or (n_designs, n_shapes)
        Tokens of the whole expert-parallel group in the step.
    hidden, inter : arrays, as `tokens`
        Width of the model, and of one expert on one chip (after the tensor-parallel cut).
    n_experts, top_k, expert_parallel : arrays, as `tokens`
        Experts of the layer, experts per token, chips over which the experts are spread.
    weight_bytes_per_element : array, as `tokens`
        Stored weight of one element. [B]
    matrix_rate_ratio : scalar, or array of shape (n_designs,) or (n_designs, n_shapes)
        Rate of the format that multiplies, over bf16. [1]
    zipf_exponent : array, as `tokens`
        Skew of the routing; 0 is uniform. [1]
    gated : bool
        Gate and up projections, two matrices of `inter` outputs, before the down projection.
    start_s : scalar or array of shape (n_designs,), optional
        Start, routing and permutation of the layer; the fitted one when left out. [s]
    constants : mapping, optional
        Instead of `models/data/constants/moe.csv`.

    Returns
    -------
    array of shape (n_designs, n_shapes)
        [s]

    Examples
    --------
    >>> from models.hardware.design import reference_design
    >>> time_s = expert_mlp_time_s(reference_design(), [1, 4096], 7168, 2048, 256, 8, expert_parallel=8)
    >>> bool(time_s[0, 1] > time_s[0, 0])
    True
    """
    c = tables.constants("moe") if constants is None else constants
    m, h, i, experts, k, ranks, element_bytes, zipf = size_arrays(
        tokens, hidden, inter, n_experts, top_k, expert_parallel, weight_bytes_per_element, zipf_exponent
    )
    local = experts / ranks
    busiest = load_imbalance_ratio(experts, k, ranks, zipf)
    active = np.minimum(expected_distinct_experts(experts, k, m, zipf) / ranks * busiest, local)
    return local_expert_mlp_time_s(
        designs, active, m * k / ranks * busiest, h, i, local, m * k, weight_bytes_per_element=element_bytes,
        matrix_rate_ratio=matrix_rate_ratio, gated=gated, start_s=start_s, constants=c,
    )  # fmt: skip


def local_expert_mlp_time_s(
    designs: DesignBatch,
    active_experts: ArrayLike,
    routed_rows: ArrayLike,
    hidden: ArrayLike,
    inter: ArrayLike,
    local_experts: ArrayLike,
    routed_choices: ArrayLike,
    *,
    weight_bytes_per_element: ArrayLike = 2.0,
    matrix_rate_ratio: ArrayLike = 1.0,
    gated: bool | ArrayLike = True,
    start_s: ArrayLike | None = None,
    constants: Constants | None = None,
) -> FloatArray:
    """
    Return the time of the expert MLPs of one chip whose routing is known, (n_designs, n_shapes) [s].

    The sum of `expert_mlp_parts_s`.

    Parameters
    ----------
    designs, active_experts, routed_rows, hidden, inter, local_experts, routed_choices
        As for `expert_mlp_parts_s`.
    weight_bytes_per_element, matrix_rate_ratio, gated, start_s, constants
        As for `expert_mlp_parts_s`.
    """
    parts = expert_mlp_parts_s(
        designs, active_experts, routed_rows, hidden, inter, local_experts, routed_choices,
        weight_bytes_per_element=weight_bytes_per_element, matrix_rate_ratio=matrix_rate_ratio, gated=gated,
        start_s=start_s, constants=constants,
    )  # fmt: skip
    return np.asarray(sum(parts.values(), np.zeros(1)))


def expert_mlp_parts_s(
    designs: DesignBatch,
    active_experts: ArrayLike,
    routed_rows: ArrayLike,
    hidden: ArrayLike,
    inter: ArrayLike,
    local_experts: ArrayLike,
    routed_choices: ArrayLike,
    *,
    weight_bytes_per_element: ArrayLike = 2.0,
    matrix_rate_ratio: ArrayLike = 1.0,
    gated: bool | ArrayLike = True,
    start_s: ArrayLike | None = None,
    constants: Constants | None = None,
) -> dict[str, FloatArray]:
    """
    Return what follows each other in the expert MLPs of one chip: start, sorting, up, down, moving [s].

    Rows are sorted by expert, multiplied with the weights of each in two grouped GEMMs, and summed back.

    Parameters
    ----------
    designs : DesignBatch
        Of n_designs designs.
    active_experts, routed_rows : arrays broadcastable to (n_shapes,) or (n_designs, n_shapes)
        Experts of this chip that get a row, and all rows they get.
    hidden, inter, weight_bytes_per_element, matrix_rate_ratio, start_s, constants
        As for `expert_mlp_time_s`.
    local_experts, routed_choices : arrays, as `active_experts`
        Experts stored on this chip, and choices (tokens x top_k) of the whole group that are sorted.
    gated : bool or array, as `active_experts`
        Gate and up projections, two matrices of `inter` outputs, before the down projection.
    """
    c = tables.constants("moe") if constants is None else constants
    active, rows, h, i, local, choices, element_bytes, halves = size_arrays(
        active_experts, routed_rows, hidden, inter, local_experts, routed_choices, weight_bytes_per_element,
        np.where(np.asarray(gated), 2.0, 1.0),
    )  # fmt: skip
    up_s = grouped_gemm_time_s(designs, active, rows, halves * i, h, element_bytes, matrix_rate_ratio, constants=c)
    down_s = grouped_gemm_time_s(designs, active, rows, h, i, element_bytes, matrix_rate_ratio, constants=c)
    moving_s = permuted_bytes(rows, h, i, c) / per_design(designs.memory_bandwidth_bytes_per_s, rows)
    clock_hz = per_design(designs.clock_hz, rows)
    sorting_cycles = c["cycles_per_local_expert"] * local + c["cycles_per_choice"] * choices / per_design(
        designs.n_cores, rows
    )
    start = per_design(c["start_s"] if start_s is None else start_s, rows)
    return {"start": start, "sorting": sorting_cycles / clock_hz, "up": up_s, "down": down_s, "moving": moving_s}


def permuted_bytes(rows: FloatArray, hidden: FloatArray, inter: FloatArray, constants: Constants) -> FloatArray:
    """Return what rows move into the order of their experts and back, beside weights, shape of rows [B]."""
    return np.asarray(constants["moving_bytes_per_element"] * rows * (hidden + inter))


def grouped_gemm_time_s(
    designs: DesignBatch,
    active_experts: ArrayLike,
    rows: ArrayLike,
    n: ArrayLike,
    k: ArrayLike,
    weight_bytes_per_element: ArrayLike = 2.0,
    matrix_rate_ratio: ArrayLike = 1.0,
    *,
    constants: Constants | None = None,
) -> FloatArray:
    """
    Return the time of one GEMM per active expert, all in one kernel, without its start, (n_designs, n_shapes) [s].

    Weights of the active experts are read once; rows of each expert are padded; reading, multiplying and the
    chain along k of one tile follow each other.

    Parameters
    ----------
    designs : DesignBatch
        Of n_designs designs.
    active_experts, rows, n, k, weight_bytes_per_element : arrays broadcastable to (n_designs, n_shapes)
        `rows` counts those of all experts together; each expert has k x n weights.
    matrix_rate_ratio : scalar, or array of shape (n_designs,) or (n_designs, n_shapes)
        Rate of the format that multiplies, over bf16. [1]
    constants : mapping, optional
        Instead of `models/data/constants/moe.csv`.

    Examples
    --------
    >>> from models.hardware.design import reference_design
    >>> time_s = grouped_gemm_time_s(reference_design(), 8, [64, 65536], 4096, 7168)
    >>> bool(time_s[0, 0] < time_s[0, 1] / 10)
    True
    """
    c = tables.constants("moe") if constants is None else constants
    active, m, columns, depth, element_bytes = size_arrays(active_experts, rows, n, k, weight_bytes_per_element)
    modern = per_design(designs.bulk_async_copy, m) > 0
    efficiency = np.where(modern, c["matrix_efficiency_fraction"], c["older_matrix_efficiency_fraction"])
    macs = per_design(macs_per_cycle_per_core(designs), m) * per_design(matrix_rate_ratio, m) * efficiency
    clock_hz = per_design(designs.clock_hz, m)
    padded = m + active * c["padding_rows_per_expert"]
    compute_s = padded * columns * depth / (macs * per_design(designs.n_cores, m) * clock_hz)
    memory_s = (
        active
        * columns
        * depth
        * element_bytes
        / (per_design(designs.memory_bandwidth_bytes_per_s, m) * c["memory_efficiency_fraction"])
    )
    chain_s = depth * c["chain_cycles_per_depth"] / clock_hz
    return np.asarray(compute_s + memory_s + chain_s)
