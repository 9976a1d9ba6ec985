"""Shards of one proof on two real workers that share a Postgres: the result of a process that works alone."""

from __future__ import annotations

import json
import os
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from explorer.files import read_yaml
from explorer.run import explore_study
from service.db import migrate, queries, shards
from service.db.session import Database, open_database, reading, writing
from tests.service.postgres_server import PostgresServer
from tests.service.test_scale_out import workers
from tests.service.waiting import wait_for

EXAMPLES = Path(__file__).parents[2] / "examples"
SHARDS = 4


def sharded_study() -> dict[str, Any]:
    """The edge study in a corner of its space of some million designs, whose proof takes a second or two."""
    document = read_yaml(EXAMPLES / "edge.yaml")
    document["search"] |= {"shards": SHARDS, "target_gap": 0.05}
    document["space"] |= {
        "array_shape": [[16, 16, 16], [64, 64, 4]], "stationarity": ["output"], "array_groups": [1],
        "native_formats": [["bf16", "int8"]], "scratchpad_per_core": [64, 128, 256, 512], "second_tier": ["none"],
    }  # fmt: skip
    return dict(document)


def migrated(url: str) -> Database:
    database = open_database(url)
    migrate.upgrade(database)
    return database


def queue(database: Database, document: dict[str, Any]) -> None:
    with writing(database) as session:
        queries.create_study(session, "s1", "edge", document, "1")


def timeless(result: dict[str, Any]) -> Any:
    """A result without the times in it, numbers to twelve digits: processes add up in batches of other sizes."""
    entries = [entry | {"wall_s": 0.0} for entry in result["certificate"]]
    return json.loads(
        json.dumps(result | {"certificate": entries, "wall_s": 0.0}), parse_float=lambda x: f"{float(x):.11e}"
    )


def state_of(database: Database) -> str:
    with reading(database) as session:
        return queries.study_state(session, "s1")


def result_of_study(database: Database, timeout_s: float) -> Any:
    wait_for(lambda: state_of(database) in ("succeeded", "failed"), timeout_s)
    with reading(database) as session:
        study = queries.get_study(session, "s1")
        assert study.error is None
        return study.result


def n_executors(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM executors").fetchone()
    return int(row[0]) if row else 0


def shard_jobs(url: str, states: str) -> list[tuple[str, int]]:
    """Executor of each shard whose job is in one of the states, and its process number."""
    query = """
        SELECT jobs.executor_id, executors.pid FROM dbos.workflow_status AS jobs
        LEFT JOIN executors ON executors.id = jobs.executor_id WHERE jobs.name = 'run_shard' AND jobs.status = ANY(%s)
    """
    with psycopg.connect(url) as connection:
        return [(str(row[0]), int(row[1] or 0)) for row in connection.execute(query, [states.split()]).fetchall()]


def test_two_workers_share_a_proof_and_find_what_one_process_finds(postgres_server: PostgresServer) -> None:
    url = postgres_server.create_database()
    document = sharded_study()
    with closing(migrated(url)) as database, workers(url, 2):
        wait_for(lambda: n_executors(url) == 2, 60.0)
        queue(database, document)
        result = result_of_study(database, 120.0)
    assert timeless(result) == timeless(explore_study(document, None, lambda done, of: None))
    assert result["certificate"][0]["complete"] and result["certificate"][0]["gap"] <= 0.05
    done = shard_jobs(url, "SUCCESS")
    assert len(done) == SHARDS and len({executor for executor, _ in done}) == 2


def test_an_outcome_is_stored_once_and_goes_with_its_study(database: Database) -> None:
    with writing(database) as session:
        queries.create_study(session, "s1", "s", {"name": "s"}, "1")
        assert shards.outcomes_before(session, "s1", 1) is None
        shards.store_outcome(session, "s1", 0, {"boxes": 1})
        shards.store_outcome(session, "s1", 0, {"boxes": 2})
        shards.store_outcome(session, "gone", 0, {"boxes": 3})
    with writing(database) as session:
        assert shards.outcomes_before(session, "s1", 1) == [{"boxes": 1}]
        assert shards.outcomes_before(session, "s1", 2) is None
        assert not shards.has_outcome(session, "gone", 0)
        queries.cancel_study(session, "s1")
        queries.delete_study(session, "s1")
    with reading(database) as session:
        assert not shards.has_outcome(session, "s1", 0)


@pytest.mark.chaos
def test_shards_of_a_killed_worker_are_done_by_the_other(postgres_server: PostgresServer) -> None:
    url = postgres_server.create_database()
    document = sharded_study()
    database = migrated(url)
    queue(database, document)
    with workers(url, 2):
        wait_for(lambda: state_of(database) == "running", 60.0)
        victims = wait_for(lambda: [pid for _, pid in shard_jobs(url, "PENDING") if pid], 60.0)
        os.kill(victims[0], signal.SIGKILL)
        result = result_of_study(database, 180.0)
    assert timeless(result) == timeless(explore_study(document, None, lambda done, of: None))
    database.close()
