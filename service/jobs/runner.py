"""Runs one attempt of a study chunk by chunk; every function may run twice and writes once."""

from __future__ import annotations

import functools
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import structlog
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from explorer.explanation.asked import Asked
from explorer.outside import is_outside
from service import outside
from service.db import queries, shards
from service.db.design_rows import find_judged
from service.db.rows import NotFoundError
from service.db.session import Database, reading, writing
from service.engine import Document, Others, StudyEngine
from service.stored_inputs import prepare_study

LOG = structlog.get_logger("chipfit.jobs")

_RETRY_AFTER_S = 0.5
_SHARD_POLL_S = 0.2
_KEPT_STUDIES = 4

T = TypeVar("T")


class DrainedError(BaseException):
    """Unwinds a workflow at a step boundary while the process stops; its recorded steps stay as they are."""


@dataclass
class StudyCache:
    """What a process remembers of studies it runs, so that a chunk need not read them again."""

    problems: dict[str, Any] = field(default_factory=dict)
    records: dict[str, tuple[int, list[Any]]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def keep(self, study_id: str, problem: Any) -> None:
        """Keep a prepared problem; the one kept longest goes when there are too many."""
        with self.lock:
            while len(self.problems) >= _KEPT_STUDIES:
                self.problems.pop(next(iter(self.problems)))
            self.problems[study_id] = problem

    def forget(self, study_id: str) -> None:
        """Drop a study that has ended."""
        with self.lock:
            for key in [key for key in self.problems if key.startswith(study_id)]:
                self.problems.pop(key)
            self.records.pop(study_id, None)


@dataclass(frozen=True)
class SearchedChunk:
    """The records of a chunk, whether they are the last, the time they took, and how they relate to the history."""

    records: list[Any]
    is_last: bool
    busy_s: float
    judged_under: tuple[str, str] | None
    from_history: int


@dataclass(frozen=True)
class StudyRunner:
    """The steps of a study on one database with one engine."""

    database: Database
    engine: StudyEngine
    stopping: threading.Event
    others: Others = tuple
    """Processes that may help with a study."""
    cache: StudyCache = field(default_factory=StudyCache)

    def begin(self, study_id: str, attempt: int) -> Document:
        """Mark the attempt as running; the answer says at which chunk it begins."""

        def act() -> Document:
            if attempt > 1:  # the study may have been extended since
                self.cache.forget(study_id)
            problem = self.problem(study_id)
            chunks, timeout_s = self._chunks_planned(problem, attempt), self.engine.timeout_s(problem)
            work = self.engine.workload_hash(problem)
            first = self._write(
                lambda session: queries.begin_attempt(session, study_id, attempt, chunks, timeout_s, work)
            )
            if first is None:
                return {"state": "stopped"}
            return {"state": "running", "chunk": first, "shards": self.engine.n_shards(problem)}

        return self._guarded(study_id, attempt, act)

    def run_shard(self, study_id: str, attempt: int, shard: int) -> Document:
        """Work out one shard of a study's proof and store what it found, wherever the study itself runs."""

        def is_wanted() -> bool:
            if self.stopping.is_set():
                raise DrainedError
            return self._read(lambda session: queries.is_running(session, study_id, attempt))

        def act() -> Document:
            if self._read(lambda session: shards.has_outcome(session, study_id, shard)):
                return {"state": "done"}
            outcome = self.engine.run_shard(self.problem(study_id, "shards"), shard, is_wanted) if is_wanted() else None
            if outcome is None:
                return {"state": "stopped"}
            self._write(lambda session: shards.store_outcome(session, study_id, shard, dict(outcome)))
            return {"state": "done"}

        return self._guarded(study_id, attempt, act)

    def run_chunk(self, study_id: str, attempt: int, chunk: int) -> Document:
        """Run and record one chunk; the answer says whether another one follows."""

        def act() -> Document:
            if not self._shards_are_there(study_id, attempt, chunk):
                self.cache.forget(study_id)
                return {"state": "stopped"}
            found = self._search(study_id, attempt, chunk)
            rows = [record.as_json() for record in found.records]
            under, taken = found.judged_under, found.from_history
            busy_s = self._write(
                lambda session: queries.record_chunk(
                    session, study_id, attempt, chunk, rows, found.busy_s, under, taken
                )
            )
            if busy_s is None:
                self.cache.forget(study_id)
                return {"state": "stopped"}
            out_of_time = busy_s >= self.engine.timeout_s(self.problem(study_id))
            return {"state": "finished" if found.is_last or out_of_time else "running", "n_trials": len(rows)}

        return self._guarded(study_id, attempt, act)

    def finish(self, study_id: str, attempt: int) -> Document:
        """Make the result from all records and store it."""

        def act() -> Document:
            result = self.engine.final_document(self.problem(study_id), self.records(study_id, None))
            self._write(lambda session: queries.finish_attempt(session, study_id, attempt, result, None))
            self.cache.forget(study_id)
            return {"state": "succeeded"}

        return self._guarded(study_id, attempt, act)

    def result_so_far(self, study_id: str) -> Document:
        """The result of the trials recorded so far, empty where there is none."""
        study = self._read(lambda session: queries.get_study(session, study_id))
        if is_outside(study.document):
            return self._read(lambda session: outside.result_so_far(session, study))
        records = self.records(study_id, None)
        return self.engine.result_document(self.problem(study_id), records) if records else {}

    def explanation(self, study_id: str, asked: Asked) -> Document:
        """Why a design of a study, or a chip on its work, does what it does; empty where nothing is feasible yet."""
        return self.engine.explain(self.problem(study_id), self.records(study_id, None), asked)

    def problem(self, study_id: str, use: str = "") -> Any:
        """The prepared problem of a study; each use has one of its own, since one fills up as it is worked with."""
        key = f"{study_id}{use}"
        with self.cache.lock:
            known = self.cache.problems.get(key)
        if known is not None:
            return known
        made = self._read(lambda session: self._prepared(session, study_id))
        self.cache.keep(key, made)
        return made

    def _shards_are_there(self, study_id: str, attempt: int, chunk: int) -> bool:
        """Wait for the shards that a chunk rests on; False where the attempt has ended meanwhile."""
        n_shards = self.engine.n_shards(self.problem(study_id))
        while n_shards and self._outcomes(study_id, min(chunk + 1, n_shards)) is None:
            if not self._read(lambda session: queries.is_running(session, study_id, attempt)):
                return False
            if self.stopping.wait(_SHARD_POLL_S):
                raise DrainedError
        return True

    def _outcomes(self, study_id: str, count: int) -> list[Document] | None:
        return self._read(lambda session: shards.outcomes_before(session, study_id, count))

    def _prepared(self, session: Session, study_id: str) -> Any:
        study = queries.get_study(session, study_id)
        problem = prepare_study(session, self.engine, study.document)
        return self.engine.with_warm_start(problem, study.warm_start["designs"]) if study.warm_start else problem

    def records(self, study_id: str, chunk: int | None) -> list[Any]:
        """The records of all chunks before `chunk` (or of all chunks) in trial order."""
        with self.cache.lock:
            known_chunk, known = self.cache.records.get(study_id, (-1, []))
        if chunk is not None and known_chunk == chunk:
            return known
        rows = self._read(lambda session: queries.records_before(session, study_id, chunk))
        return [self.engine.record_from_json(row) for row in rows]

    def _search(self, study_id: str, attempt: int, chunk: int) -> SearchedChunk:
        """Run a chunk; what an equal study has judged before is taken over."""
        problem, past = self.problem(study_id), self.records(study_id, chunk)
        judged_under, taken = self._judged_under(problem), 0

        def lookup(params: Sequence[Mapping[str, Any]]) -> Mapping[int, Document]:
            nonlocal taken
            assert judged_under is not None
            found = self._read(lambda session: find_judged(session, judged_under, params))
            taken += len(found)
            return found

        self.engine.join_team(problem, self.others)
        self.engine.catch_up(problem, chunk)
        began_s = time.perf_counter()
        asked = problem if judged_under is None else self.engine.with_history(problem, lookup)
        if n_shards := self.engine.n_shards(problem):
            asked = self.engine.with_outcomes(asked, self._outcomes(study_id, min(chunk + 1, n_shards)) or [])
        records = self.engine.run_chunk(asked, past, chunk)
        busy_s = time.perf_counter() - began_s
        together = [*past, *records]
        with self.cache.lock:
            self.cache.records[study_id] = (chunk + 1, together)
        is_last = chunk + 1 >= self._chunks_planned(problem, attempt) or self.engine.is_finished(problem, together)
        return SearchedChunk(records, is_last, busy_s, judged_under, taken)

    def _chunks_planned(self, problem: Any, attempt: int) -> int:
        """Chunks in all: before an extension the last one may have been smaller than the others."""
        return self.engine.n_chunks(problem) + attempt - 1

    def _judged_under(self, problem: Any) -> tuple[str, str] | None:
        """Model version and workload under which a study's records serve equal ones, None where they do not."""
        if not self.engine.judges_freely(problem):
            return None
        return self.engine.model_version, self.engine.workload_hash(problem)

    def _guarded(self, study_id: str, attempt: int, act: Callable[[], Document]) -> Document:
        """Run a step; what it raises ends the study as failed, with the traceback in the log."""
        try:
            return act()
        except NotFoundError:
            return {"state": "stopped"}
        except Exception as error:
            LOG.error("study failed", study_id=study_id, attempt=attempt, traceback=traceback.format_exc())
            message = f"{type(error).__name__}: {error}"
        self._write(lambda session: queries.finish_attempt(session, study_id, attempt, None, message))
        self.cache.forget(study_id)
        return {"state": "failed"}

    def _read(self, read: Callable[[Any], T]) -> T:
        return self._patiently(functools.partial(_in_session, reading, self.database, read))

    def _write(self, write: Callable[[Any], T]) -> T:
        return self._patiently(functools.partial(_in_session, writing, self.database, write))

    def _patiently(self, act: Callable[[], T]) -> T:
        """Repeat a transaction while the database is away or its disk is full: a study outlives both."""
        while True:
            try:
                return act()
            except OperationalError as error:
                reason = " ".join(str(error.orig).split())
                LOG.warning("database unavailable, trying again", reason=reason)
            if self.stopping.wait(_RETRY_AFTER_S):
                raise DrainedError


def _in_session(transaction: Callable[..., Any], database: Database, act: Callable[[Any], T]) -> T:
    with transaction(database) as session:
        return act(session)
