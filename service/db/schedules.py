"""Queries on schedules and their runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db.queries import UNFINISHED_STATES
from service.db.rows import Cursor, VersionCheck, any_version, get_row, locked_row, newest_first
from service.db.session import clock_s
from service.db.tables import Schedule, ScheduleRun, Study, UploadedWorkload

Document = dict[str, Any]


def add_schedule(session: Session, schedule_id: str, fields: Document) -> Schedule:
    """Add an active schedule; one that is there under this id is returned as it is."""
    known = session.get(Schedule, schedule_id)
    if known is None:
        known = Schedule(id=schedule_id, state="active", version=1, created_at_s=clock_s(session), **fields)
        session.add(known)
        session.flush()
    return known


def get_schedule(session: Session, schedule_id: str) -> Schedule:
    """Return the schedule, or raise NotFoundError."""
    return get_row(session, Schedule, "schedule", schedule_id)


def locked_schedule(session: Session, schedule_id: str, is_wanted: VersionCheck = any_version) -> Schedule:
    """Return the schedule with its row locked."""
    schedule: Schedule = locked_row(session, Schedule, "schedule", schedule_id, is_wanted)
    return schedule


def count_schedules(session: Session, owner: str) -> int:
    """Number of schedules of one owner."""
    query = sa.select(sa.func.count()).select_from(Schedule)
    return session.scalar(query.where(Schedule.owner == owner)) or 0


def list_schedules(session: Session, before: Cursor | None, limit: int) -> list[Schedule]:
    """Return schedules, newest first, that come after a cursor."""
    return newest_first(session, Schedule, sa.select(Schedule), before, limit)


def delete_schedule(session: Session, schedule_id: str, is_wanted: VersionCheck = any_version) -> None:
    """Remove a schedule with the record of its runs; their studies stay in the history."""
    locked_schedule(session, schedule_id, is_wanted)
    session.execute(sa.delete(ScheduleRun).where(ScheduleRun.schedule_id == schedule_id))
    session.execute(sa.delete(Schedule).where(Schedule.id == schedule_id))


def due_schedules(session: Session, now_s: float) -> list[str]:
    """Return the ids of active schedules whose next fire has come."""
    query = sa.select(Schedule.id).where(Schedule.state == "active", Schedule.next_fire_at_s <= now_s)
    return list(session.scalars(query.order_by(Schedule.next_fire_at_s)))


def add_run(
    session: Session, schedule_id: str, fire_at_s: float, kind: str, study_id: str | None, skipped_because: str | None
) -> bool:
    """Note a fire and return whether it is new: one time fires once, whatever asked for it."""
    if session.get(ScheduleRun, (schedule_id, fire_at_s)) is not None:
        return False
    session.add(
        ScheduleRun(
            schedule_id=schedule_id, fire_at_s=fire_at_s, kind=kind, study_id=study_id,
            skipped_because=skipped_because, created_at_s=clock_s(session),
        )
    )  # fmt: skip
    session.flush()
    return True


def list_runs(session: Session, schedule_id: str, before_s: float | None, limit: int) -> list[tuple[ScheduleRun, Any]]:
    """Return the runs of a schedule with the state of their studies, the latest fire first."""
    query = sa.select(ScheduleRun, Study.state).outerjoin(Study, Study.id == ScheduleRun.study_id)
    query = query.where(ScheduleRun.schedule_id == schedule_id).order_by(ScheduleRun.fire_at_s.desc()).limit(limit)
    if before_s is not None:
        query = query.where(ScheduleRun.fire_at_s < before_s)
    return [(row[0], row[1]) for row in session.execute(query)]


def runs_to_start(session: Session, limit: int) -> list[ScheduleRun]:
    """Return runs whose study has not been queued yet, the earliest fire first."""
    query = sa.select(ScheduleRun).outerjoin(Study, Study.id == ScheduleRun.study_id)
    query = query.where(ScheduleRun.study_id.is_not(None), Study.id.is_(None), ScheduleRun.skipped_because.is_(None))
    return list(session.scalars(query.order_by(ScheduleRun.fire_at_s).limit(limit)))


def unfinished_studies(session: Session, schedule_id: str) -> list[str]:
    """Return the studies of earlier runs that have not ended."""
    query = sa.select(Study.id).join(ScheduleRun, ScheduleRun.study_id == Study.id)
    query = query.where(ScheduleRun.schedule_id == schedule_id, Study.state.in_(UNFINISHED_STATES))
    return list(session.scalars(query.order_by(Study.created_at_s)))


def skip_run(session: Session, schedule_id: str, fire_at_s: float, reason: str) -> None:
    """Note that a run starts no study."""
    session.execute(
        sa.update(ScheduleRun)
        .where(ScheduleRun.schedule_id == schedule_id, ScheduleRun.fire_at_s == fire_at_s)
        .values(skipped_because=reason, study_id=None)
    )


def previous_study(session: Session, run: ScheduleRun) -> str | None:
    """Return the study of the last run before this one that has succeeded."""
    query = sa.select(ScheduleRun.study_id).join(Study, Study.id == ScheduleRun.study_id)
    query = query.where(
        ScheduleRun.schedule_id == run.schedule_id, ScheduleRun.fire_at_s < run.fire_at_s, Study.state == "succeeded"
    )
    return session.scalar(query.order_by(ScheduleRun.fire_at_s.desc()).limit(1))


def runs_to_compare(session: Session, limit: int) -> list[tuple[ScheduleRun, str]]:
    """Return runs that have succeeded and are not yet compared, each with the study before it."""
    query = sa.select(ScheduleRun).join(Study, Study.id == ScheduleRun.study_id)
    query = query.where(Study.state == "succeeded", ScheduleRun.drift.is_(None)).order_by(ScheduleRun.fire_at_s)
    found = [(run, previous_study(session, run)) for run in session.scalars(query.limit(500))]
    return [(run, study_id) for run, study_id in found if study_id is not None][:limit]


def store_drift(session: Session, schedule_id: str, fire_at_s: float, drift: Document) -> None:
    """Keep the comparison of a run with the one before it, unless there is one already."""
    session.execute(
        sa.update(ScheduleRun)
        .where(ScheduleRun.schedule_id == schedule_id, ScheduleRun.fire_at_s == fire_at_s, ScheduleRun.drift.is_(None))
        .values(drift=drift)
    )


def latest_workloads(session: Session, names: Sequence[str]) -> dict[str, str]:
    """Return the id of the newest uploaded workload of each name."""
    query = sa.select(UploadedWorkload.name, UploadedWorkload.id).where(UploadedWorkload.name.in_(names))
    return {row.name: row.id for row in session.execute(query.order_by(UploadedWorkload.created_at_s))}
