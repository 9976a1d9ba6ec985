"""What the next tenth of area or power would buy: both budgets solved, with what is proven of each."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from explorer.bounds import require_boundable
from explorer.exact import ExactSearch
from explorer.problem import Problem

MORE_FACTOR = 1.1
"""The budget that is asked for, over that of the study."""

SEARCH_S = 10.0
"""Time for each of the searches [s]."""


def next_budget(problem: Problem, search_s: float = SEARCH_S) -> dict[str, Any]:
    """
    Return what ten percent more area, or power, would buy in the first objective, by searching again.

    Parameters
    ----------
    problem : Problem
    search_s : float
        Time of each search, of which there are three. [s]

    Returns
    -------
    dict
        `now`, `area` and `power` with best, bound, gap and complete; the relaxed ones with gain_fraction (of the best
        found) and the proven interval gain_between_fraction, which is as wide as the gaps are.
    """
    objective = problem.objectives[0]
    require_boundable((objective,))
    now = _searched(problem, search_s)
    budget = problem.document.budget
    found = {"metric": objective.metric, "now": _document(now)}
    for name, relaxed in (
        ("area", {"area": budget.area * MORE_FACTOR}),
        ("power", {"tdp": budget.tdp * MORE_FACTOR}),
    ):
        search = _searched(_with_budget(problem, relaxed), search_s, now)
        found[name] = _document(search) | _bought(now, search)
    return found


def _with_budget(problem: Problem, relaxed: dict[str, float]) -> Problem:
    budget = problem.document.budget.model_copy(update=relaxed)
    limits = problem.limits
    return dataclasses.replace(
        problem,
        document=problem.document.model_copy(update={"budget": budget}),
        limits=dataclasses.replace(limits, area_mm2=budget.area, tdp_w=budget.tdp),
        proofs=[],
    )


def _searched(problem: Problem, search_s: float, start: ExactSearch | None = None) -> ExactSearch:
    gap = problem.document.search.target_gap
    search = ExactSearch(problem, problem.objectives[0], gap)
    if start is not None and start.incumbent.point is not None and problem.document.budget.tdp == _tdp(start):
        search.offer(start.incumbent.cost, start.incumbent.point, start.incumbent.alternative)
    ends = time.perf_counter() + search_s
    while not search.complete and time.perf_counter() < ends:
        search.advance(1)
    return search


def _tdp(search: ExactSearch) -> float:
    return float(search.problem.document.budget.tdp)


def _document(search: ExactSearch) -> dict[str, Any]:
    sign = search.objective.sign
    return {
        "best": sign * search.incumbent.cost,
        "bound": sign * search.bound,
        "gap": search.gap,
        "complete": search.complete,
        "boxes": search.boxes_bounded,
    }


def _bought(now: ExactSearch, more: ExactSearch) -> dict[str, Any]:
    """Gain of the best found, and between which values the true one lies."""
    return {
        "gain_fraction": _gain(now, now.incumbent.cost, more.incumbent.cost),
        "gain_between_fraction": [
            max(_gain(now, now.bound, more.incumbent.cost), 0.0),
            _gain(now, now.incumbent.cost, more.bound),
        ],
    }


def _gain(search: ExactSearch, before: float, after: float) -> float:
    """Costs as the search has them: of a rate its negative."""
    return after / before - 1.0 if search.objective.maximize else before / after - 1.0
