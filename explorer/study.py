"""A study in chunks: each is a pure function of the problem, the earlier trials and its number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from explorer.document import StudyDocument, StudyError, read_document
from explorer.problem import Problem, judge_points, prepare
from explorer.records import TrialRecord, record_from_json, records_of
from explorer.samplers import SAMPLERS, propose
from models.checks import UnknownNameError, require_known

CHUNK_TRIALS = 20
"""Trials that are proposed, judged and stored together: 0.1 to 1 s of work."""

__all__ = [
    "CHUNK_TRIALS", "Problem", "StudyDocument", "StudyError", "TrialRecord", "is_finished", "n_chunks", "prepare",
    "read_study", "record_from_json", "run_chunk", "timeout_s",
]  # fmt: skip


def read_study(document: Any) -> StudyDocument:
    """
    Return the checked study document.

    Raises
    ------
    StudyError
        With a pointer to every field that breaks its rule.
    """
    study: StudyDocument = read_document(document)
    try:
        require_known("sampler", study.search.sampler, SAMPLERS)
    except UnknownNameError as error:
        raise StudyError([{"pointer": "/search/sampler", "detail": str(error)}]) from None
    return study


def n_trials(problem: Problem) -> int:
    """Trials the study asks for, at most the designs of its space."""
    return min(problem.document.search.trials, problem.space.n_designs)


def n_chunks(problem: Problem) -> int:
    """Chunks that the study's trials make."""
    return math.ceil(n_trials(problem) / CHUNK_TRIALS)


def timeout_s(problem: Problem) -> float:
    """Search time after which a study ends with what it has [s]."""
    return float(problem.document.search.timeout)


def run_chunk(problem: Problem, past: Sequence[TrialRecord], chunk: int) -> list[TrialRecord]:
    """Return the records of one chunk: the same past and number give the same records."""
    search = problem.document.search
    count = min(CHUNK_TRIALS, n_trials(problem) - len(past))
    if count <= 0:
        return []
    points = propose(search.sampler, problem.space, problem.objectives, past, [search.seed, chunk], count)
    return records_of(problem, points, judge_points(problem, points), len(past))


def is_finished(problem: Problem, past: Sequence[TrialRecord]) -> bool:
    """Whether every trial asked for is done."""
    return len(past) >= n_trials(problem)
