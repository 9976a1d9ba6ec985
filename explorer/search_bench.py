"""How close samplers come to the certified optimum of a study, by trials and by CPU seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from explorer.document import StudyError
from explorer.exact import ExactSearch
from explorer.inputs import Inputs
from explorer.samplers import SAMPLERS
from explorer.study import prepare, read_study, run_chunk
from models.checks import UnknownNameError, require_known

BUDGETS = (50, 100, 200, 500)
"""Trials after which a sampler's best design is compared."""

CERTIFY_S = 120.0
"""CPU time for the optimum of one study [s]."""


def search_quality(
    studies: Mapping[str, tuple[Mapping[str, Any], Inputs]],
    samplers: Sequence[str] = ("random", "tpe"),
    n_seeds: int = 10,
    budgets: Sequence[int] = BUDGETS,
    report: Callable[[str], None] = lambda line: None,
) -> list[dict[str, Any]]:
    """
    Return, for each study, its certified optimum and the gaps that samplers leave to it.

    Only the first objective counts. No sampler is seeded by the exact search; duplicates are removed for all.

    Parameters
    ----------
    studies : mapping
        Name -> study as read from YAML, and where the files it names lie.
    samplers : sequence of str
        Names of Optuna's samplers; random is always among them.
    n_seeds : int
        Runs of each sampler.
    budgets : sequence of int
        Rising numbers of trials.
    report : callable
        Told what has been done.

    Returns
    -------
    list of dict
        `study`, `designs`, `certified` {metric, best, bound, gap, boxes, cpu_s, complete} and `samplers`: one entry
        per sampler and budget with `gap_median`, `gap_p90` (share of the optimum that is missing; 1 where nothing
        feasible was found) and `cpu_s` of one run to that budget, its median.
    """
    names = list(dict.fromkeys(["random", *samplers]))
    try:
        for name in names:
            require_known("sampler", name, SAMPLERS)
    except UnknownNameError as error:
        raise StudyError([{"pointer": "/samplers", "detail": str(error)}]) from None
    if n_seeds < 1 or not budgets or min(budgets) < 1:
        raise StudyError([{"pointer": "/seeds", "detail": "seeds and budgets must be positive"}])
    rows = []
    for study, (document, inputs) in studies.items():
        single = {**document, "objectives": document["objectives"][:1]}
        certified = _certified(single, inputs)
        report(f"{study}: certified to {certified['gap']:.2%} in {certified['cpu_s']:.1f} s of CPU")
        entries = []
        for name in names:
            runs = [_run(single, inputs, name, seed, sorted(budgets)) for seed in range(n_seeds)]
            entries += _summary(name, runs, sorted(budgets), certified["best"])
            report(f"{study}: {name}, {n_seeds} seeds")
        rows.append({"study": study, "designs": certified.pop("designs"), "certified": certified, "samplers": entries})
    return rows


def _certified(document: Mapping[str, Any], inputs: Inputs) -> dict[str, Any]:
    """The optimum of the first objective, proven as far as the time goes."""
    problem = prepare(read_study(document), inputs)
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
        "designs": problem.space.n_designs,
    }


def _run(
    document: Mapping[str, Any], inputs: Inputs, sampler: str, seed: int, budgets: Sequence[int]
) -> list[tuple[float | None, float]]:
    """Best value (None without a feasible design) and CPU seconds of one search after each budget."""
    search = {**document.get("search", {}), "sampler": sampler, "seed": seed, "trials": budgets[-1]}
    problem = prepare(read_study({**document, "search": search}), inputs)
    objective, started, chunk = problem.objectives[0], time.process_time(), 0
    records: list[Any] = []
    found = []
    for budget in budgets:
        while len(records) < min(budget, problem.space.n_designs):
            records += run_chunk(problem, records, chunk)
            chunk += 1
        costs = [float(objective.cost(np.array(r.objectives[0]))) for r in records[:budget] if r.feasible]
        found.append((objective.value(min(costs)) if costs else None, time.process_time() - started))
    return found


def _summary(
    name: str, runs: Sequence[Sequence[tuple[float | None, float]]], budgets: Sequence[int], best: float
) -> list[dict[str, Any]]:
    """Median and 90th percentile of the gaps of several runs at each budget."""
    entries = []
    for i, budget in enumerate(budgets):
        gaps = [1.0 if value is None else 1.0 - min(value / best, best / value) for value, _ in (r[i] for r in runs)]
        entries.append(
            {
                "sampler": name,
                "trials": budget,
                "gap_median": float(np.median(gaps)),
                "gap_p90": float(np.quantile(gaps, 0.9)),
                "cpu_s": float(np.median([r[i][1] for r in runs])),
            }
        )
    return entries
