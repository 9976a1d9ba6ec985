"""Queries on studies, their designs and events. Each takes a session and plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session, defer

from service.db.design_rows import RECORD_COLUMNS, WITH_RECORDS, insert_designs, records_of
from service.db.rows import (
    ConflictError,
    Cursor,
    NotFoundError,
    VersionCheck,
    any_version,
    get_row,
    locked_row,
    newest_first,
)
from service.db.session import clock_s
from service.db.shards import drop_outcomes
from service.db.tables import EvaluationAnswer, Study, StudyEvent, StudyInput, design_records, designs

Document = dict[str, Any]

UNFINISHED_STATES = ("queued", "running")
FINISHED_STATES = ("succeeded", "failed", "cancelled")


def create_study(
    session: Session,
    study_id: str,
    name: str,
    document: Document,
    model_version: str,
    owner: str = "",
    workload_hash: str = "",
    warm_start: Document | None = None,
    queue: str = "studies",
    priority: int = 100,
) -> Study:
    """Add a study in state `queued` with its first event; one that is there under this id is returned as it is."""
    known = session.get(Study, study_id)
    if known is not None:
        return known
    now_s = clock_s(session)
    study = Study(
        id=study_id, name=name, owner=owner, state="queued", attempt=1, enqueued_attempt=0, version=1,
        document=document, model_version=model_version, workload_hash=workload_hash, warm_start=warm_start,
        queue=queue, priority=priority, chunks_planned=None,
        timeout_s=None, chunks_done=0,
        trials_done=0, feasible_done=0, busy_s=0.0, result=None, error=None,
        created_at_s=now_s, started_at_s=None, finished_at_s=None,
    )  # fmt: skip
    session.add(study)
    session.flush()
    add_event(session, study, "queued-1", "state")
    return study


def get_study(session: Session, study_id: str) -> Study:
    """Return the study, or raise NotFoundError."""
    return get_row(session, Study, "study", study_id)


def count_unfinished(session: Session, owner: str) -> int:
    """Number of queued and running studies of one owner."""
    query = sa.select(sa.func.count()).select_from(Study)
    return session.scalar(query.where(Study.owner == owner, Study.state.in_(UNFINISHED_STATES))) or 0


def count_by_state(session: Session) -> dict[str, int]:
    """Number of studies in each state that occurs."""
    rows = session.execute(sa.select(Study.state, sa.func.count()).group_by(Study.state)).all()
    return {row[0]: row[1] for row in rows}


def study_state(session: Session, study_id: str) -> str:
    """Return the state alone, or raise NotFoundError."""
    state = session.scalar(sa.select(Study.state).where(Study.id == study_id))
    if state is None:
        raise NotFoundError(f"unknown study '{study_id}'")
    return state


@dataclass(frozen=True)
class StudyChoice:
    """Which studies a list holds; what is None does not matter."""

    state: str | None = None
    name_contains: str | None = None
    workload_hash: str | None = None
    model_version: str | None = None
    created_from_s: float | None = None
    created_before_s: float | None = None
    queue: str | None = None

    def conditions(self) -> list[sa.ColumnElement[bool]]:
        """SQL of what matters."""
        name = self.name_contains
        asked: list[tuple[Any, sa.ColumnElement[bool]]] = [
            (self.state, Study.state == self.state),
            (self.workload_hash, Study.workload_hash == self.workload_hash),
            (self.model_version, Study.model_version == self.model_version),
            (self.created_from_s, Study.created_at_s >= (self.created_from_s or 0.0)),
            (self.created_before_s, Study.created_at_s < (self.created_before_s or 0.0)),
            (self.queue, Study.queue == self.queue),
            (name, Study.name.icontains(name or "", autoescape=True)),
        ]
        return [condition for value, condition in asked if value is not None]


def list_studies(session: Session, chosen: StudyChoice, before: Cursor | None, limit: int) -> list[Study]:
    """Return studies without results, newest first, that come after a cursor."""
    query = sa.select(Study).options(defer(Study.result, raiseload=True)).where(*chosen.conditions())
    return newest_first(session, Study, query, before, limit)


def latest_succeeded(session: Session, limit: int) -> list[Study]:
    """Return the newest studies that have succeeded, without results."""
    query = sa.select(Study).options(defer(Study.result, raiseload=True)).where(Study.state == "succeeded")
    return newest_first(session, Study, query, None, limit)


def studies_with_results(session: Session, ids: Sequence[str]) -> list[Study]:
    """Return those of the studies that exist, with their results, in the order of their ids."""
    query = sa.select(Study).where(Study.id.in_(ids)).execution_options(populate_existing=True)
    found = {study.id: study for study in session.scalars(query)}
    return [found[study_id] for study_id in ids if study_id in found]


def extend_study(session: Session, study_id: str, document: Document, is_wanted: VersionCheck = any_version) -> Study:
    """Queue a finished study again with a document that asks for more; it goes on after its last recorded chunk."""
    study = locked_study(session, study_id, is_wanted)
    if study.state not in FINISHED_STATES:
        raise ConflictError(f"study '{study_id}' is {study.state}: only a finished study is extended")
    study.document = document
    study.state, study.error, study.result, study.finished_at_s = "queued", None, None, None
    study.attempt += 1
    study.version += 1
    add_event(session, study, f"queued-{study.attempt}", "state")
    return study


def delete_study(session: Session, study_id: str, is_wanted: VersionCheck = any_version) -> None:
    """Remove a finished study with everything it holds."""
    study = locked_study(session, study_id, is_wanted)
    if study.state in UNFINISHED_STATES:
        raise ConflictError(f"study '{study_id}' is {study.state}: cancel it before deleting it")
    for table in (design_records, designs):
        session.execute(sa.delete(table).where(table.c.study_id == study_id))
    session.execute(sa.delete(StudyEvent).where(StudyEvent.study_id == study_id))
    session.execute(sa.delete(StudyInput).where(StudyInput.study_id == study_id))
    drop_outcomes(session, study_id)
    session.execute(sa.delete(Study).where(Study.id == study_id))


def cancel_study(session: Session, study_id: str, is_wanted: VersionCheck = any_version) -> Study:
    """Turn a queued or running study into a cancelled one; what runs of it may write nothing any more."""
    study = locked_study(session, study_id, is_wanted)
    if study.state == "cancelled":
        return study
    if study.state not in UNFINISHED_STATES:
        raise ConflictError(f"study '{study_id}' has {study.state} and cannot be cancelled")
    return end_study(session, study, "cancelled")


def resume_study(session: Session, study_id: str, is_wanted: VersionCheck = any_version) -> Study:
    """Queue a cancelled or failed study again; it goes on after its last recorded chunk."""
    study = locked_study(session, study_id, is_wanted)
    if study.state not in ("cancelled", "failed"):
        raise ConflictError(f"study '{study_id}' is {study.state}: only a cancelled or failed study resumes")
    study.state, study.error, study.finished_at_s = "queued", None, None
    study.attempt += 1
    study.version += 1
    add_event(session, study, f"queued-{study.attempt}", "state")
    return study


def begin_attempt(
    session: Session, study_id: str, attempt: int, chunks_planned: int, timeout_s: float, workload_hash: str = ""
) -> int | None:
    """Mark the attempt as running and return the chunks already done, or None if it must not run."""
    study = _current_attempt(session, study_id, attempt)
    if study is None:
        return None
    if study.state == "queued":
        study.state = "running"
        study.chunks_planned, study.timeout_s = chunks_planned, timeout_s
        study.workload_hash = study.workload_hash or workload_hash
        study.started_at_s = study.started_at_s or clock_s(session)
        study.version += 1
        add_event(session, study, f"running-{attempt}", "state")
    return study.chunks_done


def is_running(session: Session, study_id: str, attempt: int) -> bool:
    """Whether an attempt is the present one of its study and runs."""
    query = sa.select(Study.id).where(Study.id == study_id, Study.attempt == attempt, Study.state == "running")
    return session.scalar(query) is not None


def record_chunk(
    session: Session,
    study_id: str,
    attempt: int,
    chunk: int,
    records: Sequence[Document],
    chunk_s: float,
    judged_under: tuple[str, str] | None = None,
    from_history: int = 0,
) -> float | None:
    """
    Write the records of one chunk with its progress event; return the search time so far [s].

    A chunk that is already there is left as it is, so that a step which runs twice doubles nothing. None means that
    the attempt must stop. `judged_under` says for which studies the records will serve, `from_history` how many of
    them another study left.
    """
    study = _current_attempt(session, study_id, attempt)
    if study is None or study.state != "running":
        return None
    if study.chunks_done < chunk:
        raise ConflictError(f"study '{study_id}' has {study.chunks_done} chunks and cannot record chunk {chunk}")
    if study.chunks_done == chunk:
        insert_designs(session, study_id, chunk, records, judged_under)
        study.chunks_done = chunk + 1
        study.trials_done += len(records)
        study.feasible_done += sum(bool(record["feasible"]) for record in records)
        study.from_history_done += from_history
        study.busy_s += chunk_s
        study.version += 1
        add_event(session, study, f"chunk-{chunk}", "progress")
    return study.busy_s


def finish_attempt(session: Session, study_id: str, attempt: int, result: Document | None, error: str | None) -> None:
    """Store the result or the error of a running attempt; nothing if another attempt or a cancel came first."""
    study = _current_attempt(session, study_id, attempt)
    if study is not None:
        study.result = None if result is None else {**result, "wall_s": study.busy_s}
        study.error = error
        end_study(session, study, "failed" if result is None else "succeeded")


def records_before(session: Session, study_id: str, chunk: int | None = None) -> list[Document]:
    """Return the records of all chunks before `chunk` (or of all chunks) in trial order."""
    query = sa.select(*RECORD_COLUMNS).select_from(WITH_RECORDS).where(designs.c.study_id == study_id)
    if chunk is not None:
        query = query.where(designs.c.chunk < chunk)
    return list(records_of(session.execute(query.order_by(designs.c.number)).all()))


def list_trials(
    session: Session, study_id: str, after_number: int, limit: int, feasible: bool | None
) -> list[Document]:
    """Return records of one study by trial number, beginning behind `after_number`."""
    query = sa.select(*RECORD_COLUMNS).select_from(WITH_RECORDS)
    query = query.where(designs.c.study_id == study_id, designs.c.number > after_number)
    if feasible is not None:
        query = query.where(designs.c.feasible == feasible)
    return list(records_of(session.execute(query.order_by(designs.c.number).limit(limit)).all()))


def events_after(session: Session, study_id: str, event_id: int, limit: int = 500) -> list[StudyEvent]:
    """Return the events of a study that follow an event id, oldest first."""
    query = sa.select(StudyEvent).where(StudyEvent.study_id == study_id, StudyEvent.id > event_id)
    return list(session.scalars(query.order_by(StudyEvent.id).limit(limit)))


@dataclass(frozen=True)
class WaitingStudy:
    """A queued study whose attempt no job has been made for."""

    id: str
    attempt: int
    queue: str
    priority: int


def studies_to_enqueue(session: Session) -> list[WaitingStudy]:
    """Return the studies that wait for a job, the oldest first."""
    query = sa.select(Study.id, Study.attempt, Study.queue, Study.priority)
    query = query.where(Study.state == "queued", Study.enqueued_attempt < Study.attempt)
    return [WaitingStudy(*row) for row in session.execute(query.order_by(Study.created_at_s, Study.id))]


def mark_enqueued(session: Session, study_id: str, attempt: int) -> None:
    """Note that a job exists for this attempt."""
    session.execute(
        sa.update(Study).where(Study.id == study_id, Study.enqueued_attempt < attempt).values(enqueued_attempt=attempt)
    )


def enqueued_studies(session: Session) -> list[tuple[str, int]]:
    """Return (study id, attempt) of unfinished studies for whose attempt a job exists."""
    query = sa.select(Study.id, Study.attempt).where(
        Study.state.in_(UNFINISHED_STATES), Study.enqueued_attempt == Study.attempt
    )
    return [(row.id, row.attempt) for row in session.execute(query)]


def retry_study(session: Session, study_id: str, attempt: int) -> None:
    """Queue an unfinished study for its next attempt, unless that has happened already."""
    study = _current_attempt(session, study_id, attempt)
    if study is not None:
        study.state = "queued"
        study.attempt += 1
        study.version += 1
        add_event(session, study, f"queued-{study.attempt}", "state")


def find_answers(session: Session, keys: Sequence[str]) -> dict[str, Document]:
    """Return the stored answers of evaluations by their keys."""
    query = sa.select(EvaluationAnswer.key, EvaluationAnswer.answer).where(EvaluationAnswer.key.in_(keys))
    return {row.key: row.answer for row in session.execute(query)}


def store_answers(session: Session, model_version: str, answers: Mapping[str, Document]) -> None:
    """Keep the answers of evaluations; a second writer of the same key changes nothing."""
    dialect = postgresql if session.get_bind().dialect.name == "postgresql" else sqlite
    now_s = clock_s(session)
    rows = [{"key": key, "model_version": model_version, "answer": answer, "created_at_s": now_s}
            for key, answer in answers.items()]  # fmt: skip
    session.execute(dialect.insert(EvaluationAnswer).on_conflict_do_nothing(), rows)


def progress(study: Study) -> Document:
    """How far a study is, with the search time still to come [s]: by the mean pace of its chunks, or by its limit."""
    planned = study.chunks_planned
    eta_s = None
    if study.state == "running" and study.chunks_done and planned:
        eta_s = study.busy_s / study.chunks_done * max(0, planned - study.chunks_done)
        if study.timeout_s is not None:
            eta_s = min(eta_s, max(0.0, study.timeout_s - study.busy_s))
    return {
        "state": study.state, "chunks_done": study.chunks_done, "chunks_planned": planned,
        "trials_done": study.trials_done, "feasible_done": study.feasible_done,
        "from_history_done": study.from_history_done, "busy_s": study.busy_s, "eta_s": eta_s,
    }  # fmt: skip


def locked_study(session: Session, study_id: str, is_wanted: VersionCheck = any_version) -> Study:
    """Return the study, its row locked, so that its events get ids in the order of their commits."""
    study: Study = locked_row(session, Study, "study", study_id, is_wanted)
    return study


def _current_attempt(session: Session, study_id: str, attempt: int) -> Study | None:
    """Return the locked study if this attempt is its last one and unfinished."""
    study = session.scalar(sa.select(Study).where(Study.id == study_id).with_for_update())
    if study is None or study.attempt != attempt or study.state not in UNFINISHED_STATES:
        return None
    return study


def end_study(session: Session, study: Study, state: str) -> Study:
    """Turn a locked study into one of its final states."""
    study.state = state
    study.finished_at_s = clock_s(session)
    study.version += 1
    add_event(session, study, f"{state}-{study.attempt}", "state")
    return study


def add_event(session: Session, study: Study, key: str, kind: str) -> None:
    """Note that something happened to a study; its row is locked."""
    data = progress(study) | ({"error": study.error} if study.error else {})
    session.add(StudyEvent(study_id=study.id, key=key, kind=kind, data=data, created_at_s=clock_s(session)))
    session.flush()
