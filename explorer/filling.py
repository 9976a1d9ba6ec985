"""Parameters of a proposed design that a rule fills better than a sampler: those nothing uses, and the cores."""

from __future__ import annotations

import numpy as np

from explorer.boxes import idle_parameters
from explorer.objectives import COMBINED, REGRET, Objective
from explorer.problem import Judgement, Problem, judge_points
from models.checks import FloatArray, IntArray
from models.metrics import METRICS

CORES = "n_cores"
"""Parameter of which every value is judged beside the others of a proposal."""


def filled_parameters(problem: Problem) -> tuple[str, ...]:
    """Parameters that a sampler leaves to the rules, idle ones only where nothing rewards paying for them."""
    idle = idle_parameters(problem) if all(_in_own_direction(o) for o in problem.objectives) else ()
    return (CORES, *idle)


def _in_own_direction(objective: Objective) -> bool:
    """Whether better is what the metric calls better."""
    if objective.metric in (COMBINED, REGRET):
        return objective.maximize == (objective.metric == COMBINED)
    return objective.maximize == (METRICS[objective.metric].direction == "maximize")


def filled(problem: Problem, points: IntArray, first_number: int, seen: set[tuple[int, ...]]) -> IntArray:
    """
    Return points with idle parameters at their cheapest and the number of cores that serves the objectives best.

    Every number of cores is judged. Feasible designs come first, by the objective; with several objectives trial
    after trial looks at each alone and at all together, so that all of a front is sought. Of designs that were judged
    before the next best is taken; where none is left the point stays as it is.

    Parameters
    ----------
    points : array of shape (n_points, n_parameters)
    first_number : int
        Number of the trial that the first point becomes.
    seen : set of tuple of int
        Points judged before; those returned are added.

    Returns
    -------
    array of shape (n_points, n_parameters)
    """
    names = [p.name for p in problem.space.parameters]
    cores, n_cores = names.index(CORES), int(problem.space.sizes[names.index(CORES)])
    start = points.copy()
    for name in set(filled_parameters(problem)) - {CORES}:
        parameter = problem.space.parameters[names.index(name)]
        start[:, names.index(name)] = 0 if parameter.ordered else parameter.values.index("none")
    choices = np.repeat(start, n_cores, axis=0)
    choices[:, cores] = np.tile(np.arange(n_cores), len(start))
    judgement = judge_points(problem, choices)
    shortfall = _worst_excess(judgement).reshape(-1, n_cores)
    losses = _losses(problem, judgement).reshape(-1, n_cores, len(problem.objectives))
    found = start.copy()
    for row in range(len(start)):
        loss = _looked_at(losses[row], first_number + row)
        for value in np.lexsort((loss, np.maximum(shortfall[row], 0.0))):
            found[row, cores] = value
            if tuple(found[row]) not in seen:
                break
        seen.add(tuple(found[row]))
    return found


def _worst_excess(judgement: Judgement) -> FloatArray:
    return np.asarray(np.max(np.stack(list(judgement.excess.values())), axis=0))


def _losses(problem: Problem, judgement: Judgement) -> FloatArray:
    """What each objective costs, on a scale on which costs of several can be added, (n_designs, n_objectives)."""
    signs = np.array([o.sign for o in problem.objectives])
    if len(signs) == 1:
        return np.asarray(judgement.objectives * signs)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(np.abs(judgement.objectives)) * signs
    return np.asarray(np.nan_to_num(logs, nan=0.0))


def _looked_at(losses: FloatArray, number: int) -> FloatArray:
    """The objective that trial `number` looks at, or the sum of all in turn, shape (n_choices,)."""
    n = losses.shape[1]
    turn = number % (n + 1) if n > 1 else 0
    return np.asarray(losses[:, turn] if turn < n else losses.sum(axis=1))
