"""What the next tenth of area or power would buy: both budgets solved, with what is proven of each."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import numpy as np

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
        `now`, `area` and `power` with best, bound, gap and complete; the relaxed ones, of chips that use the larger
        budget, with gain_fraction of the best found, whether it `helps`, and gain_between_fraction, the proven interval
        of what it buys: as wide as the gaps are, from nothing on, since the budget of before stays allowed. None is
        what was not found or proven in the time.
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
    return {
        "best": _finite(search.objective.value(search.incumbent.cost)),
        "bound": _finite(search.objective.value(search.bound)),
        "gap": _finite(search.gap),
        "complete": search.complete,
        "boxes": search.boxes_bounded,
    }


def _finite(value: float) -> float | None:
    """The value, or None where nothing was found or proven in the time."""
    return float(value) if np.isfinite(value) else None


def _bought(now: ExactSearch, more: ExactSearch) -> dict[str, Any]:
    """Gain of the best found, and between which values the true one lies."""
    low, high = _gain(now, now.bound, more.incumbent.cost), _gain(now, now.incumbent.cost, more.bound)
    gain = _gain(now, now.incumbent.cost, more.incumbent.cost)
    # the budget of before is allowed too: at a higher cap the clock settles higher, which can cost energy
    return {
        "gain_fraction": gain,
        "gain_between_fraction": [max(low or 0.0, 0.0), None if high is None else max(high, 0.0)],
        "helps": gain is not None and gain > 0,
    }


def _gain(search: ExactSearch, before: float, after: float) -> float | None:
    """Costs as the search has them: of a rate, and of the share that a regret leaves, the negative."""
    if not (np.isfinite(before) and np.isfinite(after)):
        return None
    return float(after / before - 1.0 if before < 0 else before / after - 1.0)
