"""Fused attention over a KV cache: prefill, decode and the shared latent of MLA on one chip."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from models import tables
from models.checks import FloatArray, require_non_negative, require_positive
from models.hardware.design import DesignBatch, macs_per_cycle_per_core
from models.operators.axes import norm_maximum, per_design, size_arrays

Constants = Mapping[str, float]

LANES_REFERENCE = 128.0
"""Vector lanes per core for which the constants in cycles are stated."""


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
    matrix_rate_ratio : scalar or array of shape (n_designs,)
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
    cores = per_design(designs.n_cores, b)
    clock_hz = per_design(designs.clock_hz, b)
    macs = per_design(macs_per_cycle_per_core(designs) * np.asarray(matrix_rate_ratio), b)
    lanes = per_design(designs.vector_lanes_per_core, b)
    keys = mean_keys(new, past, causal, window_tokens)
    group = heads / kv_heads
    tile_rows = c["prefill_tile_rows"]
    rows = np.maximum(new * group, 1.0)
    tiles = b * kv_heads * np.ceil(rows / tile_rows)
    matrix_cycles = tile_rows * keys * (d_qk + d_v) / (macs * c["prefill_matrix_efficiency_fraction"])
    vector_cycles = tile_rows * keys * c["prefill_softmax_cycles_per_score"] * LANES_REFERENCE / lanes
    tile_cycles = (
        norm_maximum(c["prefill_softmax_overlap_exponent"], matrix_cycles, vector_cycles)
        + c["prefill_tile_cycles"]
        + c["prefill_tile_cycles_per_dim"] * (d_qk + d_v) / 2.0
    )
    waves = tiles / cores
    share = c["prefill_wave_rounding_fraction"]
    turns = np.maximum(1.0, share * np.ceil(waves) + (1.0 - share) * waves)
    traffic = attention_bytes(b, new, new + past, heads, d_qk, d_v, kv_bytes, kv_heads * (d_qk + d_v))
    memory_s = traffic / (per_design(designs.memory_bandwidth_bytes_per_s, b) * c["prefill_memory_efficiency_fraction"])
    start = per_design(c["prefill_start_s"] if start_s is None else start_s, b)
    return np.asarray(
        start + norm_maximum(c["prefill_memory_overlap_exponent"], turns * tile_cycles / clock_hz, memory_s)
    )


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

    The cache is read once and bounds the time; one sequence and KV head is streamed by one core at a latency
    bound rate unless the cache is split over cores and the pieces are combined at a fixed cost; all query heads
    compute, in rows padded to the array, so MLA (one shared latent, all heads) turns compute bound.

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
    cores = per_design(designs.n_cores, b)
    clock_hz = per_design(designs.clock_hz, b)
    macs = per_design(macs_per_cycle_per_core(designs) * np.asarray(matrix_rate_ratio), b)
    lanes = per_design(designs.vector_lanes_per_core, b)
    units = b * kv_heads
    padded_rows = np.ceil(heads / kv_heads / c["decode_tile_rows"]) * c["decode_tile_rows"]
    cycles_per_key = padded_rows * (
        (d_qk + d_v) / (macs * c["decode_matrix_efficiency_fraction"])
        + c["decode_softmax_cycles_per_score"] * LANES_REFERENCE / lanes
    )
    compute_s = units * kv * cycles_per_key / (cores * clock_hz)
    stream_s = (
        kv
        * elements
        / kv_heads
        * kv_bytes
        * c["clock_reference_hz"]
        / (c["decode_stream_bytes_per_s_per_core"] * clock_hz)
        + kv * cycles_per_key / clock_hz
    )
    splits = np.clip(c["decode_splits_per_core"] * cores / units, 1.0, np.maximum(kv / c["decode_split_tokens"], 1.0))
    unit_s = np.minimum(stream_s, stream_s / splits + c["decode_combine_s"])
    traffic = attention_bytes(b, 1.0, kv, heads, d_qk, d_v, kv_bytes, elements)
    memory_s = traffic / (per_design(designs.memory_bandwidth_bytes_per_s, b) * c["decode_memory_efficiency_fraction"])
    scheduling_s = (units * c["decode_unit_cycles"] + b * heads * c["decode_head_cycles"]) / (cores * clock_hz)
    start = per_design(c["decode_start_s"] if start_s is None else start_s, b)
    return np.asarray(start + norm_maximum(c["decode_overlap_exponent"], unit_s, memory_s, compute_s) + scheduling_s)


def require_attention_sizes(**sizes: ArrayLike) -> None:
    """Refuse counts that are not positive, or negative token counts, with the name of the size."""
    for name, values in sizes.items():
        (require_non_negative if name.endswith("tokens") else require_positive)(name, values, "1")
