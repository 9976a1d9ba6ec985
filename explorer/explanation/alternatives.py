"""Build or buy: the chips of the catalogue on the same work, beside the design."""

from __future__ import annotations

from typing import Any

import numpy as np

from explorer.evaluation import CHIP_LIMITS
from explorer.explanation.work import cost_of, gain_fraction
from explorer.known_work import fitted_to
from explorer.problem import Problem, judge_designs
from models.hardware.catalog import chip, chip_designs, chip_ids


def build_or_buy(problem: Problem, objectives: list[float]) -> list[dict[str, Any]]:
    """
    Return the catalogue chips that do the work within its latency limits, best in the first objective first.

    Parameters
    ----------
    problem : Problem
    objectives : list of float
        Of the design, in the order of the study.

    Returns
    -------
    list of dict
        chip, name, within_budget (area, power and cost of the study), values of the objectives, and by which share the
        design is better in each.
    """
    ids = chip_ids()
    chips = chip_designs(ids)
    fitted = fitted_to(problem, chips)
    judgement = judge_designs(fitted, chips)
    work = [values for name, values in judgement.excess.items() if name not in CHIP_LIMITS]
    serves = np.flatnonzero(np.max(np.stack(work), axis=0) <= 0)
    shared = [(k, o) for k, o in enumerate(fitted.objectives) if o in problem.objectives]
    costs = cost_of(fitted.objectives[0], judgement.objectives[:, 0])
    rows = []
    for i in sorted(serves, key=lambda i: float(costs[i])):
        values = {o.metric: float(judgement.objectives[i, k]) for k, o in enumerate(fitted.objectives)}
        better = {
            o.metric: float(
                gain_fraction(
                    cost_of(o, judgement.objectives[i, k]),
                    cost_of(o, objectives[problem.objectives.index(o)]),
                )
            )
            for k, o in shared
        }
        entry = chip(ids[i])
        rows.append(
            {
                "chip": entry.id,
                "name": entry.name,
                "within_budget": bool(judgement.feasible[i]) and float(chips.tdp_w[i]) <= problem.document.budget.tdp,
                "values": values,
                "design_better_fraction": better,
            }
        )
    return rows
