"""Bounds of boxes that no design inside can beat."""

from __future__ import annotations

import dataclasses

import numpy as np

from explorer.box_bounds import EVERYTHING, SLACK, BoxBounds, Rival, outward
from explorer.boxes import Boxes, point_boxes
from explorer.constraints import chip_violations
from explorer.corners import corners
from explorer.document import StudyError
from explorer.mixture_bounds import bound_mixture
from explorer.objectives import COMBINED, REGRET, Mixture, Objective, objective_values
from explorer.problem import Problem
from explorer.shared_work import place_of, shared_by_place
from models.checks import BoolArray, FloatArray, IntArray
from models.evaluate import evaluate
from models.evaluation import ScenarioEvaluation, worst_violation
from models.metrics import METRICS
from models.serving.steady import CompiledServing

WINDOW_STEPS = (2, 8)
"""Widths of windows up to which boxes are bounded together; wider ones are one further group."""


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


def bound_boxes(
    problem: Problem,
    boxes: Boxes,
    objectives: tuple[Objective, ...],
    rival: Rival = EVERYTHING,
    *,
    prompts: bool = True,
) -> BoxBounds:
    """
    Return bounds: times at the upper corner of every box, area, energy per access and cost at the lower.

    A point box gives the exact values of its design at its best alternative of the window. Alternatives that no longer
    matter beside `rival` are left out of the bound and of the returned windows, save where none matters. Without
    `prompts` those computed alone are left out where only their latency follows from them.
    """
    place = place_of(problem, boxes.high)
    parts, order = shared_by_place(problem, _bound_boxes, (boxes,), (objectives, rival, prompts), place)
    return BoxBounds(
        *[np.concatenate([getattr(p, f.name) for p in parts])[order] for f in dataclasses.fields(BoxBounds)]
    )


def without_prompts(problem: Problem) -> Problem:
    """The problem with prompts computed alone left out where only their latency follows from them."""
    left = [each.without_prompts() if isinstance(each, CompiledServing) else each for each in problem.scenarios]
    return dataclasses.replace(problem, scenarios=tuple(left))


def _bound_boxes(
    problem: Problem, boxes: Boxes, objectives: tuple[Objective, ...], rival: Rival, prompts: bool
) -> BoxBounds:
    if not prompts:
        problem = without_prompts(problem)
    if boxes.kept.shape[1] and boxes.n_boxes:
        return bound_mixture(problem, boxes, objectives, rival)
    cost = np.full((boxes.n_boxes, len(objectives)), np.inf)
    first, last, left_out = boxes.first.copy(), boxes.last.copy(), np.full(boxes.n_boxes, np.inf)
    matters = np.zeros(boxes.n_boxes, dtype=bool)
    width = boxes.last - boxes.first + 1
    sizes = np.searchsorted(WINDOW_STEPS, width)
    for size in np.unique(sizes):
        rows = np.flatnonzero(sizes == size)
        part = _bound_window(problem, boxes.take(rows), int(width[rows].max()), objectives, rival)
        cost[rows], first[rows], last[rows], left_out[rows] = part.cost, part.first, part.last, part.left_out
        matters[rows] = part.matters
    return BoxBounds(cost, first, last, left_out, boxes.kept, matters)


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
    place = place_of(problem, points)
    parts, order = shared_by_place(problem, _point_costs, (points, first, last), (width, objectives), place)
    cost, alternative = (np.concatenate(each)[order] for each in zip(*parts, strict=True))
    return cost, alternative


def _point_costs(
    problem: Problem, points: IntArray, first: IntArray, last: IntArray, width: int, objectives: tuple[Objective, ...]
) -> tuple[FloatArray, IntArray]:
    costs, _, wanted = _window_costs(problem, point_boxes(points, first, last), width, objectives, 0.0)
    return costs, np.zeros((len(points), 1), dtype=np.int64) if wanted is None else wanted


def _bound_window(
    problem: Problem, boxes: Boxes, width: int, objectives: tuple[Objective, ...], rival: Rival
) -> BoxBounds:
    """Bounds of boxes whose windows are at most `width` alternatives wide."""
    costs, _, wanted = _window_costs(problem, boxes, width, objectives, SLACK)
    costs = outward(costs)
    if wanted is None:
        wanted = np.zeros((boxes.n_boxes, 1), dtype=np.int64)
    matters: BoolArray = np.isfinite(costs[:, :, 0]) & rival(costs)
    any_matters = np.asarray(matters.any(axis=1))
    counted = matters | ~any_matters[:, None]
    bound = np.where(counted[:, :, None], costs, np.inf).min(axis=1)
    begin, end = np.argmax(counted, axis=1), width - 1 - np.argmax(counted[:, ::-1], axis=1)
    rows, places = np.arange(boxes.n_boxes), np.arange(width)
    outside = (places < begin[:, None]) | (places > end[:, None])
    left_out = np.where(outside, costs[:, :, 0], np.inf).min(axis=1)
    return BoxBounds(bound, wanted[rows, begin], wanted[rows, end], left_out, boxes.kept, any_matters)


def _window_costs(
    problem: Problem, boxes: Boxes, width: int, objectives: tuple[Objective, ...], slack: float
) -> tuple[FloatArray, BoolArray, IntArray | None]:
    """Costs of each alternative of each window, infinite where a limit is exceeded by more than `slack`."""
    performance, cheapest = corners(problem, boxes)
    several = len(problem.scenarios) > 1
    wanted = None if several else np.minimum(boxes.first[:, None] + np.arange(width), boxes.last[:, None])
    evaluations = evaluate(performance, cheapest, problem.scenarios, problem.tables, wanted, problem.technology)
    chip = chip_violations(problem.limits, cheapest, evaluations[0].figures)
    affordable = np.max(np.stack([v[:, 0] for v in chip.values()]), axis=0) <= slack
    if several:
        costs, possible = _mixture_costs(problem, evaluations, objectives, slack)
    else:
        possible = worst_violation(evaluations[0]) <= slack
        costs = np.stack([o.cost(objective_values(o, evaluations, problem.mixture)) for o in objectives], axis=2)
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
    costs = np.stack([o.cost(objective_values(o, best, mixture)) for o in objectives], axis=2)
    return np.where(possible[:, :, None], costs, np.inf), possible
