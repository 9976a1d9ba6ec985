"""Whether the process lives, whether it can work, and what it is."""

from __future__ import annotations

from fastapi import APIRouter
from sqlalchemy.exc import DBAPIError

from service.db import migrate
from service.db.session import Database
from service.dependencies import DatabaseOf, EngineOf, JobsOf
from service.engine import package_version
from service.errors import NotReadyError, problem_responses
from service.jobs.executor import JobExecutor
from service.schemas.health import LiveRead, ReadyRead, VersionRead

router = APIRouter(tags=["health"])


@router.get("/livez", operation_id="livez", summary="Whether the process answers")
def livez() -> LiveRead:
    """Answer without looking at anything else."""
    return LiveRead(status="alive")


@router.get("/readyz", operation_id="readyz", summary="Whether the service can work", responses=problem_responses(503))
def readyz(database: DatabaseOf, jobs: JobsOf) -> ReadyRead:
    """Check the database, its migrations and this process's heartbeat."""
    problems = _problems(database, jobs)
    if problems:
        raise NotReadyError(problems)
    return ReadyRead(status="ready", database="reachable", migrations=str(migrate.head_revision()), queue="beating")


@router.get("/version", operation_id="version", summary="Version of the package and of the model")
def version(engine: EngineOf) -> VersionRead:
    """Return both versions."""
    return VersionRead(version=package_version(), model_version=engine.model_version)


def _problems(database: Database, jobs: JobExecutor) -> list[dict[str, str]]:
    try:
        current, needed = migrate.current_revision(database), migrate.head_revision()
    except DBAPIError as error:
        reason = " ".join(str(error.orig).split())
        return [{"pointer": "database", "detail": f"database {database.address} cannot be reached: {reason}"}]
    if current != needed:
        detail = f"migrations are missing: the schema is at {current or 'nothing'}, {needed} is needed"
        return [{"pointer": "migrations", "detail": detail}]
    if jobs.stopping.is_set():
        return [{"pointer": "queue", "detail": "the process is stopping"}]
    if not jobs.is_beating():
        return [{"pointer": "queue", "detail": "the queue has no fresh heartbeat of this process"}]
    return []
