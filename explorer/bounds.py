"""Boxes of designs, and bounds that no design inside can beat."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from explorer.constraints import chip_violations
from explorer.document import StudyError
from explorer.objectives import COMBINED, REGRET, Mixture, Objective, objective_values
from explorer.problem import Problem
from explorer.space import designs_at
from models.checks import BoolArray, FloatArray, IntArray
from models.evaluate import evaluate
from models.evaluation import ScenarioEvaluation, worst_violation
from models.hardware.area import die_area_mm2
from models.hardware.design import DesignBatch
from models.hardware.power import full_rate_power_w
from models.metrics import METRICS

SLACK = 1e-9
"""Relative slack by which bounds are rounded outward against floating point."""


@dataclass(frozen=True)
class Boxes:
    """
    Boxes of a space: per parameter the lowest and the highest index, and a window of inner alternatives.

    `low` and `high` have shape (n_boxes, n_parameters) and are equal for categories. `first` and `last` of shape
    (n_boxes,) are the window: alternatives of one degree and mix, neighbouring batches. `parent` is a tag that
    selections carry along.
    """

    low: IntArray
    high: IntArray
    first: IntArray
    last: IntArray
    parent: IntArray

    @property
    def n_boxes(self) -> int:
        """Number of boxes."""
        return len(self.low)

    def take(self, index: IntArray | BoolArray) -> Boxes:
        """The boxes at `index`."""
        return Boxes(*[getattr(self, field.name)[index] for field in dataclasses.fields(self)])


def point_boxes(points: IntArray, first: IntArray, last: IntArray) -> Boxes:
    """Boxes that hold one design each."""
    return Boxes(points, points, first, last, np.zeros(len(points), dtype=np.int64))


def join(parts: list[Boxes]) -> Boxes:
    """All boxes of several batches in order."""
    return Boxes(*[np.concatenate([getattr(p, f.name) for p in parts]) for f in dataclasses.fields(Boxes)])


def require_boundable(objectives: tuple[Objective, ...]) -> None:
    """
    Refuse, by name, an objective whose value on a box this model cannot bound.

    Raises
    ------
    StudyError
        With a pointer to the objective.
    """
    faults = [
        {"pointer": f"/objectives/{i}/metric", "detail": f"{o.metric} cannot be certified in this direction"}
        for i, o in enumerate(objectives)
        if not is_boundable(o)
    ]
    if faults:
        raise StudyError(faults)


def is_boundable(objective: Objective) -> bool:
    """Whether the two-batch evaluation of a box bounds the objective."""
    if objective.metric in (COMBINED, REGRET):
        return objective.maximize == (objective.metric == COMBINED)
    metric = METRICS[objective.metric]
    return metric.bounded and objective.maximize == (metric.direction == "maximize")


def idle_parameters(problem: Problem) -> tuple[str, ...]:
    """
    Parameters that no scenario of the study can use, so that the cheapest value is at least as good as any.

    A second tier is idle only beside the choice of none: of two tiers neither need be cheaper in every respect.
    """
    used = frozenset().union(*[each.used_links for each in problem.scenarios])
    links = [f"{link}_link" for link in ("scale_up", "scale_out") if link not in used]
    tiers = [p.name for p in problem.space.parameters if p.name == "second_tier" and "none" in p.values]
    return (*tiers, *links)


def root_boxes(problem: Problem) -> Boxes:
    """
    Return boxes that cover the space: one for every combination of categories, and of degree and mix.

    Parameters that nothing uses are fixed at their cheapest value, which loses no optimum since area, power and
    cost rise with them and nothing else changes.
    """
    space, idle = problem.space, idle_parameters(problem)
    ranges = []
    for p in space.parameters:
        if p.name in idle:
            ranges.append([0 if p.ordered else p.values.index("none")])
        else:
            ranges.append([0] if p.ordered else list(range(len(p.values))))
    grid = np.array(np.meshgrid(*ranges, indexing="ij")).reshape(len(ranges), -1).T
    high = grid.copy()
    for i, p in enumerate(space.parameters):
        if p.ordered and p.name not in idle:
            high[:, i] = len(p.values) - 1
    windows = alternative_windows(problem)
    n = len(grid)
    return Boxes(
        np.repeat(grid, len(windows), axis=0),
        np.repeat(high, len(windows), axis=0),
        np.tile(windows[:, 0], n),
        np.tile(windows[:, 1], n),
        np.zeros(n * len(windows), dtype=np.int64),
    )


def alternative_windows(problem: Problem) -> IntArray:
    """First and last alternative of each window of the scenario, shape (n_windows, 2); one window for a mixture."""
    return np.array([[0, 0]]) if len(problem.scenarios) > 1 else problem.scenarios[0].windows


@dataclass(frozen=True)
class BoxBounds:
    """
    Bounds of boxes, objectives as costs to minimise.

    `cost` of shape (n_boxes, n_objectives) is never above the cost of any feasible design and alternative inside,
    infinite where none can be feasible; `first` and `last` are the window of alternatives that still matter;
    `left_out` of shape (n_boxes,) is the least cost in the first objective of a feasible alternative outside it.
    """

    cost: FloatArray
    first: IntArray
    last: IntArray
    left_out: FloatArray


def bound_boxes(
    problem: Problem, boxes: Boxes, objectives: tuple[Objective, ...], threshold: float = np.inf
) -> BoxBounds:
    """
    Return bounds: times at the upper corner of every box, area, energy per access and cost at the lower.

    A point box gives the exact values of its design at its best alternative of the window. Alternatives whose
    bound in the first objective reaches `threshold` are left out of the returned windows.
    """
    cost = np.full((boxes.n_boxes, len(objectives)), np.inf)
    first, last, left_out = boxes.first.copy(), boxes.last.copy(), np.full(boxes.n_boxes, np.inf)
    width = boxes.last - boxes.first + 1
    sizes = np.maximum(1, 2 ** np.ceil(np.log2(width)).astype(np.int64))
    for size in np.unique(sizes):
        rows = np.flatnonzero(sizes == size)
        part = _bound_window(problem, boxes.take(rows), int(width[rows].max()), objectives, threshold)
        cost[rows], first[rows], last[rows], left_out[rows] = part.cost, part.first, part.last, part.left_out
    return BoxBounds(cost, first, last, left_out)


def corners(problem: Problem, boxes: Boxes) -> tuple[DesignBatch, DesignBatch]:
    """Performance batch (upper corners) and cost batch (lower corners) of boxes."""
    document = problem.document
    same = bool(np.array_equal(boxes.low, boxes.high))
    upper = designs_at(problem.space, boxes.high, node_nm=document.technology.node_nm, tdp_w=document.budget.tdp)
    if same:
        return upper, upper
    lower = designs_at(problem.space, boxes.low, node_nm=document.technology.node_nm, tdp_w=document.budget.tdp)
    return upper, lower


def alternative_costs(
    problem: Problem, points: IntArray, first: IntArray, last: IntArray, objectives: tuple[Objective, ...]
) -> tuple[FloatArray, IntArray]:
    """
    Return exact costs of designs at each alternative of their windows.

    Returns
    -------
    cost : array of shape (n_points, n_window, n_objectives)
        Infinite where infeasible.
    alternative : array of shape (n_points, n_window)
        Alternatives beyond a shorter window repeat its last.
    """
    width = int((last - first).max()) + 1
    boxes = point_boxes(points, first, last)
    costs, _, wanted = _window_costs(problem, boxes, width, objectives, 0.0)
    return costs, np.zeros((len(points), 1), dtype=np.int64) if wanted is None else wanted


def _bound_window(
    problem: Problem, boxes: Boxes, width: int, objectives: tuple[Objective, ...], threshold: float
) -> BoxBounds:
    """Bounds of boxes whose windows are at most `width` alternatives wide."""
    costs, _, wanted = _window_costs(problem, boxes, width, objectives, SLACK)
    bound = costs.min(axis=1)
    bound = _outward(bound)
    if wanted is None:
        return BoxBounds(bound, boxes.first, boxes.last, np.full(boxes.n_boxes, np.inf))
    matters = costs[:, :, 0] < threshold
    begin, end = np.argmax(matters, axis=1), width - 1 - np.argmax(matters[:, ::-1], axis=1)
    rows, places = np.arange(boxes.n_boxes), np.arange(width)
    outside = (places < begin[:, None]) | (places > end[:, None])
    left_out = np.where(outside, costs[:, :, 0], np.inf).min(axis=1)
    return BoxBounds(bound, wanted[rows, begin], wanted[rows, end], _outward(left_out))


def _outward(costs: FloatArray) -> FloatArray:
    """Bounds lowered by the slack; infinite ones stay."""
    return np.asarray(costs - SLACK * np.abs(np.where(np.isfinite(costs), costs, 0.0)))


def _window_costs(
    problem: Problem, boxes: Boxes, width: int, objectives: tuple[Objective, ...], slack: float
) -> tuple[FloatArray, BoolArray, IntArray | None]:
    """Costs of each alternative of each window, infinite where a limit is exceeded by more than `slack`."""
    performance, cheapest = corners(problem, boxes)
    several = len(problem.scenarios) > 1
    wanted = None if several else np.minimum(boxes.first[:, None] + np.arange(width), boxes.last[:, None])
    evaluations = evaluate(performance, cheapest, problem.scenarios, problem.tables, wanted)
    chip = chip_violations(problem.limits, cheapest, evaluations[0].figures)
    affordable = np.max(np.stack([v[:, 0] for v in chip.values()]), axis=0) <= slack
    if several:
        costs, possible = _mixture_costs(problem, evaluations, objectives, slack)
    else:
        possible = worst_violation(evaluations[0]) <= slack
        costs = np.stack([o.sign * objective_values(o, evaluations, problem.mixture) for o in objectives], axis=2)
    possible = possible & affordable[:, None]
    return np.where(possible[:, :, None], costs, np.inf), possible, wanted


def _mixture_costs(
    problem: Problem, evaluations: list[ScenarioEvaluation], objectives: tuple[Objective, ...], slack: float
) -> tuple[FloatArray, BoolArray]:
    """Costs of a mixture with each scenario at its own best alternative, shape (n_boxes, 1, n_objectives)."""
    possible = np.ones((evaluations[0].units_per_s.shape[0], 1), dtype=bool)
    best = []
    for each in evaluations:
        allowed = worst_violation(each) <= slack
        possible &= allowed.any(axis=1, keepdims=True)
        rate = np.where(allowed, each.units_per_s, 0.0).max(axis=1, keepdims=True)
        best.append(dataclasses.replace(each, units_per_s=np.maximum(rate, np.finfo(float).tiny)))
    mixture: Mixture = problem.mixture
    costs = np.stack([o.sign * objective_values(o, best, mixture) for o in objectives], axis=2)
    return np.where(possible[:, :, None], costs, np.inf), possible


def tighten(problem: Problem, boxes: Boxes) -> Boxes:
    """
    Return the boxes that the area budget leaves, each axis cut to the largest index it can afford.

    With all other parameters at their lowest, area rises along each axis, so everything beyond the cut is over
    budget whatever the rest is. Boxes whose lowest corner is over budget are left out.
    """
    if not boxes.n_boxes:
        return boxes
    limit = problem.document.budget.area * (1.0 + SLACK)
    boxes = boxes.take(_area_mm2(problem, boxes.low) <= limit)
    high = boxes.high.copy()
    for axis in (i for i, p in enumerate(problem.space.parameters) if p.ordered and len(p.values) > 1):
        rows = np.flatnonzero(boxes.high[:, axis] > boxes.low[:, axis])
        affordable, over = boxes.low[rows, axis], boxes.high[rows, axis] + 1
        while np.any(over - affordable > 1):
            middle = (affordable + over) // 2
            raised = boxes.low[rows].copy()
            raised[:, axis] = middle
            fits = _area_mm2(problem, raised) <= limit
            affordable, over = np.where(fits, middle, affordable), np.where(fits, over, middle)
        high[rows, axis] = affordable
    return dataclasses.replace(boxes, high=high)


def _area_mm2(problem: Problem, points: IntArray) -> FloatArray:
    document = problem.document
    designs = designs_at(problem.space, points, node_nm=document.technology.node_nm, tdp_w=document.budget.tdp)
    return die_area_mm2(designs)


def budget_spans(problem: Problem, boxes: Boxes, axes: IntArray) -> FloatArray:
    """
    Return what raising each axis from its low to its high index costs, others low, in budgets.

    Returns
    -------
    array of shape (n_boxes, n_axes)
        Share of the area budget plus share of the power cap. [1]
    """
    base = _budget_shares(problem, boxes.low)
    spans = np.empty((boxes.n_boxes, len(axes)))
    for column, axis in enumerate(axes):
        raised = boxes.low.copy()
        raised[:, axis] = boxes.high[:, axis]
        spans[:, column] = _budget_shares(problem, raised) - base
    return spans


def _budget_shares(problem: Problem, points: IntArray) -> FloatArray:
    document = problem.document
    designs = designs_at(problem.space, points, node_nm=document.technology.node_nm, tdp_w=document.budget.tdp)
    area = die_area_mm2(designs) / document.budget.area
    return np.asarray(area + full_rate_power_w(designs) / document.budget.tdp)
