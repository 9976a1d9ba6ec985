"""Queries on the executors: who runs studies, and who has stopped saying so."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db.session import clock_s
from service.db.tables import Executor

_FORGET_AFTER_S = 3600.0


def beat(session: Session, executor_id: str, machine: str, pid: int, process_started: str, runs_studies: bool) -> None:
    """Note that an executor lives, by the database's clock; its first beat registers it."""
    now_s = clock_s(session)
    known = session.get(Executor, executor_id)
    if known is not None:
        known.heartbeat_at_s = now_s
        return
    session.add(
        Executor(
            id=executor_id,
            machine=machine,
            pid=pid,
            process_started=process_started,
            runs_studies=runs_studies,
            started_at_s=now_s,
            heartbeat_at_s=now_s,
        )
    )


def remove_executor(session: Session, executor_id: str) -> None:
    """Forget an executor that stops in order; what it had running is then free to be taken."""
    session.execute(sa.delete(Executor).where(Executor.id == executor_id))


def forget_old_executors(session: Session) -> None:
    """Forget executors that died long ago."""
    session.execute(sa.delete(Executor).where(Executor.heartbeat_at_s < clock_s(session) - _FORGET_AFTER_S))


def list_executors(session: Session) -> list[tuple[Executor, float]]:
    """Return every executor with the age of its last heartbeat [s], eldest executor first."""
    now_s = clock_s(session)
    rows = session.scalars(sa.select(Executor).order_by(Executor.started_at_s, Executor.id))
    return [(row, now_s - row.heartbeat_at_s) for row in rows]
