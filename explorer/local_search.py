"""Exchanges of parameters around designs: the incumbents that bounds are held against."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass

import numpy as np

from explorer.bounds import alternative_costs, bound_boxes
from explorer.box_bounds import Below
from explorer.boxes import LINKS, alternative_windows, mixture_point_boxes, point_boxes, useful_formats, uses_link
from explorer.budget_cuts import tighten
from explorer.objectives import Objective
from explorer.problem import Problem
from explorer.space import Space
from models.checks import FloatArray, IntArray

MAX_POLISHES = 60
"""Exchanges after which a polish ends even if the last one still improved."""

TRADED_AGAINST_CORES = (
    "array_shape",
    "arrays_per_core",
    "clock",
    "l2",
    "memory_kind",
    "memory_stacks",
    "vector_lanes_per_core",
    "scratchpad_per_core",
    "noc_per_core",
)
"""Parameters that a wide exchange varies together with the number of cores."""

SHARED_BY_CORES = ("vector_lanes_per_core", "scratchpad_per_core", "noc_per_core")
"""Resources of each core that a chip cut into fewer cores has more of."""

NEAR_BATCHES = 1
"""Steps of the batch to either side that an exchange of parameters also tries."""

DIAGONAL = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Places on a box's diagonal at which an incumbent is sought."""


Operation = tuple[int, ...]
"""A point and the alternative it runs at."""


@dataclass
class Incumbent:
    """Best feasible design met so far: its cost in the objective, its point, and the alternative it is judged at."""

    cost: float = np.inf
    point: IntArray | None = None
    alternative: int = 0


def best_of(problem: Problem, objective: Objective, points: IntArray, first: IntArray, last: IntArray) -> Incumbent:
    """The design with the least exact cost at any alternative of its window."""
    return best_of_each(problem, objective, points, first, last, np.zeros(len(points), dtype=np.int64), 1)[0]


def best_of_each(
    problem: Problem,
    objective: Objective,
    points: IntArray,
    first: IntArray,
    last: IntArray,
    owner: IntArray,
    n_owners: int,
    limit: float = np.inf,
) -> list[Incumbent]:
    """
    The design with the least exact cost of each owner, all judged in one go.

    Parameters
    ----------
    points : array of shape (n_points, n_parameters)
    first, last : arrays of shape (n_points,)
        Window of alternatives at which a point is judged.
    owner : array of shape (n_points,)
        Rising, below `n_owners`.
    limit : float
        Cost above which a design need not be judged to the end.
    """
    found = [Incumbent() for _ in range(n_owners)]
    affordable = tighten(problem, dataclasses.replace(point_boxes(points, first, last), parent=owner))
    points, first, last, owner = affordable.low, affordable.first, affordable.last, affordable.parent
    if len(problem.scenarios) > 1 and len(points):
        boxes = mixture_point_boxes(problem, points)
        bounds = bound_boxes(problem, boxes, (objective,), Below(np.nextafter(limit, np.inf)))
        rows = _first_of_each(np.where(bounds.matters, bounds.cost[:, 0], np.inf), owner)
        rows = rows[bounds.matters[rows]]
        points, first, last, owner = points[rows], first[rows], last[rows], owner[rows]
    if not len(points):
        return found
    cost, alternative = _best_alternatives(problem, objective, points, first, last)
    for row in _first_of_each(cost, owner):
        if np.isfinite(cost[row]):
            found[owner[row]] = Incumbent(float(cost[row]), np.array(points[row]), int(alternative[row]))
    return found


def _first_of_each(cost: FloatArray, owner: IntArray) -> IntArray:
    """Row of the least cost of each owner."""
    order = np.lexsort([cost, owner])
    return np.asarray(order[np.unique(owner[order], return_index=True)[1]])


def _best_alternatives(
    problem: Problem, objective: Objective, points: IntArray, first: IntArray, last: IntArray
) -> tuple[FloatArray, IntArray]:
    """Least cost of each point over its window, and the alternative that has it, shape (n_points,) each."""
    costs, alternatives = alternative_costs(problem, points, first, last, (objective,))
    best = np.argmin(costs[:, :, 0], axis=1)
    rows = np.arange(len(points))
    return costs[rows, best, 0], alternatives[rows, np.minimum(best, alternatives.shape[1] - 1)]


def polished(
    problem: Problem, objective: Objective, starts: list[Incumbent], known: set[Operation] | None = None
) -> Incumbent:
    """
    The best design that exchanges of parameters around several starts lead to.

    Once nothing improves the best one, exchanges start again from it beside every plan, until that improves nothing.
    A search that meets the way of an earlier one would end as that did and is left; nothing is found where all are.

    Parameters
    ----------
    known : set of operations, optional
        On the ways of earlier searches in the same objective; those of this one are added.
    """
    known = set() if known is None else known
    best, found = Incumbent(), _exchanged(problem, objective, starts, known)
    while found.cost < best.cost:
        best = found
        found = _exchanged(problem, objective, _beside_plans(problem, objective, best), known)
    return best


def _exchanged(problem: Problem, objective: Objective, starts: list[Incumbent], known: set[Operation]) -> Incumbent:
    """
    Exchange one parameter of every start, or raise one and lower another, until none improves; the best that results.

    A start that no exchange improves tries the wider ones. Starts that meet go on as one, and after every exchange the
    worse half of them is given up.
    """
    best = Incumbent()
    begun = [each for each in starts if each.point is not None]
    active = {_operation(each): (each, 0, [_operation(each)]) for each in begun if _operation(each) not in known}
    for _ in range(MAX_POLISHES):
        if not active:
            break
        searches = list(active.values())
        near = [(each, _near(problem, _point(each), stage)) for each, stage, _ in searches]
        active = {}
        for (each, stage, way), new in zip(searches, _best_near(problem, objective, near), strict=True):
            if new.cost < each.cost and _operation(new) not in known:
                active.setdefault(_operation(new), (new, 0, [*way, _operation(new)]))
            elif new.cost < each.cost:
                known.update(way)
            elif stage + 1 < len(EXCHANGES):
                active.setdefault(_operation(each), (each, stage + 1, way))
            else:
                known.update(way)
                best = min(best, each, key=lambda one: one.cost)
        kept = sorted(active.items(), key=lambda item: item[1][0].cost)[: (len(searches) + 1) // 2]
        active = dict(kept)
    return min([best, *[each for each, _, _ in active.values()]], key=lambda one: one.cost)


def exchanges(problem: Problem, point: IntArray) -> IntArray:
    """`point` and what all exchanges around it lead to, shape (n_points, n_parameters)."""
    return np.concatenate([_near(problem, point, stage) for stage in range(len(EXCHANGES))])


def _near(problem: Problem, point: IntArray, stage: int) -> IntArray:
    """Points of an exchange; of one scenario those with the same formats, which change with the mix of a plan alone."""
    points = EXCHANGES[stage](problem.space, point)
    formats = [p.name for p in problem.space.parameters].index("native_formats")
    return points if len(problem.scenarios) > 1 else points[points[:, formats] == point[formats]]


def _point(incumbent: Incumbent) -> IntArray:
    assert incumbent.point is not None
    return incumbent.point


def _operation(incumbent: Incumbent) -> Operation:
    return (*_point(incumbent).tolist(), incumbent.alternative)


def _best_near(problem: Problem, objective: Objective, near: list[tuple[Incumbent, IntArray]]) -> list[Incumbent]:
    """The best of the points near each incumbent, at batches near its own."""
    if not near:
        return []
    whole = alternative_windows(problem)
    at = np.array([each.alternative for each, _ in near])
    own = whole[np.searchsorted(whole[:, 0], at, side="right") - 1]
    close = np.clip(at[:, None] + np.array([-NEAR_BATCHES, NEAR_BATCHES]), own[:, :1], own[:, 1:])
    owner = np.repeat(np.arange(len(near)), [len(points) for _, points in near])
    points = np.concatenate([points for _, points in near])
    first, last = close[owner].T
    limit = max(each.cost for each, _ in near)
    return best_of_each(problem, objective, points, first, last, owner, len(near), limit)


def _beside_plans(problem: Problem, objective: Objective, settled: Incumbent) -> list[Incumbent]:
    """The best design beside every other plan, changed in what a plan needs to fit."""
    windows = alternative_windows(problem)
    if len(windows) == 1:
        return []
    points, owner = fitted_to_plans(problem, _point(settled), windows)
    first, last = windows[owner].T
    found = best_of_each(problem, objective, points, first, last, owner, len(windows))
    own = int(np.searchsorted(windows[:, 0], settled.alternative, side="right")) - 1
    return [each for i, each in enumerate(found) if i != own]


def fitted_to_plans(problem: Problem, point: IntArray, windows: IntArray) -> tuple[IntArray, IntArray]:
    """
    `point` beside every plan: any number of memory stacks, formats that its mix uses, links it has or lacks.

    Returns
    -------
    points : array of shape (n_points, n_parameters)
    window : array of shape (n_points,)
        Position of the plan's window.
    """
    names = [p.name for p in problem.space.parameters]
    axes = [names.index(name) for name in ("memory_stacks", "native_formats", *LINKS.values())]
    formats = useful_formats(problem, windows)
    links = [(names.index(parameter), uses_link(problem, windows, link)) for link, parameter in LINKS.items()]
    points, window = [], []
    for i in range(len(windows)):
        tried = [
            [0, int(point[axis])] if used[i] and point[axis] else range(problem.space.sizes[axis] if used[i] else 1)
            for axis, used in links
        ]
        stacks = range(problem.space.sizes[axes[0]])
        for values in itertools.product(stacks, np.flatnonzero(formats[i]).tolist(), *tried):
            points.append(_moved(point, dict(zip(axes, values, strict=True))))
            window.append(i)
    return np.array(points), np.array(window)


def neighbours(space: Space, point: IntArray) -> IntArray:
    """
    Return points near `point`: one parameter at any other value, or one raised and another lowered a step.

    Returns
    -------
    array of shape (n_points, n_parameters)
        All inside the space, `point` itself first.
    """
    return np.concatenate([single_exchanges(space, point), paired_exchanges(space, point)[1:]])


def single_exchanges(space: Space, point: IntArray) -> IntArray:
    """`point`, and those with one parameter at another value."""
    others = [
        _moved(point, {i: value}) for i, size in enumerate(space.sizes) for value in range(size) if value != point[i]
    ]
    return np.array([point, *others])


def paired_exchanges(space: Space, point: IntArray) -> IntArray:
    """`point`, and those with one ordered parameter raised a step and another lowered."""
    sizes, ordered = space.sizes, [i for i, p in enumerate(space.parameters) if p.ordered]
    pairs = [
        _moved(point, {i: point[i] + 1, j: point[j] - 1})
        for i in ordered
        for j in ordered
        if i != j and point[i] + 1 < sizes[i] and point[j] > 0
    ]
    return np.array([point, *pairs])


def wide_neighbours(space: Space, point: IntArray) -> IntArray:
    """Points with another number of cores and another value of one parameter that trades against it."""
    names = [p.name for p in space.parameters]
    cores = names.index("n_cores")
    points = [
        _moved(point, {cores: n, names.index(name): value})
        for name in TRADED_AGAINST_CORES
        for value in range(space.sizes[names.index(name)])
        for n in range(space.sizes[cores])
    ]
    return np.array(points)


def recut_exchanges(space: Space, point: IntArray) -> IntArray:
    """
    `point`, and those that cut the same chip into other cores.

    Every array shape and number of arrays beside numbers of cores that keep from half to twice the multiply-accumulate
    units; what each core has of lanes, scratchpad and network follows so that the chip has as much as before.
    """
    axis = {p.name: i for i, p in enumerate(space.parameters)}
    shape, arrays, cores = (
        np.asarray(space.parameters[axis[name]].values) for name in ("array_shape", "arrays_per_core", "n_cores")
    )
    macs = shape.prod(axis=1)[:, None, None] * arrays[:, None] * cores
    own = macs[point[axis["array_shape"]], point[axis["arrays_per_core"]], point[axis["n_cores"]]]
    chosen = np.stack(np.nonzero((macs >= own / 2.0) & (macs <= own * 2.0)), axis=1)
    points = np.repeat(point[None, :], len(chosen) + 1, axis=0)
    points[1:, [axis["array_shape"], axis["arrays_per_core"], axis["n_cores"]]] = chosen
    share = cores[point[axis["n_cores"]]] / cores[points[:, axis["n_cores"]]]
    for name in SHARED_BY_CORES:
        values = np.asarray(space.parameters[axis[name]].values, dtype=np.float64)
        wanted = values[point[axis[name]]] * share
        points[:, axis[name]] = np.argmin(np.abs(np.log(values[None, :] / wanted[:, None])), axis=1)
    return points


def _moved(point: IntArray, changes: dict[int, int]) -> IntArray:
    moved = point.copy()
    for axis, value in changes.items():
        moved[axis] = value
    return moved


EXCHANGES = (single_exchanges, paired_exchanges, recut_exchanges, wide_neighbours)
"""What a polish tries one after the other."""
