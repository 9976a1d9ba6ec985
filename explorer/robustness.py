"""Alternative scenarios of a study: its own with another network, requests or limits, and the regret there."""

from __future__ import annotations

from typing import Any

import numpy as np

from explorer.document import ObjectiveDocument, ServingDocument, StudyDocument, StudyError
from explorer.objectives import REGRET
from explorer.problem import Problem, judge_designs, prepare
from explorer.records import TrialRecord
from explorer.regret import alone, searched
from explorer.space import designs_at, point_of

BOXES_PER_SCENARIO = 16_000
"""Boxes bounded for the best rate of each scenario in a report: two or three seconds of work."""


def with_alternatives(document: StudyDocument) -> StudyDocument:
    """
    Return the study whose scenarios are its own and all its alternatives.

    An alternative is the study's first scenario with what it states exchanged, and has no weight in a mixture. Its
    requests arrive as a plain stream: the arrivals of the first scenario are those of its own requests.

    Raises
    ------
    StudyError
        If the study has alternatives but its first scenario serves no language model.
    """
    first = document.workload.scenarios[0]
    if not isinstance(first, ServingDocument):
        detail = f"needs a first scenario of kind llm_serving, got {first.kind}"
        raise StudyError([{"pointer": "/robustness", "detail": detail}])
    others = []
    for each in document.robustness:
        stated = {name: value for name in each.model_fields_set if (value := getattr(each, name)) is not None}
        plain = {"arrivals": type(first.arrivals)()} if each.requests is not None else {}
        others.append(first.model_copy(update=stated | plain | {"weight": 0.0}))
    scenarios = [*document.workload.scenarios, *others]
    names = [each.name for each in scenarios]
    for i, other in enumerate(others):
        if names.count(other.name) > 1:
            detail = f"must have a name of its own, got '{other.name}' more than once"
            raise StudyError([{"pointer": f"/robustness/{i}/name", "detail": detail}])
    workload = document.workload.model_copy(update={"scenarios": scenarios})
    return document.model_copy(update={"workload": workload, "robustness": []})


def robustness_report(problem: Problem, record: TrialRecord) -> dict[str, Any]:
    """
    Return what a design loses on each scenario against the best design of the space for that scenario alone.

    Every best rate is searched exactly within a budget of boxes; what is left of the gap is in the figures.

    Returns
    -------
    dict
        `scenarios`: for the study's own and each alternative the `rate_per_s` of the design at its best operating
        point (0 where it cannot keep the limits), `best_per_s` that some design reaches, `bound_per_s` that none
        passes, and `regret` with its lower and upper end [1]; `largest_regret` over all of them. A scenario that no
        design serves within its limits has no regret.
    """
    regret = [ObjectiveDocument(metric=REGRET, direction="minimize")]
    document = problem.document
    others = with_alternatives(document).model_copy(update={"objectives": regret})
    all_of = prepare(others, problem.inputs, [each.for_study(others, problem.inputs) for each in problem.team])
    point = point_of(problem.space, record.params)[None, :]
    designs = designs_at(problem.space, point, node_nm=document.technology.node_nm, tdp_w=document.budget.tdp)
    rows = []
    for i, compiled in enumerate(all_of.scenarios):
        one = alone(all_of, i)
        found = judge_designs(one, designs)
        rate = float(found.objectives[0, 0]) if found.feasible[0] else 0.0
        search = searched(one, BOXES_PER_SCENARIO)
        rows.append(_row(compiled.name, rate, max(-search.incumbent.cost, rate), -search.bound))
    known = [row["regret"] for row in rows if row["regret"] is not None]
    return {"scenarios": rows, "largest_regret": max(known) if known else None}


def _row(name: str, rate: float, best: float, bound: float) -> dict[str, Any]:
    """One scenario of the report; rates per second of the whole system."""
    served = np.isfinite(best) and best > 0
    return {
        "name": name,
        "rate_per_s": rate,
        "best_per_s": best if served else None,
        "bound_per_s": max(bound, best) if served and np.isfinite(bound) else None,
        "regret": 1.0 - rate / best if served else None,
        "regret_at_most": 1.0 - rate / max(bound, best) if served and np.isfinite(bound) else None,
    }
