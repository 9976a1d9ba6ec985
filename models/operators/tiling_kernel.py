"""The least cycles over all tilings of many GEMMs on many designs, compiled: the innermost loop of every search."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from models.checks import FloatArray

WAVE_SLACK = 1e-9
"""Below a whole number of waves by floating point: tiles x (1 / cores) of exactly full waves may come out above."""


def least_cycles_loop(
    k_per_step: Any,
    rate_loss: Any,
    port_bytes: Any,
    exposed_fraction: Any,
    least_cycles_per_k: Any,
    n_cores: Any,
    rounding: Any,
    split_fixed: Any,
    step_cycles: Any,
    least_step_cycles: Any,
    streamed_share: Any,
    stationarity: Any,
    fixed_cycles: Any,
    k: Any,
    outputs: Any,
    element_bytes: Any,
    tiles: Any,
    tiles_tried: Any,
    tile_sides: Any,
    splits: Any,
    k_tile: float,
    split_bytes_ratio: float,
    out: Any,
) -> None:
    """
    Fill `out` of shape (n_designs, n_shapes) with the least cycles [1].

    For every split and tile: waves x (inner loop + fixed) + cost of the split, where waves = max(1, a ceil(w) +
    (1 - a) w), w = tiles / cores, and the inner loop takes the largest of steps x step cycles + the exposed part of
    operands / port, of operands / port, and of what the slices of k take however small the tile is.

    Parameters
    ----------
    k_per_step, rate_loss : arrays of shape (n_designs, n_shapes)
        Depth consumed in one step at the rate of the format, and cycles a step takes of it. [1]
    port_bytes, exposed_fraction, least_cycles_per_k : arrays of shape (n_designs,)
        Port of a core [B/cycle], share of its transfers that the arrays wait for, cycles of the inner loop per k.
    n_cores, rounding, split_fixed : arrays of shape (n_designs,)
        Cores, wave rounding a, cycles of a split beyond its traffic.
    step_cycles, least_step_cycles, fixed_cycles : arrays of shape (n_designs, n_tiles)
        Of `tile_cost`; infinite where the tile does not fit.
    streamed_share : array of shape (3, n_shapes, n_tiles)
        Share of a tile that streams through an array of each stationarity.
    stationarity : integer array of shape (n_designs,)
        Codes of `Stationarity`.
    k, outputs, element_bytes : arrays of shape (n_shapes,)
        Depth, m n, and bytes of an operand on the chip.
    tiles : array of shape (n_shapes, n_splits, n_tiles)
        Tiles times splits; infinite where not worth trying.
    tiles_tried : integer array of shape (n_shapes, n_splits)
        How many tiles from the first hold all that are worth trying.
    tile_sides : array of shape (n_tiles,)
        Rows plus columns of each tile.
    splits : array of shape (n_splits,)
    k_tile, split_bytes_ratio : float
        Depth is rounded up to `k_tile`; a split moves `split_bytes_ratio` bytes per output and part. [1], [B]
    """
    n_tiles = tile_sides.shape[0]
    least = np.empty(n_tiles)  # by tile, and compared without calls, so that several tiles are looked at together
    for d in range(out.shape[0]):
        per_core = 1.0 / n_cores[d]
        share = rounding[d]
        exposed = exposed_fraction[d]
        whole_step, shortest_step, fixed = step_cycles[d], least_step_cycles[d], fixed_cycles[d]
        for s in range(out.shape[1]):
            streamed = streamed_share[stationarity[d], s]
            least[:] = np.inf
            for p in range(splits.shape[0]):
                if tiles_tried[s, p] == 0:
                    continue
                depth = np.ceil(k[s] / splits[p] / k_tile) * k_tile
                steps = np.ceil(depth / k_per_step[d, s]) * rate_loss[d, s]
                delivery = depth * element_bytes[s] / port_bytes[d]
                slices = depth * least_cycles_per_k[d]
                of_split = 0.0
                if splits[p] > 1:
                    traffic = (splits[p] + 1.0) * split_bytes_ratio * outputs[s] / (port_bytes[d] * n_cores[d])
                    of_split = traffic + split_fixed[d]
                counts = tiles[s, p]
                for t in range(tiles_tried[s, p]):
                    operands = delivery * tile_sides[t]
                    step = whole_step[t] * streamed[t]
                    step = step if step > shortest_step[t] else shortest_step[t]
                    computing = steps * step + exposed * operands
                    staging = operands if operands > slices else slices
                    inner = computing if computing > staging else staging
                    waves = counts[t] * per_core
                    counted = share * np.ceil(waves - WAVE_SLACK) + (1.0 - share) * waves
                    counted = counted if counted > 1.0 else 1.0
                    cycles = (inner + fixed[t]) * counted + of_split
                    least[t] = cycles if cycles < least[t] else least[t]
            width = n_tiles
            while width > 1:
                half = (width + 1) // 2
                for t in range(width - half):
                    least[t] = least[half + t] if least[half + t] < least[t] else least[t]
                width = half
            out[d, s] = least[0]


@functools.cache
def _compiled() -> Callable[..., None]:
    """The loop as machine code, kept on disk where that is possible."""
    import numba

    options: dict[str, Any] = {"nogil": True, "fastmath": {"nnan", "nsz", "contract"}}
    try:
        compiled: Callable[..., None] = numba.njit(cache=True, **options)(least_cycles_loop)
    except RuntimeError:  # no writable place for the cache: compile anew in each process
        compiled = numba.njit(**options)(least_cycles_loop)
    return compiled


def least_cycles(n_designs: int, n_shapes: int, *arguments: Any) -> FloatArray:
    """Return the least cycles, shape (n_designs, n_shapes); `arguments` are those of `least_cycles_loop` but `out`."""
    out = np.empty((n_designs, n_shapes))
    _compiled()(*arguments, out)
    return out
