"""How fast records are stored, and what storing costs beside evaluating. Run by `make bench`."""

from __future__ import annotations

import time
from typing import Any

import pytest

from service.db import migrate, queries
from service.db.session import Database, open_database, require_reachable, writing
from service.real_engine import real_engine
from tests.service.test_real_engine import study_document

ROWS, ROWS_PER_COMMIT = 5_000, 500


@pytest.fixture
def sqlite_database(sqlite_url: str) -> Database:
    database = open_database(sqlite_url)
    require_reachable(database)
    migrate.upgrade(database)
    with writing(database) as session:
        queries.create_study(session, "s1", "s", {}, "1")
    return database


@pytest.fixture(scope="module")
def chunk() -> tuple[list[Any], float]:
    """The records of one chunk of the chat study and the time their evaluation took [s]."""
    engine = real_engine()
    problem = engine.prepare(engine.read_study(study_document()))
    engine.run_chunk(problem, [], 0)
    began_s = time.perf_counter()
    records = engine.run_chunk(problem, [], 0)
    return records, time.perf_counter() - began_s


def test_bulk_insert_of_designs(benchmark: Any, sqlite_database: Database, chunk: tuple[list[Any], float]) -> None:
    rows = [record.as_json() for record in chunk[0]]
    numbered = [{**rows[i % len(rows)], "number": i} for i in range(ROWS)]

    def insert() -> None:
        for first in range(0, ROWS, ROWS_PER_COMMIT):
            with writing(sqlite_database) as session:
                queries.insert_designs(session, "s1", first, numbered[first : first + ROWS_PER_COMMIT])

    benchmark.pedantic(insert, rounds=1)
    benchmark.extra_info["designs_per_s"] = ROWS / benchmark.stats.stats.min
    print(f"{benchmark.extra_info['designs_per_s']:.0f} designs/s stored in SQLite")


def test_bookkeeping_of_a_chunk(benchmark: Any, sqlite_database: Database, chunk: tuple[list[Any], float]) -> None:
    records, evaluation_s = chunk
    with writing(sqlite_database) as session:
        queries.begin_attempt(session, "s1", 1, 1_000, 60.0)
    done = iter(range(1_000))

    def store() -> None:
        number = next(done)
        rows = [{**record.as_json(), "number": number * len(records) + i} for i, record in enumerate(records)]
        with writing(sqlite_database) as session:
            queries.record_chunk(session, "s1", 1, number, rows, evaluation_s)

    benchmark.pedantic(store, rounds=20)
    share = benchmark.stats.stats.mean / evaluation_s
    benchmark.extra_info["share_of_evaluation"] = share
    print(f"storing {len(records)} trials takes {share:.1%} of judging them")
    assert share < 1.0
