"""How close samplers come to the certified optimum and front of a study, by trials and by CPU seconds."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from explorer.bounds import is_boundable
from explorer.boxes import root_boxes
from explorer.cover import CoverSearch, empty_archive
from explorer.document import StudyError
from explorer.exact import ExactSearch, shuffled
from explorer.hypervolume import dominated_hypervolume
from explorer.inputs import Inputs
from explorer.objectives import REGRET, Objective
from explorer.problem import Problem
from explorer.proof import LEAST_FRONT_GAP
from explorer.records import TrialRecord
from explorer.samplers import EXHAUSTIVE, ONE_OBJECTIVE, SAMPLERS
from explorer.study import prepare, read_study, run_chunk
from models.checks import FloatArray, UnknownNameError, require_known

BUDGETS = (50, 100, 200, 500)
"""Trials after which a sampler's best design is compared."""

CERTIFY_S = 120.0
"""CPU time for the optimum of one study, and again for its front [s]."""

REFERENCE_LOSS = float(np.log(2.0))
"""How far beyond the front's worst the reference of a hypervolume lies: twice as bad, as a logarithm."""

BENCHED = tuple(name for name in SAMPLERS if name != EXHAUSTIVE)
"""Samplers that may be compared: judging everything leaves no gap."""


def search_quality(
    studies: Mapping[str, tuple[Mapping[str, Any], Inputs]],
    samplers: Sequence[str] = BENCHED,
    n_seeds: int = 10,
    budgets: Sequence[int] = BUDGETS,
    report: Callable[[str], None] = lambda line: None,
) -> list[dict[str, Any]]:
    """
    Return, for each study, its certified optimum and the gaps that samplers leave to it.

    Gaps are those of the first objective alone; where a study has several, runs in all of them are compared with its
    certified front. No sampler is seeded by the exact search; duplicates are removed for all. One run to the largest
    budget is read at each, since no sampler knows how many trials follow.

    Parameters
    ----------
    studies : mapping
        Name -> study as read from YAML, and where the files it names lie.
    samplers : sequence of str
        Names of samplers; random is always among them.
    n_seeds : int
        Runs of each sampler.
    budgets : sequence of int
        Rising numbers of trials.
    report : callable
        Told what has been done.

    Returns
    -------
    list of dict
        `study`, `designs`, `certified` {metric, best, bound, gap, boxes, cpu_s, complete}, `front` (None, or {metrics,
        members, gap, boxes, cpu_s, complete}) and `samplers`: one entry per sampler and budget with `gap_median`,
        `gap_p90` (share of the optimum that is missing; 1 where nothing feasible was found), `hypervolume_ratio`
        (median share of the certified front's hypervolume, None without a front) and `cpu_s` of one run in the first
        objective to that budget, its median.
    """
    names = list(dict.fromkeys(["random", *samplers]))
    try:
        for name in names:
            require_known("sampler", name, BENCHED)
    except UnknownNameError as error:
        raise StudyError([{"pointer": "/samplers", "detail": str(error)}]) from None
    if n_seeds < 1 or not budgets or min(budgets) < 1:
        raise StudyError([{"pointer": "/seeds", "detail": "seeds and budgets must be positive"}])
    return [
        _study_quality(study, document, inputs, names, n_seeds, sorted(budgets), report)
        for study, (document, inputs) in studies.items()
    ]


def _study_quality(
    study: str,
    document: Mapping[str, Any],
    inputs: Inputs,
    names: Sequence[str],
    n_seeds: int,
    budgets: Sequence[int],
    report: Callable[[str], None],
) -> dict[str, Any]:
    """One entry of `search_quality`."""
    objectives = [each for each in document["objectives"] if each.get("metric") != REGRET] or document["objectives"]
    problem = prepare(read_study({**document, "objectives": objectives}), inputs)
    single = _in_objectives(problem, 1)
    certified = _certified(single)
    report(f"{study}: certified to {certified['gap']:.2%} in {certified['cpu_s']:.1f} s of CPU")
    front, costs = _certified_front(problem) if len(objectives) > 1 else (None, np.empty((0, 1)))
    if front is not None:
        proven = "not proven" if front["gap"] is None else f"proven to {front['gap']:.2%}"
        report(f"{study}: front of {front['members']}, {proven} in {front['cpu_s']:.1f} s of CPU")
    entries = []
    for name in names:
        runs = [_run(single, name, seed, budgets[-1]) for seed in range(n_seeds)]
        several: list[Run] = []
        if front is not None and name not in ONE_OBJECTIVE:
            several = [_run(problem, name, seed, budgets[-1]) for seed in range(n_seeds)]
        for budget in budgets:
            entry = _gaps(single.objectives[0], [run.until(budget) for run in runs], certified["best"])
            ratios = [_hypervolume_ratio(problem, run.until(budget)[0], costs) for run in several]
            ratio = float(np.median(ratios)) if ratios else None
            entries.append({"sampler": name, "trials": budget} | entry | {"hypervolume_ratio": ratio})
        report(f"{study}: {name}, {n_seeds} seeds, median gap {entries[-1]['gap_median']:.1%} at {budgets[-1]} trials")
    n_designs = problem.space.n_designs
    return {"study": study, "designs": n_designs, "certified": certified, "front": front, "samplers": entries}


def _in_objectives(problem: Problem, count: int) -> Problem:
    """The problem in its first objectives alone."""
    document = problem.document.model_copy(update={"objectives": problem.document.objectives[:count]})
    return dataclasses.replace(problem, document=document, objectives=problem.objectives[:count], proofs=[])


def _certified(problem: Problem) -> dict[str, Any]:
    """The optimum of the first objective, proven as far as the time goes."""
    started = time.process_time()
    search = ExactSearch(problem, problem.objectives[0], problem.document.search.target_gap)
    while not search.complete and time.process_time() - started < CERTIFY_S:
        search.advance(1)
    if search.incumbent.point is None:
        raise StudyError([{"pointer": "/budget", "detail": "no feasible design was found to compare with"}])
    return {
        "metric": search.objective.metric,
        "best": search.objective.value(search.incumbent.cost),
        "bound": search.objective.value(search.bound),
        "gap": search.gap,
        "boxes": search.boxes_bounded,
        "cpu_s": time.process_time() - started,
        "complete": search.complete,
    }


def _certified_front(problem: Problem) -> tuple[dict[str, Any] | None, FloatArray]:
    """The front of all objectives, proven as far as the time goes, and its costs; nothing where they have no bound."""
    if not all(is_boundable(objective) for objective in problem.objectives):
        return None, np.empty((0, len(problem.objectives)))
    started = time.process_time()
    gap = max(problem.document.search.target_gap, LEAST_FRONT_GAP)
    search = CoverSearch(problem, gap, shuffled(root_boxes(problem)), empty_archive(problem))
    while not search.complete and time.process_time() - started < CERTIFY_S:
        search.advance(1)
    remaining = search.remaining_gap()
    return {
        "metrics": [objective.metric for objective in problem.objectives],
        "members": len(search.archive.cost),
        "gap": remaining if np.isfinite(remaining) else None,
        "boxes": search.boxes_bounded,
        "cpu_s": time.process_time() - started,
        "complete": search.complete,
    }, search.archive.cost


@dataclasses.dataclass(frozen=True)
class Run:
    """Trials of one search, and the CPU time after each of them, shape (n_trials,) [s]."""

    records: list[TrialRecord]
    cpu_s: FloatArray

    def until(self, budget: int) -> tuple[list[TrialRecord], float]:
        """The first trials, and the CPU time they took [s]."""
        return self.records[:budget], float(self.cpu_s[:budget][-1])


def _run(problem: Problem, sampler: str, seed: int, trials: int) -> Run:
    """One search; tables of the model are shared by all runs of a study."""
    search = problem.document.search.model_copy(
        update={"sampler": sampler, "seed": seed, "trials": trials, "stall_trials": None, "warm_start": False}
    )
    document = problem.document.model_copy(update={"search": search})
    own = dataclasses.replace(problem, document=document, proofs=[])
    started, records, cpu_s, chunk = time.process_time(), list[TrialRecord](), list[float](), 0
    while len(records) < min(trials, problem.space.n_designs):
        found = run_chunk(own, records, chunk)
        records += found
        cpu_s += [time.process_time() - started] * len(found)
        chunk += 1
    return Run(records, np.array(cpu_s))


def _gaps(objective: Objective, runs: Sequence[tuple[list[TrialRecord], float]], best: float) -> dict[str, float]:
    """Median and 90th percentile of what several runs miss of the optimum, and the median of their time."""
    gaps = []
    for records, _ in runs:
        values = [r.objectives[0] for r in records if r.feasible]
        if not values:
            gaps.append(1.0)
            continue
        found = max(values) if objective.maximize else min(values)
        gaps.append(max(0.0, 1.0 - (found / best if objective.maximize else best / found)))
    return {
        "gap_median": float(np.median(gaps)),
        "gap_p90": float(np.quantile(gaps, 0.9)),
        "cpu_s": float(np.median([cpu_s for _, cpu_s in runs])),
    }


def _hypervolume_ratio(problem: Problem, records: Sequence[TrialRecord], front_costs: FloatArray) -> float:
    """Hypervolume of trials over that of the front, in logarithms of the objectives relative to the front's best."""
    signs = np.array([o.sign for o in problem.objectives])
    best = np.min(front_costs, axis=0)

    def losses(costs: FloatArray) -> FloatArray:
        return np.asarray((np.log(np.abs(costs)) - np.log(np.abs(best))) * signs)

    whole = losses(front_costs)
    reference = whole.max(axis=0) + REFERENCE_LOSS
    found = np.array([np.array(r.objectives) * signs for r in records if r.feasible]).reshape(-1, len(signs))
    return dominated_hypervolume(losses(found), reference) / dominated_hypervolume(whole, reference)
