"""Queues of one process: how many run at once, and which begins first."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from service.db import queries
from service.db.session import Database, reading, writing
from service.db.tables import Study
from service.jobs.executor import JobExecutor
from tests.service.conftest import quick_settings
from tests.service.fake_engine import fake_engine

CELLS_AT_ONCE, STUDIES_AT_ONCE = 1, 2


@pytest.fixture
def jobs(database: Database) -> Iterator[JobExecutor]:
    settings = quick_settings(database.url.render_as_string(hide_password=False)).model_copy(
        update={"study_concurrency": STUDIES_AT_ONCE, "cell_concurrency": CELLS_AT_ONCE}
    )
    jobs = JobExecutor(database, fake_engine(), settings)
    yield jobs
    jobs.stop()


def queue(database: Database, study_id: str, queue: str, priority: int, chunk_s: float) -> None:
    document = {"name": study_id, "trials": 10, "chunk_s": chunk_s}
    with writing(database) as session:
        queries.create_study(session, study_id, study_id, document, "fake-1", queue=queue, priority=priority)


def running(database: Database) -> dict[str, int]:
    """Studies that run in each queue."""
    query = sa.select(Study.queue, sa.func.count()).where(Study.state == "running").group_by(Study.queue)
    with reading(database) as session:
        return {row[0]: row[1] for row in session.execute(query)}


def ended(database: Database) -> list[Study]:
    with reading(database) as session:
        return list(session.scalars(sa.select(Study).where(Study.state == "succeeded").order_by(Study.started_at_s)))


def test_as_many_run_at_once_as_each_queue_allows(database: Database, jobs: JobExecutor) -> None:
    for number in range(4):
        queue(database, f"study-{number}", "studies", 100, 0.4)
    for number in range(3):
        queue(database, f"cell-{number}", "sweeps", 200, 0.4)
    jobs.start()
    most = {"studies": 0, "sweeps": 0}
    deadline_s = time.monotonic() + 20.0
    while len(ended(database)) < 7 and time.monotonic() < deadline_s:
        most = {name: max(count, running(database).get(name, 0)) for name, count in most.items()}
        time.sleep(0.02)
    assert len(ended(database)) == 7
    assert most == {"studies": STUDIES_AT_ONCE, "sweeps": CELLS_AT_ONCE}


def test_the_smaller_priority_begins_first(database: Database, jobs: JobExecutor) -> None:
    queue(database, "first", "sweeps", 1, 1.0)
    jobs.start()
    deadline_s = time.monotonic() + 20.0
    while not running(database) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    for name, priority in (("late", 300), ("middle", 200), ("early", 100)):
        queue(database, name, "sweeps", priority, 0.0)
    while len(ended(database)) < 4 and time.monotonic() < deadline_s:
        time.sleep(0.02)
    assert [study.id for study in ended(database)] == ["first", "early", "middle", "late"]
