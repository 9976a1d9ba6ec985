"""Fused attention over a KV cache: prefill, decode and the shared latent of MLA on one chip."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from models import tables
from models.checks import FloatArray
from models.hardware.design import DesignBatch, macs_per_cycle_per_core
from models.operators.axes import per_design, size_arrays
from models.operators.smooth import smooth_maximum

Constants = Mapping[str, Any]
"""Name -> value, or one value per row of sizes where kernels differ."""

LANES_REFERENCE = 128.0
"""Vector lanes per core for which the constants in cycles are stated."""

OVERLAP_EXPONENT = 2.0
"""Smooth maximum of work that overlaps in part: matrix and exponential, one core's stream and the whole chip."""

FOLD_EXPONENT = 3.0
"""Smooth maximum of work that overlaps well: traffic and issue of many units."""


def mean_keys(
    new_tokens: ArrayLike, past_tokens: ArrayLike, causal: bool = True, window_tokens: float = 0.0
) -> FloatArray:
    """Mean keys that one query of a prompt sees: past + (new + 1)/2 when causal, cut by the window [1]."""
    new, past = size_arrays(new_tokens, past_tokens)
    keys = past + (new + 1.0) / 2.0 if causal else past + new
    if window_tokens <= 0:
        return keys
    if not causal:
        return np.minimum(keys, window_tokens)
    # queries that see less than a window: the first window - past of them
    ramp = np.clip(window_tokens - past, 0.0, new)
    return (ramp * (past + (ramp + 1.0) / 2.0) + (new - ramp) * window_tokens) / np.maximum(new, 1e-9)


def attention_flop(
    batch: ArrayLike,
    queries: ArrayLike,
    keys: ArrayLike,
    n_heads: ArrayLike,
    head_dim_qk: ArrayLike,
    head_dim_v: ArrayLike,
) -> FloatArray:
    """
    Return the multiplications plus additions of scores and weighted sums, softmax left out.

    `keys` is the mean number of keys a query sees: `mean_keys` for a prompt, the context for a decode step
    (`queries` = 1). All sizes broadcast to (n_shapes,). [FLOP]

    Examples
    --------
    >>> float(attention_flop(1, 1024, mean_keys(1024, 0), 32, 128, 128)[0]) == 4 * 32 * 128 * 1024 * 1025 / 2
    True
    """
    b, q, s, h, d_qk, d_v = size_arrays(batch, queries, keys, n_heads, head_dim_qk, head_dim_v)
    return 2.0 * b * q * s * h * (d_qk + d_v)


def attention_bytes(
    batch: ArrayLike,
    queries: ArrayLike,
    kv_tokens: ArrayLike,
    n_heads: ArrayLike,
    head_dim_qk: ArrayLike,
    head_dim_v: ArrayLike,
    kv_bytes_per_element: ArrayLike,
    kv_elements_per_token: ArrayLike,
) -> FloatArray:
    """
    Return compulsory main-memory traffic: the cache of `kv_tokens` once, queries and outputs in two bytes.

    All sizes broadcast to (n_shapes,); `kv_elements_per_token` counts one layer on one chip
    (2 n_kv_heads head_dim, or the latent of MLA, which all heads share). [B]
    """
    b, q, s, h, d_qk, d_v, element_bytes, elements = size_arrays(
        batch, queries, kv_tokens, n_heads, head_dim_qk, head_dim_v, kv_bytes_per_element, kv_elements_per_token
    )
    return b * s * elements * element_bytes + 2.0 * b * q * h * (d_qk + d_v)


def attention_prefill_time_s(
    designs: DesignBatch,
    batch: ArrayLike,
    new_tokens: ArrayLike,
    past_tokens: ArrayLike,
    n_heads: ArrayLike,
    n_kv_heads: ArrayLike,
    head_dim_qk: ArrayLike,
    head_dim_v: ArrayLike,
    kv_bytes_per_element: ArrayLike,
    *,
    matrix_rate_ratio: ArrayLike = 1.0,
    causal: bool = True,
    window_tokens: float = 0.0,
    start_s: ArrayLike | None = None,
    constants: Constants | None = None,
) -> FloatArray:
    """
    Return the time of one fused attention over new prompt tokens, one layer on one chip.

    Parameters
    ----------
    designs : DesignBatch
        Of n_designs designs.
    batch : array broadcastable to (n_shapes,) or (n_designs, n_shapes)
        Prompts of the step; an expectation such as 1.3 is allowed.
    new_tokens, past_tokens : arrays, as `batch`
        Tokens of one prompt in this step, and those already in the cache. Prompts of unequal length are one
        effective length, sum(length^2) / sum(length), with batch = tokens / length.
    n_heads, n_kv_heads, head_dim_qk, head_dim_v, kv_bytes_per_element : arrays, as `batch`
        On one chip, after the tensor-parallel cut.
    matrix_rate_ratio : scalar, or array of shape (n_designs,) or (n_designs, n_shapes)
        Rate of the format that multiplies, over bf16. [1]
    causal, window_tokens
        Each query sees earlier tokens only, and at most the window (0: all).
    start_s : scalar or array of shape (n_designs,), optional
        Start of the kernel; the fitted one when left out. [s]
    constants : mapping, optional
        Instead of `models/data/constants/attention.csv`.

    Returns
    -------
    array of shape (n_designs, n_shapes)
        Never below FLOP / peak nor compulsory bytes / bandwidth. [s]

    Examples
    --------
    >>> from models.hardware.design import reference_design
    >>> time_s = attention_prefill_time_s(reference_design(), 1, [1024, 2048], 0, 32, 8, 128, 128, 2)
    >>> bool(time_s[0, 1] > 2 * time_s[0, 0])
    True
    """
    c = tables.constants("attention") if constants is None else constants
    b, new, past, heads, kv_heads, d_qk, d_v, kv_bytes = size_arrays(
        batch, new_tokens, past_tokens, n_heads, n_kv_heads, head_dim_qk, head_dim_v, kv_bytes_per_element
    )
    chance, b = np.minimum(b, 1.0), np.maximum(b, 1.0)
    clock_hz = per_design(designs.clock_hz, b)
    keys = mean_keys(new, past, causal, window_tokens)
    key_cycles = _prefill_cycles_per_key(designs, d_qk, d_v, matrix_rate_ratio, c)
    tiles = b * kv_heads * np.ceil(np.maximum(new * heads / kv_heads, 1.0) / c["prefill_tile_rows"])
    longest_keys = past + new if window_tokens <= 0 else np.minimum(past + new, window_tokens)
    fixed = c["prefill_tile_cycles"]
    shared_s = tiles * (keys * key_cycles + fixed) / (per_design(designs.n_cores, b) * clock_hz)
    tail_s = c["prefill_tail_fraction"] * (longest_keys * key_cycles + fixed) / clock_hz
    traffic = attention_bytes(b, new, new + past, heads, d_qk, d_v, kv_bytes, kv_heads * (d_qk + d_v))
    memory_s = traffic / (per_design(designs.memory_bandwidth_bytes_per_s, b) * c["prefill_memory_efficiency_fraction"])
    start = per_design(c["prefill_start_s"] if start_s is None else start_s, b)
    return np.asarray(chance * (start + smooth_maximum(shared_s + tail_s, memory_s, OVERLAP_EXPONENT)))


def _prefill_cycles_per_key(
    designs: DesignBatch, d_qk: FloatArray, d_v: FloatArray, matrix_rate_ratio: ArrayLike, c: Constants
) -> FloatArray:
    """
    Cycles in which one core scores one key against a tile of queries and adds its value, (n_designs, n_shapes).

    A narrower format speeds up the product, not the conversions around it: its ratio enters to a power. The
    exponential runs on units that do not grow in step with the lanes: lanes enter by their square root.
    """
    ratio = np.asarray(matrix_rate_ratio, dtype=np.float64)
    ratio = np.minimum(ratio, ratio ** c["prefill_narrow_format_exponent"])
    macs = per_design(macs_per_cycle_per_core(designs), d_qk) * per_design(ratio, d_qk)
    matrix = (d_qk + d_v) / (macs * c["prefill_matrix_efficiency_fraction"])
    lanes = np.sqrt(per_design(designs.vector_lanes_per_core, d_qk) / LANES_REFERENCE)
    vector = c["prefill_softmax_cycles_per_score"] / lanes
    return np.asarray(c["prefill_tile_rows"] * smooth_maximum(matrix, vector, OVERLAP_EXPONENT))


def attention_decode_time_s(
    designs: DesignBatch,
    batch: ArrayLike,
    kv_tokens: ArrayLike,
    n_heads: ArrayLike,
    n_kv_heads: ArrayLike,
    head_dim_qk: ArrayLike,
    head_dim_v: ArrayLike,
    kv_bytes_per_element: ArrayLike,
    kv_elements_per_token: ArrayLike,
    *,
    matrix_rate_ratio: ArrayLike = 1.0,
    start_s: ArrayLike | None = None,
    constants: Constants | None = None,
) -> FloatArray:
    """
    Return the time of one fused attention of one new token per sequence, one layer on one chip.

    The cache is read once. A unit of work, one sequence and KV head, costs fixed cycles of a core and streams at
    that core's rate, unless its cache is split over idle cores and the pieces combined at a fixed cost. All query
    heads compute, so MLA (one shared latent, all heads) turns compute bound.

    Parameters
    ----------
    designs : DesignBatch
        Of n_designs designs.
    batch, kv_tokens : arrays broadcastable to (n_shapes,) or (n_designs, n_shapes)
        Sequences, and mean tokens in the cache of each (cut by a window by the caller).
    n_heads, n_kv_heads, head_dim_qk, head_dim_v : arrays, as `batch`
        On one chip. MLA in its absorbed form: n_kv_heads 1, head_dim_qk 576, head_dim_v 512.
    kv_bytes_per_element, kv_elements_per_token : arrays, as `batch`
        Cache of one token and layer on one chip: 2 n_kv_heads head_dim elements, 576 for MLA.
    matrix_rate_ratio, start_s, constants
        As for `attention_prefill_time_s`.

    Returns
    -------
    array of shape (n_designs, n_shapes)
        Never below FLOP / peak nor compulsory bytes / bandwidth. [s]

    Examples
    --------
    >>> from models.hardware.design import reference_design
    >>> time_s = attention_decode_time_s(reference_design(), [1, 64], 4096, 32, 8, 128, 128, 2, 2048)
    >>> bool(time_s[0, 0] < time_s[0, 1])
    True
    """
    c = tables.constants("attention") if constants is None else constants
    b, kv, heads, kv_heads, d_qk, d_v, kv_bytes, elements = size_arrays(
        batch, kv_tokens, n_heads, n_kv_heads, head_dim_qk, head_dim_v, kv_bytes_per_element, kv_elements_per_token
    )
    chance, b = np.minimum(b, 1.0), np.maximum(b, 1.0)
    units = b * np.maximum(kv_heads, heads / c["decode_rows_per_unit"])
    rows = b * heads / units
    latent = elements <= kv_heads * np.maximum(d_qk, d_v)
    row_cycles = _decode_cycles_per_row(designs, d_qk, d_v, latent, matrix_rate_ratio, c)
    unit_cycles = smooth_maximum(np.asarray(c["decode_unit_cycles"]), c["decode_row_cycles"] * rows, FOLD_EXPONENT)
    unit_cycles = unit_cycles * (1.0 + c["decode_unit_dim_fraction"] * ((d_qk + d_v) / 256.0 - 1.0))
    cores = per_design(designs.n_cores, b)
    clock_hz = per_design(designs.clock_hz, b)
    issue_s = units * (unit_cycles + kv * rows * row_cycles) / (cores * clock_hz)
    stored_bytes = np.where(latent, elements / kv_heads, d_qk + d_v) * kv_bytes
    alone_s = kv * (stored_bytes * c["decode_stream_cycles_per_byte"] + rows * row_cycles) / clock_hz
    splits = np.clip(cores / units, 1.0, np.maximum(kv / c["decode_split_tokens"], 1.0))
    unit_s = np.minimum(alone_s, alone_s / splits + c["decode_combine_cycles"] / clock_hz)
    traffic = attention_bytes(b, 1.0, kv, heads, d_qk, d_v, kv_bytes, elements)
    memory_s = traffic / (per_design(designs.memory_bandwidth_bytes_per_s, b) * c["decode_memory_efficiency_fraction"])
    dies = 1.0 + c["decode_start_per_further_die_fraction"] * (per_design(designs.n_dies, b) - 1.0)
    start = c["decode_start_cycles"] * dies / clock_hz if start_s is None else per_design(start_s, b)
    whole_s = smooth_maximum(memory_s, issue_s, FOLD_EXPONENT)
    return np.asarray(chance * (start + smooth_maximum(unit_s, whole_s, OVERLAP_EXPONENT)))


def _decode_cycles_per_row(
    designs: DesignBatch,
    d_qk: FloatArray,
    d_v: FloatArray,
    latent: NDArray[np.bool_],
    matrix_rate_ratio: ArrayLike,
    c: Constants,
) -> FloatArray:
    """
    Cycles in which one core scores one key against one query head and adds its value, (n_designs, n_shapes).

    A latent serves scores and values from one copy on the chip, so its kernel comes nearer to the peak. Kernels
    without a matrix path state vector cycles per element instead.
    """
    macs = per_design(macs_per_cycle_per_core(designs), d_qk) * per_design(matrix_rate_ratio, d_qk)
    efficiency = np.where(latent, c["decode_latent_efficiency_fraction"], c["decode_matrix_efficiency_fraction"])
    lanes = per_design(designs.vector_lanes_per_core, d_qk) / LANES_REFERENCE
    return np.asarray((d_qk + d_v) * (1.0 / (macs * efficiency) + c["decode_vector_cycles_per_element"] / lanes))
