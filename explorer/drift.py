"""What moved between two runs of a study, and why: inputs, requests, front, recommendation, terms of time and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from explorer.bottleneck import bottleneck
from explorer.document import ServingDocument
from explorer.pareto import non_dominated
from explorer.problem import Judgement, Problem, judge_points
from explorer.records import TrialRecord, records_of
from explorer.space import point_of
from explorer.workload import as_weighted, request_source
from models.checks import FloatArray
from models.hardware.cost import electricity_usd_per_j
from models.workload.distribution import observed_distribution
from models.workload.inspect import workload_statistics
from models.workload.requests import Requests

MOVED_FRACTION = 0.02
"""Change of a quantity below which it counts as unmoved."""

DISTANCE_MOVED = 0.05
"""Largest difference of two cumulative distributions below which they count as the same."""

MILLION = 1e6


@dataclass(frozen=True)
class Outcome:
    """One finished run: its problem, what it read, and the result document."""

    problem: Problem
    result: Mapping[str, Any]


def drift_report(before: Outcome, after: Outcome) -> dict[str, Any]:
    """
    Return how a run differs from the one before it.

    Returns
    -------
    dict
        `inputs_changed`: fields of the document and content that was read; `distribution`: request statistics of each
        serving scenario with the largest difference of the cumulative distributions; `front` and `recommended`: what
        moved, and what the design recommended before does now; `why`: terms of time and cost of that one design on
        both workloads, the term that moved most first; `summary` in one sentence.
    """
    distribution = _distribution(before.problem, after.problem)
    stayed = _staying(before, after)
    report = {
        "inputs_changed": _inputs_changed(before, after),
        "distribution": distribution,
        "front": _front(before, after),
        "recommended": _recommended(before, after, stayed),
        "why": _why(before, after, stayed),
    }
    return {**report, "summary": _summary(report)}


def _inputs_changed(before: Outcome, after: Outcome) -> list[dict[str, Any]]:
    """Fields of the document that differ, then content that does, by its hash."""
    documents = [each.problem.document.model_dump(mode="json", by_alias=True, exclude={"name"})
                 for each in (before, after)]  # fmt: skip
    changed = list(_differences(documents[0], documents[1], ""))
    read = [{each["name"]: each for each in outcome.problem.inputs_read} for outcome in (before, after)]
    for name in sorted(set(read[0]) & set(read[1])):
        if read[0][name]["sha256"] != read[1][name]["sha256"]:
            changed.append({"pointer": name, "before": read[0][name]["sha256"], "after": read[1][name]["sha256"]})
    return changed


def _differences(before: Any, after: Any, pointer: str) -> Any:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted(set(before) | set(after)):
            yield from _differences(before.get(name), after.get(name), f"{pointer}/{name}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, pair in enumerate(zip(before, after, strict=True)):
            yield from _differences(*pair, f"{pointer}/{index}")
    elif before != after:
        yield {"pointer": pointer, "before": before, "after": after}


def _distribution(before: Problem, after: Problem) -> dict[str, Any]:
    """Request statistics of the serving scenarios that both runs have."""
    sources = [_sources(problem) for problem in (before, after)]
    return {name: _requests_moved(sources[0][name], sources[1][name]) for name in sources[0] if name in sources[1]}


def _sources(problem: Problem) -> dict[str, Any]:
    served = [each for each in problem.document.workload.scenarios if isinstance(each, ServingDocument)]
    return {each.name: as_weighted(request_source(each.requests, problem.inputs)) for each in served}


def _requests_moved(before: Any, after: Any) -> dict[str, Any]:
    statistics = [workload_statistics(each)["requests"] for each in (before, after)]
    moved: dict[str, Any] = {}
    for side in ("input_tokens", "output_tokens"):
        lengths = {name: _change(*(each[side][name] for each in statistics)) for name in ("mean", "p50", "p95", "p99")}
        distance = _distance(*(_weighted(each, side) for each in (before, after)))
        moved[side] = {**lengths, "largest_difference_fraction": distance, "moved": distance > DISTANCE_MOVED}
    for name in ("count", "rate_per_s", "interarrival_cv", "prefix_hit_fraction"):
        moved[name] = _change(*(each[name] for each in statistics))
    return moved


def _weighted(source: Any, side: str) -> tuple[FloatArray, FloatArray]:
    distribution = observed_distribution(source) if isinstance(source, Requests) else source
    return getattr(distribution, side), distribution.weight


def _distance(before: tuple[FloatArray, FloatArray], after: tuple[FloatArray, FloatArray]) -> float:
    """Largest difference of two weighted cumulative distributions (Kolmogorov and Smirnov) [1]."""
    grid = np.union1d(before[0], after[0])
    cumulative = []
    for values, weight in (before, after):
        order = np.argsort(values, kind="stable")
        total = np.concatenate([[0.0], np.cumsum(weight[order])]) / weight.sum()
        cumulative.append(total[np.searchsorted(values[order], grid, side="right")])
    return float(np.max(np.abs(cumulative[0] - cumulative[1])))


def _change(before: float | None, after: float | None) -> dict[str, Any]:
    """Both values and the relative change, None where there is none."""
    known = before is not None and after is not None and before != 0
    return {"before": before, "after": after, "change_fraction": after / before - 1.0 if known else None}  # type: ignore[operator]


def _front(before: Outcome, after: Outcome) -> dict[str, Any]:
    """Which designs are on both fronts, and what the best of each objective is."""
    points = [outcome.result["pareto"] for outcome in (before, after)]
    params = [[point["params"] for point in front] for front in points]
    objectives = after.problem.objectives
    best = {}
    for objective in objectives:
        pick = max if objective.maximize else min
        values = [pick((p["metrics"][objective.metric] for p in front), default=None) for front in points]
        best[objective.metric] = _change(*values)
    return {
        "designs_before": len(params[0]),
        "designs_after": len(params[1]),
        "designs_in_both": sum(each in params[1] for each in params[0]),
        "best": best,
        "still_on_the_front": _still_best(before, after),
        "moved": any(abs(each["change_fraction"] or 0.0) > MOVED_FRACTION for each in best.values()),
    }


def _still_best(before: Outcome, after: Outcome) -> int | None:
    """Designs of the old front that no design of the new one beats on the new workload; None where one is outside."""
    judged = _judged(after.problem, [point["params"] for point in before.result["pareto"]])
    if judged is None:
        return None
    signs = np.array([objective.sign for objective in after.problem.objectives])
    new = np.array([[p["metrics"][o.metric] for o in after.problem.objectives] for p in after.result["pareto"]])
    old = judged.objectives[np.asarray(judged.feasible)]
    if not len(old):
        return 0
    together = np.concatenate([old, new.reshape(-1, len(signs))]) * signs
    duplicates_kept = np.array([non_dominated(np.vstack([together[i], together]))[0] for i in range(len(old))])
    return int(duplicates_kept.sum())


def _judged(problem: Problem, params: Sequence[Mapping[str, Any]]) -> Judgement | None:
    """Designs judged on a problem, None where there are none or one lies outside its space."""
    if not params:
        return None
    try:
        points = np.array([point_of(problem.space, each) for each in params], dtype=np.int64)
    except (ValueError, KeyError):
        return None
    return judge_points(problem, points.reshape(len(params), len(problem.space.parameters)))


def _staying(before: Outcome, after: Outcome) -> tuple[TrialRecord, TrialRecord] | None:
    """The design recommended before, judged on both workloads; None where there is none or it lies outside."""
    best = before.result.get("recommended")
    if best is None:
        return None
    old, new = (_record(outcome.problem, best["params"]) for outcome in (before, after))
    return None if old is None or new is None else (old, new)


def _record(problem: Problem, params: Mapping[str, Any]) -> TrialRecord | None:
    judged = _judged(problem, [params])
    return None if judged is None else records_of(problem, np.array([point_of(problem.space, params)]), judged, 0)[0]


def _recommended(before: Outcome, after: Outcome, stayed: tuple[TrialRecord, TrialRecord] | None) -> dict[str, Any]:
    old, new = before.result.get("recommended"), after.result.get("recommended")
    if old is None or new is None:
        return {"same_design": old is None and new is None, "before": old, "after": new, "staying": None}
    changed = {
        name: {"before": old["params"].get(name), "after": value}
        for name, value in new["params"].items()
        if old["params"].get(name) != value
    }
    metrics = {
        name: _change(old["metrics"].get(name), value)
        for name, value in new["metrics"].items()
        if isinstance(value, float)
    }
    return {
        "same_design": not changed,
        "parameters_changed": changed,
        "metrics": metrics,
        "staying": None if stayed is None else _staying_document(after, stayed[1]),
    }


def _staying_document(after: Outcome, record: TrialRecord) -> dict[str, Any]:
    """What the design recommended before does on the new workload, and what keeping it costs."""
    best = after.result["recommended"]["metrics"]
    losses = {}
    for objective, value in zip(after.problem.objectives, record.objectives, strict=True):
        ratio = value / best[objective.metric]
        losses[objective.metric] = 1.0 - ratio if objective.maximize else ratio - 1.0
    return {
        "feasible": record.feasible,
        "violated": record.violated,
        "metrics": record.metrics,
        "loss_fractions": losses,
    }


def _why(before: Outcome, after: Outcome, stayed: tuple[TrialRecord, TrialRecord] | None) -> dict[str, Any] | None:
    """Terms of time and cost of one design on both workloads; None where there is no such design, or no decoding."""
    if stayed is None or len(before.problem.scenarios) > 1 or len(after.problem.scenarios) > 1:
        return None
    if not all("sustainable_output_tokens_per_s" in record.metrics for record in stayed):
        return None
    times = [_token_terms_s(each.problem, record) for each, record in zip((before, after), stayed, strict=True)]
    costs = [_cost_terms_usd(record) for record in stayed]
    terms = _moved_terms(*times)
    return {
        "design": stayed[0].params,
        "s_per_output_token": _change(sum(times[0].values()), sum(times[1].values())),
        "time_terms": terms,
        "resources": _moved_terms(*(_by_resource(o.problem, r) for o, r in zip((before, after), stayed, strict=True))),
        "usd_per_million_output_tokens": _change(sum(costs[0].values()), sum(costs[1].values())),
        "cost_terms": _moved_terms(*costs),
        "largest": terms[0]["term"] if terms else None,
    }


def _token_terms_s(problem: Problem, record: TrialRecord) -> dict[str, float]:
    """Each operator's part of the time that an output token takes the system [s]; the sum is 1 / rate."""
    (report,) = bottleneck(problem, record).values()
    token_s = 1.0 / record.metrics["sustainable_output_tokens_per_s"]
    return {term["name"]: term["share_fraction"] * token_s for term in report["terms"]}


def _by_resource(problem: Problem, record: TrialRecord) -> dict[str, float]:
    (report,) = bottleneck(problem, record).values()
    token_s = 1.0 / record.metrics["sustainable_output_tokens_per_s"]
    return {name: share * token_s for name, share in report["resources"].items()}


def _cost_terms_usd(record: TrialRecord) -> dict[str, float]:
    """Electricity of the chips, and everything else, of a million output tokens [USD]."""
    total = record.metrics["usd_per_million_output_tokens"]
    electricity = MILLION * record.metrics["energy_per_output_token_j"] * electricity_usd_per_j()
    return {"chip_electricity": electricity, "capital_and_housing": total - electricity}


def _moved_terms(before: Mapping[str, float], after: Mapping[str, float]) -> list[dict[str, Any]]:
    """Every term with its change, the one that moved most first."""
    total = sum(after.values()) - sum(before.values())
    terms = []
    for name in sorted(set(before) | set(after)):
        change = after.get(name, 0.0) - before.get(name, 0.0)
        terms.append({
            "term": name, "before": before.get(name, 0.0), "after": after.get(name, 0.0), "change": change,
            "share_of_change_ratio": change / total if total else None,
        })  # fmt: skip
    return sorted(terms, key=lambda each: -abs(each["change"]))


def _summary(report: Mapping[str, Any]) -> str:
    """One sentence for people."""
    parts = []
    for name, moved in report["distribution"].items():
        for side, word in (("input_tokens", "inputs"), ("output_tokens", "outputs")):
            if moved[side]["moved"]:
                change = moved[side]["mean"]["change_fraction"]
                parts.append(f"{name}: {word} are {abs(change):.0%} {'longer' if change > 0 else 'shorter'} on average")
    recommended, why = report["recommended"], report["why"]
    if recommended.get("same_design"):
        parts.append("the recommended design stays")
    elif recommended.get("parameters_changed"):
        parts.append(f"the recommended design changes in {', '.join(recommended['parameters_changed'])}")
    if why is not None and why["largest"] is not None:
        change = why["s_per_output_token"]["change_fraction"]
        parts.append(
            f"the design recommended before takes {abs(change):.1%} {'more' if change > 0 else 'less'} time an output"
            f" token, most of it in {why['largest']}"
        )
    return "; ".join(parts) or "nothing moved"
