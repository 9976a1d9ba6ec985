"""A study in chunks: each is a pure function of the problem, the earlier trials and its number."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from explorer.bottleneck import alternative_of
from explorer.bounds import is_boundable, require_boundable
from explorer.document import StudyDocument, StudyError, read_document
from explorer.enumeration import enumerated_certificate
from explorer.filling import filled, filled_parameters
from explorer.inputs import Inputs
from explorer.nearest import nearest_to_feasible
from explorer.problem import Problem, judge_points
from explorer.problem import prepare as prepare_problem
from explorer.proof import FIRST_PROPOSALS, PROPOSALS_PER_CHUNK, Proof, proof_after
from explorer.records import TrialRecord, record_from_json, records_of
from explorer.samplers import (
    AUTO,
    BATCH_TRIALS,
    EXACT,
    EXHAUSTIVE,
    ONE_OBJECTIVE,
    SAMPLER_NAMES,
    Asker,
    distinct,
    seed_of,
    seen_points,
    unseen,
)
from explorer.shards import MergedProof, merged_proof, require_a_trial_for_each_shard, shards_of
from explorer.space import point_of
from explorer.stall import is_stalled
from explorer.warm_start import judged_records
from explorer.work_limits import require_enumerable, require_few_roots
from models.checks import IntArray, UnknownNameError, require_known
from models.serving.steady import CompiledServing

CHUNK_TRIALS = 20
"""Trials that are proposed, judged and stored together: 0.1 to 1 s of work."""

FILLS = "tpe"
"""Sampler whose proposals leave some parameters to a rule."""

MAX_FINAL_PROPOSALS = 200
"""Members of a proven front that are judged in the last chunk."""

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
    name = study.search.sampler
    try:
        require_known("sampler", name, SAMPLER_NAMES)
    except UnknownNameError as error:
        raise StudyError([{"pointer": "/search/sampler", "detail": str(error)}]) from None
    if name in ONE_OBJECTIVE and len(study.objectives) > 1:
        detail = f"must not be {name!r} with {len(study.objectives)} objectives: it follows one"
        raise StudyError([{"pointer": "/search/sampler", "detail": detail}])
    return study


def prepare(document: StudyDocument, inputs: Inputs = None, team: list[Any] | None = None) -> Problem:
    """
    Return the problem of a study; see `explorer.problem.prepare`.

    Raises
    ------
    StudyError
        If a field is at fault, the exact sampler is asked for an objective that cannot be bounded, or the search
        would be more work than one may be.
    """
    problem = prepare_problem(document, inputs, team)
    sampler = sampler_of(problem)
    if sampler == EXACT:
        require_boundable(problem.objectives)
        require_few_roots(problem)
        require_a_trial_for_each_shard(problem)
    if sampler == EXHAUSTIVE:
        require_enumerable(problem)
    return problem


def n_trials(problem: Problem) -> int:
    """Trials the study asks for, at most the designs of its space."""
    return min(problem.document.search.trials, problem.space.n_designs)


def sampler_of(problem: Problem) -> str:
    """The sampler a study uses: `auto` is exact where every objective can be bounded, else TPE."""
    name = problem.document.search.sampler
    if name != AUTO:
        return name
    return EXACT if all(is_boundable(objective) for objective in problem.objectives) else "tpe"


def n_chunks(problem: Problem) -> int:
    """Chunks that the study's trials make at most."""
    if sampler_of(problem) == EXACT:
        return n_shards(problem) or n_trials(problem)
    warm = min(_n_warm(problem), n_trials(problem))
    return math.ceil(warm / CHUNK_TRIALS) + math.ceil((n_trials(problem) - warm) / CHUNK_TRIALS)


def _n_warm(problem: Problem) -> int:
    return 0 if problem.warm_points is None else len(problem.warm_points)


def judges_freely(problem: Problem) -> bool:
    """Whether every trial is judged at its own best operating point, so that its record serves equal studies."""
    return sampler_of(problem) != EXACT


def timeout_s(problem: Problem) -> float:
    """Search time after which a study ends with what it has, that of every shard of a sharded proof together [s]."""
    return float(problem.document.search.timeout) * max(1, n_shards(problem))


def n_shards(problem: Problem) -> int:
    """Shards that workers may share, one for each chunk; 0 where the study is not sharded."""
    return len(shards_of(problem)) if sampler_of(problem) == EXACT else 0


def run_chunk(problem: Problem, past: Sequence[TrialRecord], chunk: int) -> list[TrialRecord]:
    """
    Return the records of one chunk: the same past and number give the same records.

    (But for the wall time in a certificate.)
    """
    left = n_trials(problem) - len(past)
    if left <= 0:
        return []
    sampler = sampler_of(problem)
    if sampler == EXACT:
        return _run_exact_chunk(problem, past, chunk, left)
    count = min(CHUNK_TRIALS, left)
    if problem.warm_points is not None and len(past) < len(problem.warm_points):
        return judged_records(problem, problem.warm_points[len(past) : len(past) + count], len(past))
    records = _asked_records(problem, sampler, past, chunk, count)
    if sampler == EXHAUSTIVE and len(past) + len(records) == problem.space.n_designs:
        whole = enumerated_certificate(problem, [*past, *records])
        return [*records[:-1], dataclasses.replace(records[-1], certificate=whole)]
    return records


def catch_up(problem: Problem, chunk: int) -> None:
    """Do again what the chunks before this one proved, where another process did that: its time is counted already."""
    if sampler_of(problem) == EXACT and not n_shards(problem):
        proof_after(problem, chunk)


def _asked_records(
    problem: Problem, sampler: str, past: Sequence[TrialRecord], chunk: int, count: int
) -> list[TrialRecord]:
    """Ask a sampler for new designs, batch by batch, fill what a rule fills better, and judge them."""
    seed, filled_names = problem.document.search.seed, filled_parameters(problem) if sampler == FILLS else ()
    asker = Asker(sampler, problem.space, problem.objectives, past, seed, filled_names)
    seen = seen_points(problem.space, past)
    records: list[TrialRecord] = []
    while len(records) < count:
        seeds, number = [seed, chunk, len(records)], len(past) + len(records)
        points = asker.ask(seed_of(seeds), min(BATCH_TRIALS.get(sampler, count), count - len(records)))
        if sampler == FILLS:
            points = filled(problem, points, number, set(seen))
        points = distinct(points, problem.space, seen, np.random.default_rng([*seeds, 1]))
        found = judged_records(problem, points, number)
        asker.learn(found)
        records += found
    return records


def _run_exact_chunk(problem: Problem, past: Sequence[TrialRecord], chunk: int, left: int) -> list[TrialRecord]:
    """Advance the proof by a chunk and judge the designs it points at."""
    shards = n_shards(problem)
    if shards and chunk >= shards:
        return []
    proof = merged_proof(problem, chunk + 1) if shards else proof_after(problem, chunk + 1)
    kept_for_later = max(0, shards - chunk - 1)
    wanted = FIRST_PROPOSALS + _n_warm(problem) if chunk == 0 else PROPOSALS_PER_CHUNK
    limit = min(left - kept_for_later, wanted)
    if proof.complete:
        limit = min(left, max(limit, MAX_FINAL_PROPOSALS))
    points, alternatives = _proposals(problem, past, proof, limit, chunk)
    if not len(points):
        return []
    records = records_of(problem, points, judge_points(problem, points, alternatives), len(past))
    return [*records[:-1], dataclasses.replace(records[-1], certificate=proof.certificate())]


def _proposals(
    problem: Problem, past: Sequence[TrialRecord], proof: Proof | MergedProof, limit: int, chunk: int
) -> tuple[IntArray, IntArray]:
    """
    New designs worth a trial: incumbents first, then (to begin with, or to fill up) promising ones.

    With several objectives a design may be on the front at two operating points; each of them is a trial then, so
    that the reported front is the proven one.
    """
    seen = {tuple(point_of(problem.space, record.params)) for record in past}
    operated = _operated(problem, past)
    wanted = list(proof.incumbents())
    if chunk == 0 and problem.warm_points is not None:
        wanted = [(point, -1) for point in problem.warm_points] + wanted
    if proof.complete and not wanted:
        wanted = _samples(problem)
    if chunk == 0 or proof.complete:
        wanted += proof.fillers()
    chosen: list[tuple[IntArray, int]] = []
    for point, alternative in wanted:
        key = tuple(point)
        known = key in seen if operated is None or alternative < 0 else (key, alternative) in operated
        if len(chosen) < limit and not known:
            seen.add(key)
            if operated is not None:
                operated.add((key, alternative))
            chosen.append((point, alternative))
    if not chosen:
        chosen = [_further(problem, proof, seen, chunk)]
    return np.array([p for p, _ in chosen]), np.array([a for _, a in chosen])


def _operated(problem: Problem, past: Sequence[TrialRecord]) -> set[tuple[tuple[int, ...], int]] | None:
    """Designs with the alternatives they were judged at; None where only designs are told apart."""
    compiled = problem.scenarios[0]
    if len(problem.objectives) == 1 or len(problem.scenarios) > 1 or not isinstance(compiled, CompiledServing):
        return None
    return {
        (tuple(point_of(problem.space, record.params)), alternative_of(compiled, record.operating_point))
        for record in past
    }


def _further(
    problem: Problem, proof: Proof | MergedProof, seen: set[tuple[int, ...]], chunk: int
) -> tuple[IntArray, int]:
    """One more new design, so that every chunk has a trial that carries its certificate."""
    for point, alternative in proof.fillers():
        if tuple(point) not in seen:
            return point, alternative
    rng = np.random.default_rng([problem.document.search.seed, chunk])
    return unseen(rng.integers(0, problem.space.sizes), problem.space, seen, rng), -1


def _samples(problem: Problem) -> list[tuple[IntArray, int]]:
    """Designs that tell what binds where nothing is feasible: the nearest found, the cheapest corner, random ones."""
    rng = np.random.default_rng(problem.document.search.seed)
    n_parameters = len(problem.space.parameters)
    points = rng.integers(0, problem.space.sizes, size=(FIRST_PROPOSALS - 2, n_parameters))
    points = np.concatenate([np.zeros((1, n_parameters), dtype=np.int64), points])
    return [(point, -1) for point in (nearest_to_feasible(problem, points), *points)]


def is_finished(problem: Problem, past: Sequence[TrialRecord]) -> bool:
    """Whether every trial asked for is done, everything asked for is proven, or a sampler has stalled."""
    certificate = past[-1].certificate if past else None
    proven = certificate is not None and all(entry["complete"] for entry in certificate)
    several = len(problem.objectives) > 1
    whole = certificate is not None and len(certificate) == len(problem.objectives) + several
    return len(past) >= n_trials(problem) or (proven and whole) or _has_stalled(problem, past)


def _has_stalled(problem: Problem, past: Sequence[TrialRecord]) -> bool:
    """Whether a sampler finds nothing better any more; a proof goes on, since its gap still falls."""
    window = problem.document.search.stall_trials
    return window is not None and sampler_of(problem) != EXACT and is_stalled(problem.objectives, past, window)
