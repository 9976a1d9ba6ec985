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
    for d in range(out.shape[0]):
        per_core = 1.0 / n_cores[d]
        share = rounding[d]
        exposed = exposed_fraction[d]
        kept = stationarity[d]
        for s in range(out.shape[1]):
            best = np.inf
            for p in range(splits.shape[0]):
                if tiles_tried[s, p] == 0:
                    continue
                depth = np.ceil(k[s] / splits[p] / k_tile) * k_tile
                steps = np.ceil(depth / k_per_step[d, s]) * rate_loss[d, s]
                delivery = depth * element_bytes[s] / port_bytes[d]
                slices = depth * least_cycles_per_k[d]
                least = np.inf
                for t in range(tiles_tried[s, p]):
                    operands = delivery * tile_sides[t]
                    step = max(step_cycles[d, t] * streamed_share[kept, s, t], least_step_cycles[d, t])
                    inner = max(steps * step + exposed * operands, max(operands, slices))
                    one = inner + fixed_cycles[d, t]
                    waves = tiles[s, p, t] * per_core
                    counted = share * np.ceil(waves - WAVE_SLACK) + (1.0 - share) * waves
                    least = min(least, one * max(counted, 1.0))
                if splits[p] > 1:
                    traffic = (splits[p] + 1.0) * split_bytes_ratio * outputs[s] / (port_bytes[d] * n_cores[d])
                    least += traffic + split_fixed[d]
                best = min(best, least)
            out[d, s] = best


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
