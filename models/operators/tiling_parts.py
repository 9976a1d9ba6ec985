"""The tiling that a GEMM takes on a core, and where its cycles go: work, edges, waiting for operands, fill, waves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from models.checks import BoolArray, FloatArray, IntArray
from models.hardware.design import DesignBatch, Stationarity, macs_per_cycle_per_core, replace
from models.operators.axes import per_design
from models.operators.gemm import rate_loss
from models.operators.gemm_constants import GemmConstants, gemm_constants
from models.operators.tiling import (
    ACCUMULATOR_BYTES,
    SPLITS,
    TILE_SIDES,
    TileCost,
    k_per_step,
    tile_cost,
    tile_counts,
    tile_fits,
)

PARTS = (
    "work",
    "edges",
    "rate_loss",
    "operand_wait",
    "staging",
    "fill_drain",
    "group_coordination",
    "tile_start",
    "waves",
    "split_k",
)
"""
Parts of the cycles of a GEMM.

work: the products at the rate of the arrays; edges: padding of m, n and k to tiles and arrays, and folds that hold
weights or inputs; rate_loss: the share of the rate that no kernel reaches; operand_wait: waiting for the port;
staging: slices of k that dot-product arrays synchronise; fill_drain: operands on their way into and results out of the
arrays; group_coordination: groups inside an array; tile_start: what a tile costs whatever its size; waves: cores that
wait for the last tiles; split_k: partial sums written, read and added up.
"""


@dataclass(frozen=True)
class TilingParts:
    """
    The fastest tiling of each GEMM on each design, arrays of shape (n_designs, n_shapes).

    The cycles of the `PARTS` add up to those of `onchip_cycles`. `operand_bytes` cross from the shared buffer to the
    cores, `partial_bytes` are the partial sums of a split k, written and read again.
    """

    rows: FloatArray
    columns: FloatArray
    split: FloatArray
    cycles: Mapping[str, FloatArray]
    operand_bytes: FloatArray
    partial_bytes: FloatArray

    @property
    def total_cycles(self) -> FloatArray:
        """All parts together [1]."""
        return np.asarray(sum(self.cycles.values(), np.zeros(self.rows.shape)))


def tiling_parts(
    designs: DesignBatch,
    m: ArrayLike,
    n: ArrayLike,
    k: ArrayLike,
    operand_bytes: ArrayLike,
    rate_ratio: ArrayLike,
    instances: ArrayLike = 1.0,
    constants: GemmConstants | None = None,
) -> TilingParts:
    """
    Return how each GEMM is tiled and where its cycles go.

    The same choice as `onchip_cycles`, tiling by tiling and so slower, for reports on some designs. Equal GEMMs of one
    kernel run one after the other on all cores, or each on a core of its own: what is faster.

    Parameters
    ----------
    designs : DesignBatch
        Of n_designs entries of one organisation each.
    m, n, k, instances : arrays that broadcast to (n_designs, n_shapes)
        Sizes, and equal GEMMs of one kernel. [1]
    operand_bytes : array that broadcasts to (n_designs, n_shapes)
        Bytes of an operand as it reaches the core. [B]
    rate_ratio : array that broadcasts to (n_designs, n_shapes)
        Speed of the format over bf16. [1]
    constants : GemmConstants, optional
        The global set where left out.

    Examples
    --------
    >>> from models.hardware.design import reference_design
    >>> parts = tiling_parts(reference_design(), 4096, 4096, 4096, 2.0, 1.0)
    >>> bool(parts.cycles["work"][0, 0] > 0.5 * parts.total_cycles[0, 0])
    True
    """
    used = constants or gemm_constants()
    arrays = [np.atleast_2d(np.asarray(v, dtype=np.float64)) for v in (m, n, k, operand_bytes, rate_ratio, instances)]
    sizes = np.broadcast_arrays(*arrays, np.zeros((designs.n_designs, 1)))[:-1]
    many = sizes[-1]
    together = _scaled(_parts_once(designs, sizes[:-1], used), many)
    if not (many > 1).any():
        return together
    single = _parts_once(replace(designs, n_cores=np.ones(designs.n_designs)), sizes[:-1], used)
    alone = _scaled(single, np.ceil(many / designs.n_cores[:, None]), many)
    return _choose((many > 1) & (alone.total_cycles < together.total_cycles), alone, together)


def _parts_once(designs: DesignBatch, sizes: Sequence[FloatArray], c: GemmConstants) -> TilingParts:
    """The best tiling of one GEMM each."""
    m, n, k, element_bytes, rate = sizes
    candidates = _Candidates(designs, m, n, k, element_bytes, rate, c)
    total = candidates.total()
    best = total.reshape(*m.shape, -1).argmin(axis=-1)
    return candidates.parts(best)


class _Candidates:
    """Every tiling of every GEMM, arrays of shape (n_designs, n_shapes, n_splits, n_tiles)."""

    def __init__(
        self,
        designs: DesignBatch,
        m: FloatArray,
        n: FloatArray,
        k: FloatArray,
        element_bytes: FloatArray,
        rate: FloatArray,
        c: GemmConstants,
    ) -> None:
        self.designs, self.c, self.outputs = designs, c, m * n
        cost, old = tile_cost(designs, c), designs.bulk_async_copy == 0
        self.parts_of_k = np.array(SPLITS, dtype=np.float64)[:, None]
        depth = np.ceil(k[..., None, None] / self.parts_of_k / c.k_tile_elements) * c.k_tile_elements
        loss = rate_loss(rate, c) / c.array_efficiency_fraction
        steps = np.ceil(depth / (k_per_step(designs)[:, None] * rate)[..., None, None])
        step = _step_cycles(designs, cost, m, n)
        port = (designs.noc_bytes_per_cycle_per_core * c.operand_port_ratio)[:, None, None, None]
        self.operands_bytes = depth * element_bytes[..., None, None] * TILE_SIDES.sum(axis=0)
        delivery = self.operands_bytes / port
        slices = depth * (c.least_cycles_per_k * (1.0 - 1.0 / designs.array_k))[:, None, None, None]
        exposed = np.where(old, 1.0, c.operand_exposed_fraction)[:, None, None, None]
        self.stream = steps * step
        self.slow = self.stream * (loss[..., None, None] - 1.0)
        fed = np.maximum(self.stream + self.slow + exposed * delivery, delivery)
        inner = np.maximum(fed, slices)
        self.wait, self.staging = fed - self.stream - self.slow, inner - fed
        self.fixed = cost.fixed_cycles[:, None, None, :]
        self.one = inner + np.where(tile_fits(designs)[:, None, None, :], self.fixed, np.inf)
        self.tiles = tile_counts(m, n, k)
        self.per_core = self.tiles / designs.n_cores[:, None, None, None]
        rounding = np.where(old, c.wave_rounding_fraction_without_bulk_copy, c.wave_rounding_fraction)
        share = rounding[:, None, None, None]
        tried = np.isfinite(self.per_core)
        whole = np.ceil(np.where(tried, self.per_core, 1.0))
        self.waves = np.where(tried, np.maximum(share * whole + (1.0 - share) * self.per_core, 1.0), np.inf)
        self.split = self._split_cycles(port, old)
        self.useful = m * n * k / (macs_per_cycle_per_core(designs) * designs.n_cores)[:, None] / rate

    def _split_cycles(self, port: FloatArray, old: FloatArray) -> FloatArray:
        c = self.c
        overhead = np.where(old, c.tile_cycles_without_bulk_copy, c.tile_cycles)[:, None, None, None]
        traffic = (self.parts_of_k + 1.0) * c.split_cost_ratio * ACCUMULATOR_BYTES * self.outputs[..., None, None]
        moved = traffic / (port * self.designs.n_cores[:, None, None, None])
        return np.where(self.parts_of_k > 1, moved + c.split_cost_ratio * overhead, 0.0)

    def total(self) -> FloatArray:
        """Cycles of each tiling."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.one * self.waves + self.split)

    def parts(self, best: IntArray) -> TilingParts:
        """The tilings at `best`, of shape (n_designs, n_shapes), an index into splits x tiles."""
        shape = (*best.shape, len(SPLITS), TILE_SIDES.shape[1])

        def pick(values: FloatArray) -> FloatArray:
            flat = np.broadcast_to(values, shape).reshape(*best.shape, -1)
            return np.take_along_axis(flat, best[..., None], axis=-1)[..., 0]

        per_core, fixed = pick(self.per_core), pick(self.fixed)
        coordination = self.c.group_coordination_cycles * np.log2(self.designs.array_groups)[:, None]
        old = (self.designs.bulk_async_copy == 0)[:, None]
        start = np.where(old, self.c.tile_cycles_without_bulk_copy, self.c.tile_cycles)
        cycles = {
            "work": self.useful,
            "edges": per_core * pick(self.stream) - self.useful,
            "rate_loss": per_core * pick(self.slow),
            "operand_wait": per_core * pick(self.wait),
            "staging": per_core * pick(self.staging),
            "fill_drain": per_core * (fixed - start - coordination),
            "group_coordination": per_core * coordination,
            "tile_start": per_core * start,
            "waves": (pick(self.waves) - per_core) * pick(self.one),
            "split_k": pick(self.split),
        }
        parts = pick(self.parts_of_k)
        return TilingParts(
            rows=pick(TILE_SIDES[0]),
            columns=pick(TILE_SIDES[1]),
            split=parts,
            cycles=cycles,
            operand_bytes=pick(self.tiles) * pick(self.operands_bytes),
            partial_bytes=np.where(parts > 1, (parts + 1.0) * ACCUMULATOR_BYTES * self.outputs, 0.0),
        )


def _step_cycles(designs: DesignBatch, cost: TileCost, m: FloatArray, n: FloatArray) -> FloatArray:
    """Cycles of a step of k by tile, (n_designs, n_shapes, 1, n_tiles): arrays that hold operands end with the rows."""
    rows, columns = TILE_SIDES
    m, n = m[..., None, None], n[..., None, None]
    kept = per_design(designs.stationarity, m)
    share = np.select(
        [kept == Stationarity.WEIGHT, kept == Stationarity.INPUT],
        [m / (np.ceil(m / rows) * rows), n / (np.ceil(n / columns) * columns)],
        1.0,
    )
    streamed = cost.cycles_per_k_step[:, None, None, :] * share
    return np.asarray(np.maximum(streamed, cost.least_cycles_per_k_step[:, None, None, :]))


def _scaled(parts: TilingParts, rounds: FloatArray, instances: FloatArray | None = None) -> TilingParts:
    """The cycles of `rounds` GEMMs one after the other, and the bytes of all `instances`."""
    every = rounds if instances is None else instances
    return TilingParts(
        parts.rows, parts.columns, parts.split, {name: cycles * rounds for name, cycles in parts.cycles.items()},
        parts.operand_bytes * every, parts.partial_bytes * every,
    )  # fmt: skip


def _choose(condition: BoolArray, first: TilingParts, second: TilingParts) -> TilingParts:
    def pick(name: str) -> FloatArray:
        return np.asarray(np.where(condition, getattr(first, name), getattr(second, name)))

    return TilingParts(
        pick("rows"), pick("columns"), pick("split"),
        {name: np.where(condition, first.cycles[name], second.cycles[name]) for name in PARTS},
        pick("operand_bytes"), pick("partial_bytes"),
    )  # fmt: skip
