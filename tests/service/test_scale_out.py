"""Several workers on one Postgres finish a pile of studies sooner than one; minutes long, run by `make chaos`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from service.db import migrate, queries
from service.db.session import Database, open_database, reading, writing
from tests.service.postgres_server import PostgresServer
from tests.service.test_real_engine import study_document
from tests.service.waiting import wait_for

ROOT = Path(__file__).parents[2]
STUDIES = 12
SPEED_UP = 1.4
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}


@contextmanager
def workers(url: str, count: int) -> Iterator[None]:
    """Real workers with one compute thread each."""
    command = [sys.executable, "-m", "service.cli", "worker", "--database-url", url]
    environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(ROOT)}
    started = [subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(timeout=30)


OFFSETS_MM2 = {"warm-one": 0, "one": 2, "warm-three": 4, "three": 6}
"""Every pile has areas of its own."""


def queue(database: Database, prefix: str, count: int) -> list[str]:
    """Queue studies that differ in their seeds and budgets, so that none is answered from the history."""
    ids = [f"{prefix}-{number}" for number in range(count)]
    with writing(database) as session:
        for number, study_id in enumerate(ids):
            area = 500 + 10 * number + OFFSETS_MM2[prefix]
            document = study_document(name=study_id, budget__area=f"{area} mm2", search__seed=number)
            queries.create_study(session, study_id, study_id, document, "1")
    return ids


def all_ended(database: Database, ids: list[str]) -> bool:
    with reading(database) as session:
        return all(queries.study_state(session, study_id) == "succeeded" for study_id in ids)


def time_of(database: Database, url: str, prefix: str, count: int) -> float:
    """Time in which `count` workers that are warm finish all studies [s]."""
    with workers(url, count):
        warm = queue(database, f"warm-{prefix}", count)
        wait_for(lambda: all_ended(database, warm), 300.0)
        began_s = time.perf_counter()
        ids = queue(database, prefix, STUDIES)
        wait_for(lambda: all_ended(database, ids), 600.0)
        return time.perf_counter() - began_s


@pytest.mark.chaos
def test_three_workers_finish_twelve_studies_sooner_than_one(postgres_server: PostgresServer) -> None:
    url = postgres_server.create_database()
    database = open_database(url)
    migrate.upgrade(database)
    one_s, three_s = (time_of(database, url, name, count) for name, count in (("one", 1), ("three", 3)))
    database.close()
    print(f"{STUDIES} studies: one worker {one_s:.1f} s, three workers {three_s:.1f} s, {one_s / three_s:.2f} times")
    assert one_s / three_s >= SPEED_UP
