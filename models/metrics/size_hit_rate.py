"""Whether a design is good at the sizes that the work has: share of the work it hits, and its typical rate."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from models.checks import FloatArray, IntArray
from models.hardware.design import DesignBatch, peak_flop_per_s, take
from models.hardware.rates import OPERAND_BYTES, RATE_CLASSES, class_code, rate_ratios
from models.metrics.phases import OperatorWork, Phase
from models.operators.activity import TermActivity
from models.operators.factor_tables import FactorTables
from models.operators.step import StepProgram, Term, run_step, step_program, term

SIDES = 2.0 ** np.arange(4, 14.5, 0.5)
"""Sides of the products on which designs are tried, 16 to 16,384 in steps of the square root of 2."""

ROWS = 2.0 ** np.arange(0, 15)
"""Rows of the products on which designs are tried beside the square ones: thin products are bound by memory."""

NEAR_BEST_FRACTION = 0.8
"""Share of its best from which on a design hits a size."""

GOOD_FRACTION = 0.6
"""Share of its peak that the best must reach: a uniformly poor design hits nothing."""

COLD_COPIES = 1e3
"""Operands pass once: as many others come before they are met again, as the weights of other layers do."""

OUTPUT_BYTES = 2.0
RESOURCES = ("compute", "binding")


@dataclass(frozen=True)
class Products:
    """
    The matrix products of a unit of work, arrays of shape (n_designs, n_products).

    A *product* is an operator of one phase. `utilization` is keyed by `RESOURCES`: the time that the arrays need at
    their peak over the time taken, and the time at the roofline (the longer of work and least traffic) over it.
    """

    names: tuple[str, ...]
    m: FloatArray
    n: FloatArray
    k: FloatArray
    rate_class: IntArray
    """Codes of `RATE_CLASSES` that the operands have."""
    weight_s: FloatArray
    """Time at the roofline in a unit of work."""
    utilization: dict[str, FloatArray]


@dataclass(frozen=True)
class SizeFit:
    """How well designs fit the sizes of their work, arrays of shape (n_designs,) by `RESOURCES` [1]."""

    hit_rate: dict[str, FloatArray]
    typical_to_best: dict[str, FloatArray]
    best: dict[str, FloatArray]
    """Best share of the peak on the grid, at the format of the typical product."""
    typical: IntArray
    """Which product is the typical one."""


def products_of(phases: Sequence[Phase], designs: DesignBatch) -> Products:
    """
    Return the matrix products of the phases of a unit of work: linear layers, experts and convolutions.

    Attention is not among them: its products have no size of their own beside the length of a context.
    """
    found = [(phase, each) for phase in phases for each in phase.operators if each.kind in _SIZES]
    shape = (designs.n_designs, len(found))
    columns = {name: np.zeros(shape) for name in ("m", "n", "k", "rate_class", "weight_s", *RESOURCES)}
    for i, (phase, each) in enumerate(found):
        m, n, k, once = _SIZES[each.kind](each)
        bounds_s = roofline_s(each.activity, designs, once)
        values = (m, n, k, each.columns["rate_class"], bounds_s["binding"] * phase.runs_per_unit * phase.n_chips)
        for name, value in zip(("m", "n", "k", "rate_class", "weight_s"), values, strict=True):
            columns[name][:, i] = value[:, 0]
        for name in RESOURCES:
            columns[name][:, i] = _ratio(bounds_s[name], each.activity.time_s)[:, 0]
    return Products(
        tuple(f"{phase.name}.{each.name}" for phase, each in found),
        columns["m"], columns["n"], columns["k"], columns["rate_class"].astype(np.int64), columns["weight_s"],
        {name: columns[name] for name in RESOURCES},
    )  # fmt: skip


def roofline_s(activity: TermActivity, designs: DesignBatch, once_bytes: FloatArray) -> dict[str, FloatArray]:
    """Time of the arrays at their peak, and the longer of it and of the traffic at its bandwidth [s]."""
    peak, rates = peak_flop_per_s(designs), rate_ratios(designs)
    work_s = np.zeros((1, 1))
    for name, macs in activity.macs.items():
        rate = peak * rates[:, RATE_CLASSES.index(name)]  # 0 on designs that run the format as another one
        work_s = work_s + 2.0 * macs / np.where(rate > 0, rate, np.inf)[:, None]
    traffic_s = np.minimum(activity.memory_s, once_bytes / designs.memory_bandwidth_bytes_per_s[:, None])
    return {"compute": np.asarray(work_s), "binding": np.maximum(work_s, traffic_s)}


def size_fit(products: Products, designs: DesignBatch, tables: FactorTables) -> SizeFit:
    """
    Return hit rates and typical rates, weighted by the time of each product at the roofline.

    A product is hit where the design reaches `NEAR_BEST_FRACTION` of the best that it reaches anywhere on the grid in
    the same format, and that best is `GOOD_FRACTION` of the peak. The typical product is the median one by its
    m n k.

    Parameters
    ----------
    products : Products
        Of n_designs designs.
    designs : DesignBatch
    tables : FactorTables
        Shared rows; the grid of a design is worked out once.
    """
    best = best_on_grid(designs, tables)
    weight = products.weight_s / np.maximum(products.weight_s.sum(axis=1, keepdims=True), 1e-300)
    typical, rows = typical_product(products), np.arange(designs.n_designs)
    hit, ratio, of_typical = {}, {}, {}
    for name in RESOURCES:
        own = np.take_along_axis(best[name], products.rate_class, axis=1)
        used = products.utilization[name]
        hits = (used >= NEAR_BEST_FRACTION * own) & (own >= GOOD_FRACTION)
        hit[name] = np.minimum((weight * hits).sum(axis=1), 1.0)
        of_typical[name] = own[rows, typical]
        ratio[name] = used[rows, typical] / of_typical[name]
    return SizeFit(hit, ratio, of_typical, typical)


def typical_product(products: Products) -> IntArray:
    """Position of the weighted median of the products by m n k, shape (n_designs,)."""
    order = np.argsort(products.m * products.n * products.k, axis=1, kind="stable")
    summed = np.cumsum(np.take_along_axis(products.weight_s, order, axis=1), axis=1)
    place = (summed < 0.5 * summed[:, -1:]).sum(axis=1)
    return np.asarray(np.take_along_axis(order, np.minimum(place, order.shape[1] - 1)[:, None], axis=1)[:, 0])


def best_on_grid(designs: DesignBatch, tables: FactorTables) -> dict[str, FloatArray]:
    """Best share of the peak of each format on the fixed grid, by `RESOURCES`, shape (n_designs, n_classes) [1]."""
    program, n_sizes = _grid()
    used = grid_utilization(program, designs, tables)
    return {name: values.reshape(designs.n_designs, -1, n_sizes).max(axis=2) for name, values in used.items()}


def square_curve(designs: DesignBatch, code: int, tables: FactorTables) -> dict[str, FloatArray]:
    """Share of the peak on square products of `SIDES` in one format, by `RESOURCES`, shape (n_designs, n_sides) [1]."""
    program, n_sizes = _grid()
    first = code * n_sizes
    used = grid_utilization(program, designs, tables)
    return {name: values[:, first : first + len(SIDES)] for name, values in used.items()}


def row_curve(work: OperatorWork, index: int, designs: DesignBatch, tables: FactorTables) -> dict[str, FloatArray]:
    """Share of the peak of design `index` on one of its own products with `ROWS` rows, shape (1, n_rows) [1]."""
    sizes: dict[str, Any] = {name: float(values[index, 0]) for name, values in work.columns.items()}
    if work.kind != "gemm":
        raise ValueError(f"only plain products have a curve over their rows, got {work.kind}")
    swept = term("rows", "gemm", work.op, 1.0, **(sizes | {"m": ROWS}))
    return grid_utilization(step_program([swept], overhead_s=0.0), take(designs, [index]), tables)


def grid_utilization(program: StepProgram, designs: DesignBatch, tables: FactorTables) -> dict[str, FloatArray]:
    """Share of the peak of a program of one product, by `RESOURCES`, shape (n_designs, n_alternatives) [1]."""
    activity = run_step(program, designs, tables, keep_terms=True)
    (only,) = activity.terms.values()
    each = program.terms[0]
    columns = {name: values[each.index][None, :] for name, values in each.columns.items()}
    bounds_s = roofline_s(only, designs, _operand_bytes(columns))
    return {name: _ratio(bounds_s[name], only.time_s) for name in RESOURCES}


def product_utilization(
    designs: DesignBatch, m: ArrayLike, n: ArrayLike, k: ArrayLike, rate_class: str, tables: FactorTables
) -> dict[str, FloatArray]:
    """
    Return the share of the peak on products whose operands pass once, by `RESOURCES`, shape (n_designs, n_shapes) [1].

    Parameters
    ----------
    designs : DesignBatch
        Of n_designs designs.
    m, n, k : arrays that broadcast to (n_shapes,)
        Sizes. [1]
    rate_class : str
        Format of both operands, a name of `RATE_CLASSES`.
    tables : FactorTables
        Shared rows.

    Examples
    --------
    >>> from models.hardware.design import reference_design
    >>> used = product_utilization(reference_design(), 8192, 8192, 8192, "bf16", FactorTables())
    >>> bool(used["compute"][0, 0] > 0.5)
    True
    """
    code = class_code(rate_class)
    swept = _products_term(m, n, k, np.full(np.broadcast(m, n, k).size, float(code)))
    return grid_utilization(step_program([swept], overhead_s=0.0), designs, tables)


def _products_term(m: ArrayLike, n: ArrayLike, k: ArrayLike, classes: FloatArray) -> Term:
    """Products of operands in some classes, which come from main memory."""
    element_bytes = OPERAND_BYTES[classes.astype(np.int64)]
    sizes = {
        name: np.broadcast_to(np.asarray(v, dtype=np.float64), classes.shape)
        for name, v in zip("mnk", (m, n, k), strict=True)
    }
    return term(
        "grid", "gemm", "square", 1.0, **sizes, weight_bytes=element_bytes, input_bytes=element_bytes,
        output_bytes=OUTPUT_BYTES, rate_class=classes, dequant_ops=0.0, instances=1.0, copies=COLD_COPIES,
        useful_fraction=1.0,
    )  # fmt: skip


@functools.cache
def _grid() -> tuple[StepProgram, int]:
    """Square products and thin ones in every format, and how many there are of each format."""
    thin = [side for side in SIDES if side >= ROWS[4]]
    rows = np.concatenate([SIDES, np.tile(ROWS, len(thin))])
    sides = np.concatenate([SIDES, np.repeat(thin, len(ROWS))])
    classes = np.repeat(np.arange(len(RATE_CLASSES)), len(rows))
    m, n = (np.tile(sizes, len(RATE_CLASSES)) for sizes in (rows, sides))
    swept = _products_term(m, n, n, classes.astype(np.float64))
    return step_program([swept], overhead_s=0.0, blocks=classes), len(rows)


def _operand_bytes(columns: dict[str, FloatArray]) -> FloatArray:
    """Both operands and the result, each once [B]."""
    m, n, k = (columns[name] for name in "mnk")
    once = n * k * columns["weight_bytes"] + m * k * columns["input_bytes"] + m * n * columns["output_bytes"]
    return np.asarray(once * columns["instances"])


def _gemm_sizes(work: OperatorWork) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """m, n, k of a product, and the bytes of its operands in all of its repetitions."""
    c = dict(work.columns)
    return c["m"], c["n"], c["k"], _operand_bytes(c) * work.count


def _expert_sizes(work: OperatorWork) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """m, n, k of the first product of one expert, whose least traffic the term knows."""
    c = work.columns
    halves = 2.0 if work.op == "gated" else 1.0
    rows = c["tokens"] * c["top_k"] / c["touched_experts"]
    return rows, halves * c["inter"], c["hidden"], np.full(rows.shape, np.inf)


_SIZES = {"gemm": _gemm_sizes, "experts": _expert_sizes}


def _ratio(part: FloatArray, whole: FloatArray) -> FloatArray:
    part, whole = np.broadcast_arrays(part, whole)
    return np.divide(part, whole, out=np.zeros(whole.shape), where=whole > 0)
