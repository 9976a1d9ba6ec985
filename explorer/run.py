"""A whole study in this process: what the command line does without a server."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from explorer.document import StudyError
from explorer.inputs import Inputs, with_named_workload
from explorer.problem import Problem
from explorer.records import TrialRecord
from explorer.report import final_document
from explorer.samplers import AUTO, EXACT
from explorer.study import is_finished, n_chunks, n_trials, prepare, read_study, run_chunk, timeout_s
from explorer.team import Team

Report = Callable[[int, int], None]
"""Told how many trials are done, of how many."""


def explore_study(
    document: Any, inputs: Inputs, report: Report, others: Sequence[ProcessPoolExecutor] = ()
) -> dict[str, Any]:
    """
    Return the result document of a study.

    Parameters
    ----------
    document : dict
        As read from YAML or JSON.
    inputs : Path or Uploads, optional
        Where files and networks named by the study lie.
    report : callable
        Told the progress after every chunk.
    others : sequence of ProcessPoolExecutor
        Processes that bound boxes beside this one where the search is exact (`explorer.processes`); the answer does not
        depend on them.
    """
    started = time.perf_counter()
    study = read_study(with_named_workload(document, inputs))
    team = [Team(others, study, inputs)] if others and study.search.sampler in (AUTO, EXACT) else []
    result = _searched(prepare(study, inputs, team), report, started)
    result["wall_s"] = time.perf_counter() - started
    return result


def _searched(problem: Problem, report: Report, started: float) -> dict[str, Any]:
    if problem.document.search.warm_start:
        detail = "needs the history of a server: send the study to one, or leave it out"
        raise StudyError([{"pointer": "/search/warm_start", "detail": detail}])
    records: list[TrialRecord] = []
    for chunk in range(n_chunks(problem)):
        out_of_time = chunk > 0 and time.perf_counter() - started > timeout_s(problem)
        if is_finished(problem, records) or out_of_time:
            break
        records += run_chunk(problem, records, chunk)
        report(len(records), n_trials(problem))
    return final_document(problem, records)
