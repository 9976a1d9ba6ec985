"""Tile shapes of a GEMM, and what one tile costs on one core as factors shared by all shapes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.checks import BoolArray, FloatArray, IntArray
from models.hardware.design import DesignBatch, Stationarity
from models.operators.gemm_constants import GemmConstants

ACCUMULATOR_BYTES = 4.0
TILE_ROWS = (16, 32, 64, 128, 256, 512, 1024, 2048)
TILE_COLUMNS = (32, 64, 128, 256, 512, 1024, 2048)
TILE_SIDES = np.array([(rows, columns) for rows in TILE_ROWS for columns in TILE_COLUMNS], dtype=np.float64).T
"""Rows and columns of every tile that is tried, the smallest first, shape (2, n_tiles)."""
SPLITS = (1, 2, 4, 8)
LARGEST_SPLIT_TILE_ROWS = 128
MOST_TILES_TO_SPLIT = 1024
LEAST_SIDE = 64


@dataclass(frozen=True)
class ShapeTiles:
    """What every tile makes of every shape, whatever the design; `tiles` and `streamed_share` as their functions."""

    tiles: FloatArray
    tried: IntArray
    """How many tiles from the first hold all that are worth trying, shape (n_shapes, n_splits)."""
    streamed_share: FloatArray

    def take(self, index: IntArray) -> ShapeTiles:
        """Those of some shapes."""
        return ShapeTiles(self.tiles[index], self.tried[index], np.take(self.streamed_share, index, axis=1))


def shape_tiles(m: FloatArray, n: FloatArray, k: FloatArray, splits: tuple[int, ...] = SPLITS) -> ShapeTiles:
    """Return `ShapeTiles` of shapes m, n and k, arrays of shape (n_shapes,)."""
    tiles = tile_counts(m, n, k, splits)
    tried = np.where(np.isfinite(tiles), np.arange(1, tiles.shape[2] + 1), 0).max(axis=2)
    return ShapeTiles(tiles, tried, streamed_share(m, n))


@dataclass(frozen=True)
class TileCost:
    """
    Cycles of one tile on one core: k_steps * cycles_per_k_step + fixed_cycles; arrays of shape (n_designs, n_tiles).

    `k_steps` counts steps of `k_per_step` elements of k at the rate of the format. A tile that the matrix fills in
    part streams its share of the rows, `streamed_share`, but never takes less than `least_cycles_per_k_step`.
    """

    cycles_per_k_step: FloatArray
    least_cycles_per_k_step: FloatArray
    fixed_cycles: FloatArray


def accumulator_elements(designs: DesignBatch) -> FloatArray:
    """
    Return how many output elements one core can accumulate, shape (n_designs,) [1].

    Half of the register files or half of the scratchpad, whichever is larger; the other half stages operands.
    """
    store_bytes = np.maximum(designs.register_file_bytes_per_core, designs.scratchpad_bytes_per_core)
    return np.asarray(store_bytes / 2.0 / ACCUMULATOR_BYTES)


def k_per_step(designs: DesignBatch) -> FloatArray:
    """
    Return how much of k one step consumes at the bf16 rate, shape (n_designs,) [1].

    An output-stationary array consumes `array_k` every cycle; an array that keeps weights or inputs holds
    `array_m` x `array_k` of k in its rows for one whole stream.
    """
    rows = np.where(designs.stationarity == Stationarity.OUTPUT, 1.0, _group_side(designs, designs.array_m))
    return np.asarray(designs.array_k * rows)


def tile_cost(designs: DesignBatch, constants: GemmConstants) -> TileCost:
    """
    Return what each of `TILES` costs on the arrays of one core, in outputs of rows x columns.

    Output stationary: each array sweeps k for one patch of array_m x array_n outputs. Weight stationary: the
    rows of the array hold k, its columns n, and the rows of the tile stream through; a stream shorter than the
    array waits for the next weights, which is why one row uses 1/rows of such an array. Input stationary is its
    mirror. A design may use a part of its array, so fill and drain follow the part that the tile covers.
    """
    overlap = constants.fold_overlap_fraction
    tile_rows, tile_columns = TILE_SIDES
    arrays = (designs.arrays_per_core * designs.array_groups)[:, None]
    rows, columns = (_group_side(designs, side)[:, None] for side in (designs.array_m, designs.array_n))
    output = (designs.stationarity == Stationarity.OUTPUT)[:, None]
    mirrored = (designs.stationarity == Stationarity.INPUT)[:, None]
    streamed, held = np.where(mirrored, tile_columns, tile_rows), np.where(mirrored, tile_rows, tile_columns)
    row_patches = np.where(output, np.ceil(tile_rows / rows), 1.0)
    patches = np.ceil(row_patches * np.ceil(held / columns) / arrays)
    skew = np.minimum(rows, np.where(output, tile_rows, rows)) + np.minimum(columns, held) - 2.0
    fold = overlap * np.maximum(streamed, rows) + (1.0 - overlap) * (streamed + rows + skew)
    step = np.where(output, 1.0, fold)
    load = np.where(output, 1.0, rows + (1.0 - overlap) * (columns - 2.0))
    exposed = np.where(output, (1.0 - overlap) * skew * patches, 0.0)
    per_tile = np.where(designs.bulk_async_copy > 0, constants.tile_cycles, constants.tile_cycles_without_bulk_copy)
    coordination = constants.group_coordination_cycles * np.log2(designs.array_groups)
    fill = skew + np.where(output, 0.0, rows)
    return TileCost(patches * step, patches * load, exposed + fill + (per_tile + coordination)[:, None])


def tile_fits(designs: DesignBatch) -> BoolArray:
    """
    Return whether a core can accumulate each tile, shape (n_designs, n_tiles).

    Tiles with no side above `LEAST_SIDE` always fit, so that every shape has one.
    """
    rows, columns = TILE_SIDES
    return np.asarray(
        (accumulator_elements(designs)[:, None] >= rows * columns) | (np.maximum(rows, columns) <= LEAST_SIDE)
    )


def tile_counts(m: FloatArray, n: FloatArray, k: FloatArray, splits: tuple[int, ...] = SPLITS) -> FloatArray:
    """
    Return tiles times splits of every shape, shape (..., n_splits, n_tiles); infinite where nothing is gained.

    Left out are tiles of which half would already cover the matrix (dominated), tiles with a side below
    `LEAST_SIDE` that do not cover the matrix along it (public kernels have none, and fits without them are
    better), and splits where there are plenty of tiles or little k. The rule looks at the shape alone, so more
    hardware never takes a choice away.
    """
    rows, columns = TILE_SIDES
    m, n, k = m[..., None, None], n[..., None, None], k[..., None, None]
    parts = np.array(splits, dtype=np.float64)[:, None]
    tiles = np.ceil(m / rows) * np.ceil(n / columns)
    tried = ((m > rows / 2) | (rows == rows[0])) & ((n > columns / 2) | (columns == columns[0]))
    tried &= ((rows >= LEAST_SIDE) | (m <= rows)) & ((columns >= LEAST_SIDE) | (n <= columns))
    splittable = (rows <= LARGEST_SPLIT_TILE_ROWS) & (tiles <= MOST_TILES_TO_SPLIT) & (k >= 64.0 * parts)
    return np.where(tried & ((parts == 1) | splittable), tiles * parts, np.inf)


def streamed_share(m: FloatArray, n: FloatArray) -> FloatArray:
    """
    Return the share of a tile that streams through an array, by stationarity, shape (3, n_shapes, n_tiles) [1].

    Arrays that hold weights stream the rows of the matrix and end with them, those that hold inputs its columns;
    arrays that hold outputs sweep k for every patch they touch.
    """
    rows, columns = TILE_SIDES
    share = np.ones((len(Stationarity), len(m), len(rows)))
    share[Stationarity.WEIGHT] = m[:, None] / (np.ceil(m[:, None] / rows) * rows)
    share[Stationarity.INPUT] = n[:, None] / (np.ceil(n[:, None] / columns) * columns)
    return share


def _group_side(designs: DesignBatch, side: FloatArray) -> FloatArray:
    return np.maximum(side / np.sqrt(designs.array_groups), 1.0)
