"""Every parameter of the space one step down and one step up: what it does, or which limit it breaks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from explorer.explanation.work import cost_of, gain_fraction
from explorer.problem import Judgement, Problem, judge_points, violated_limit
from explorer.space import values_at
from models.checks import IntArray


def parameter_sensitivity(problem: Problem, point: IntArray, here: Mapping[str, float]) -> list[dict[str, Any]]:
    """
    Return the designs next to a point of the space, each at its own best operating point.

    Parameters
    ----------
    problem : Problem
    point : array of shape (n_parameters,)
    here : mapping
        Values of the objectives that the gains refer to.

    Returns
    -------
    list of dict
        parameter, from, to, step (down or up), feasible, gain_fraction by objective, breaks and excess_fraction where
        a limit is broken. Of a category the neighbours in the space's order.
    """
    moves = [
        (axis, step)
        for axis, size in enumerate(problem.space.sizes)
        for step in (-1, 1)
        if 0 <= point[axis] + step < size
    ]
    if not moves:
        return []
    points = np.tile(point, (len(moves), 1))
    for row, (axis, step) in zip(points, moves, strict=True):
        row[axis] += step
    judgement = judge_points(problem, points)
    written = values_at(problem.space, point)
    rows = []
    for i, (axis, step) in enumerate(moves):
        name = problem.space.parameters[axis].name
        to = values_at(problem.space, points[i])[name]
        rows.append(
            {"parameter": name, "step": "up" if step > 0 else "down", "from": written[name], "to": to}
            | _outcome(problem, judgement, i, here)
        )
    return rows


def _outcome(problem: Problem, judgement: Judgement, index: int, here: Mapping[str, float]) -> dict[str, Any]:
    gains = {
        o.metric: float(gain_fraction(cost_of(o, here[o.metric]), cost_of(o, judgement.objectives[index, k])))
        for k, o in enumerate(problem.objectives)
    }
    outcome: dict[str, Any] = {"feasible": bool(judgement.feasible[index]), "gain_fraction": gains}
    if outcome["feasible"]:
        return outcome
    name, excess = violated_limit(judgement, index)
    return outcome | {"breaks": name, "excess_fraction": excess}
