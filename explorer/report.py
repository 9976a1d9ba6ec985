"""The result of a study as one JSON document (DESIGN section 8)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from explorer.bottleneck import bottleneck
from explorer.chip_report import technology_document, warnings_of
from explorer.explanation.document import quick_explanation, work_at
from explorer.identity import model_version
from explorer.intervals import intervals_of, stability_of
from explorer.objectives import REGRET, Objective
from explorer.pareto import knee, non_dominated
from explorer.percentiles import design_percentiles, states_arrivals
from explorer.precision_report import precision_report
from explorer.problem import Problem
from explorer.records import TrialRecord
from explorer.robustness import robustness_report
from explorer.runners_up import with_runners_up
from explorer.space import designs_at, point_of
from explorer.work_report import with_reported
from models.checks import FloatArray
from models.hardware.design import DesignBatch
from models.hardware.figures import chip_figures


class Searched(Protocol):
    """What ranking records needs of a problem."""

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """Objectives in the order of the records' values."""


def costs_of(problem: Searched, records: Sequence[TrialRecord]) -> FloatArray:
    """Objectives as things to minimise, shape (n_records, n_objectives)."""
    signs = np.array([o.sign for o in problem.objectives])
    values = np.array([r.objectives for r in records], dtype=np.float64).reshape(len(records), len(signs))
    return np.asarray(values * signs)


def front_of(problem: Searched, records: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Feasible trials that no other one beats, best in the first objective first."""
    feasible = [r for r in records if r.feasible]
    if not feasible:
        return []
    costs = costs_of(problem, feasible)
    front = list(np.flatnonzero(non_dominated(costs)))
    return [feasible[i] for i in sorted(front, key=lambda i: tuple(costs[i]))]


def recommended_of(problem: Searched, front: Sequence[TrialRecord]) -> TrialRecord | None:
    """The best trial, or with several objectives the knee of the front."""
    return front[knee(costs_of(problem, front))] if front else None


def point_document(problem: Problem, record: TrialRecord, percentiles: dict[str, Any] | None = None) -> dict[str, Any]:
    """One design of the answer beside its other plans; `percentiles` only where requests were replayed."""
    document = {
        "trial": record.number,
        "params": record.params,
        "design": record.design,
        "operating_point": with_runners_up(problem, designs_of(problem, [record]), record.operating_point),
        "metrics": record.metrics,
    }
    return document if percentiles is None else document | {"percentiles": percentiles}


def designs_of(problem: Problem, records: Sequence[TrialRecord]) -> DesignBatch:
    """The designs of trials."""
    points = np.array([point_of(problem.space, record.params) for record in records])
    document = problem.document
    return designs_at(problem.space, points, node_nm=document.technology.node_nm, tdp_w=document.budget.tdp)


def percentiles_of(problem: Problem, records: Sequence[TrialRecord]) -> list[dict[str, Any] | None]:
    """Replayed percentiles of trials at their operating points, None where no scenario states arrivals."""
    if not records or not states_arrivals(problem):
        return [None] * len(records)
    keys = [json.dumps([record.params, record.operating_point], sort_keys=True) for record in records]
    new = [i for i, key in enumerate(keys) if key not in problem.replays]
    if new:
        designs = designs_of(problem, [records[i] for i in new])
        found = design_percentiles(problem, designs, [records[i].operating_point for i in new])
        problem.replays.update(zip([keys[i] for i in new], found, strict=True))
    return [problem.replays[key] for key in keys]


def result_document(problem: Problem, records: Sequence[TrialRecord]) -> dict[str, Any]:
    """
    Return what `explore` prints: the recommendation, the front, and how the search went.

    `wall_s` is added by the caller, who knows the clock.
    """
    front = front_of(problem, records)
    best = recommended_of(problem, front)
    figures = zip(front, percentiles_of(problem, front), intervals_of(problem, front), strict=True)
    points = {
        record.number: point_document(problem, record, percentiles) | {"intervals": intervals}
        for record, percentiles, intervals in figures
    }
    document: dict[str, Any] = {
        "study": problem.document.model_dump(mode="json", by_alias=True, exclude_none=True),
        "study_hash": study_hash(problem),
        "inputs": problem.inputs_read,
        "feasible": best is not None,
        "recommended": None if best is None else points[best.number],
        "pareto": list(points.values()),
        "certificate": certificate_of(records),
        "stability": [] if best is None else stability_of(problem, records, best),
        "explanation": {} if best is None else explanation(problem, best),
        "evaluated": len(records),
        "feasible_designs": sum(r.feasible for r in records),
        "space_designs": problem.space.n_designs,
        "technology": technology_document(problem),
        "warnings": [] if best is None else _warnings(problem, best),
        "model_version": model_version(),
    }
    if best is None:
        document["binding_limit"] = binding_limit(records)
    return document


def _warnings(problem: Problem, best: TrialRecord) -> list[dict[str, Any]]:
    one = designs_of(problem, [best])
    chip = chip_figures(one, problem.technology)
    return warnings_of(problem, one, float(chip.full_rate_power_w[0]), float(chip.area_mm2[0]))


def final_document(problem: Problem, records: Sequence[TrialRecord]) -> dict[str, Any]:
    """
    Return the result of a study that has ended: `result_document`, what binds, and the regret over other scenarios.

    That takes an exact search for each scenario, seconds each, so a result so far does without. A study whose
    objective is the regret has it in its metrics already.
    """
    result = result_document(problem, records)
    best = recommended_of(problem, front_of(problem, records))
    if best is None:
        return result
    result["explanation"] = quick_explanation(work_at(problem, best), best.excess) | result["explanation"]
    result["recommended"]["metrics"] = with_reported(best.metrics, result["explanation"]["reported_metrics"])
    asked = any(each.metric == REGRET for each in problem.objectives)
    if problem.document.robustness and not asked:
        result["robustness"] = robustness_report(problem, best)
    return result


def explanation(problem: Problem, best: TrialRecord) -> dict[str, Any]:
    """Why the recommended design does what it does: where its time goes, its formats, what is left of each limit."""
    return {
        "bottleneck": bottleneck(problem, best),
        "precision": precision_report(problem, best),
        "slack_fractions": {name: -value for name, value in best.excess.items()},
    }


def certificate_of(records: Sequence[TrialRecord]) -> list[dict[str, Any]]:
    """What the last chunk of an exact search had proven; nothing for other samplers."""
    return next((r.certificate for r in reversed(records) if r.certificate is not None), [])


def binding_limit(records: Sequence[TrialRecord]) -> dict[str, Any] | None:
    """The limit that the nearest design misses, and by which share of it."""
    if not records:
        return None
    nearest = min(records, key=lambda r: max(r.excess.values()))
    name = max(nearest.excess, key=lambda key: nearest.excess[key])
    return {"limit": name, "excess_fraction": nearest.excess[name], "trial": nearest.number}


def study_hash(problem: Problem) -> str:
    """Hash of everything the result depends on: document, content of what it names, and model version."""
    content = problem.document.model_dump(mode="json", by_alias=True)
    read = [{"name": each["name"], "sha256": each["sha256"]} for each in problem.inputs_read]
    text = json.dumps({"study": content, "inputs": read, "model": model_version()}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
