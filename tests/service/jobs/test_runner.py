"""The steps of a study: each may run twice, at any time, and writes once."""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from typing import Any

import pytest

from service.db import queries
from service.db.session import Database, reading, writing
from service.engine import StudyEngine
from service.jobs.runner import StudyRunner
from tests.service.api.test_studies import expected_result
from tests.service.fake_engine import fake_engine, record


def make_study(database: Database, **document: Any) -> str:
    with writing(database) as session:
        return queries.create_study(session, "s1", "s", {"name": "s", **document}, "fake-1").id


def runner_on(database: Database, engine: StudyEngine | None = None) -> StudyRunner:
    return StudyRunner(database, engine or fake_engine(), threading.Event())


def run_to_end(runner: StudyRunner, study_id: str, attempt: int = 1) -> str:
    answer = runner.begin(study_id, attempt)
    chunk = answer.get("chunk", 0)
    while answer["state"] == "running":
        answer = runner.run_chunk(study_id, attempt, chunk)
        chunk += 1
    return str((runner.finish(study_id, attempt) if answer["state"] == "finished" else answer)["state"])


def stored_numbers(database: Database, study_id: str) -> list[int]:
    with reading(database) as session:
        return [row["number"] for row in queries.records_before(session, study_id)]


def test_a_step_that_runs_twice_writes_once(database: Database) -> None:
    study_id = make_study(database, trials=40)
    runner = runner_on(database)
    runner.begin(study_id, 1)
    answers = [runner.run_chunk(study_id, 1, 0) for _ in range(3)]
    assert answers == [{"state": "running", "n_trials": 10}] * 3
    assert stored_numbers(database, study_id) == list(range(10))
    with reading(database) as session:
        assert queries.get_study(session, study_id).trials_done == 10
        assert [event.key for event in queries.events_after(session, study_id, 0)] == [
            "queued-1",
            "running-1",
            "chunk-0",
        ]


def test_a_new_process_goes_on_exactly_where_another_stopped(database: Database) -> None:
    study_id = make_study(database, trials=40)
    first = runner_on(database)
    first.begin(study_id, 1)
    first.run_chunk(study_id, 1, 0)
    assert run_to_end(runner_on(database), study_id) == "succeeded"
    with reading(database) as session:
        result = queries.get_study(session, study_id).result
    assert result is not None
    assert {**result, "wall_s": None} == {**expected_result(trials=40), "wall_s": None}


def test_an_attempt_that_is_not_the_last_writes_nothing(database: Database) -> None:
    study_id = make_study(database, trials=40)
    runner = runner_on(database)
    runner.begin(study_id, 1)
    runner.run_chunk(study_id, 1, 0)
    with writing(database) as session:
        queries.cancel_study(session, study_id)
        queries.resume_study(session, study_id)
    assert runner.run_chunk(study_id, 1, 1) == {"state": "stopped"}
    assert runner.finish(study_id, 1) == {"state": "succeeded"}
    assert stored_numbers(database, study_id) == list(range(10))
    with reading(database) as session:
        assert queries.get_study(session, study_id).state == "queued"


def test_a_chunk_beyond_a_gap_fails_the_study(database: Database) -> None:
    study_id = make_study(database, trials=40)
    runner = runner_on(database)
    runner.begin(study_id, 1)
    assert runner.run_chunk(study_id, 1, 2) == {"state": "failed"}
    with reading(database) as session:
        assert "has 0 chunks and cannot record chunk 2" in str(queries.get_study(session, study_id).error)


def test_a_record_that_is_no_json_fails_the_study_and_is_not_stored(database: Database) -> None:
    bad = dataclasses.replace(record(0, 1.0), metrics={"area_mm2": math.nan})
    engine = dataclasses.replace(fake_engine(), run_chunk=lambda problem, past, chunk: [bad])
    study_id = make_study(database)
    assert run_to_end(runner_on(database, engine), study_id) == "failed"
    assert stored_numbers(database, study_id) == []


def test_the_time_to_come_is_at_most_what_the_limit_leaves(database: Database) -> None:
    study_id = make_study(database, trials=1000, chunk_s=0.05, timeout_s=1.0)
    runner = runner_on(database)
    runner.begin(study_id, 1)
    runner.run_chunk(study_id, 1, 0)
    with reading(database) as session:
        progress = queries.progress(queries.get_study(session, study_id))
    assert progress["eta_s"] == pytest.approx(1.0 - progress["busy_s"])


def test_a_deleted_study_stops(database: Database) -> None:
    assert runner_on(database).begin("gone", 1) == {"state": "stopped"}


@pytest.mark.parametrize("state", ["cancelled", "succeeded"])
def test_an_ended_study_does_not_begin(database: Database, state: str) -> None:
    study_id = make_study(database, trials=10)
    runner = runner_on(database)
    if state == "cancelled":
        with writing(database) as session:
            queries.cancel_study(session, study_id)
    else:
        run_to_end(runner, study_id)
    assert runner.begin(study_id, 1) == {"state": "stopped"}


def test_records_come_back_equal(database: Database) -> None:
    study_id = make_study(database, trials=40, seed=3)
    runner = runner_on(database)
    runner.begin(study_id, 1)
    runner.run_chunk(study_id, 1, 0)
    engine = fake_engine()
    problem = engine.prepare(engine.read_study({"name": "s", "trials": 40, "seed": 3}))
    assert runner_on(database).records(study_id, None) == engine.run_chunk(problem, [], 0)


def test_a_chunk_without_trials_is_not_the_end(database: Database) -> None:
    """A proof may advance without a design to judge."""
    real = fake_engine()
    engine = dataclasses.replace(
        real,
        n_chunks=lambda problem: 5,
        run_chunk=lambda problem, past, chunk: [] if chunk == 1 else real.run_chunk(problem, past, chunk),
    )
    study_id = make_study(database, trials=40)
    assert run_to_end(runner_on(database, engine), study_id) == "succeeded"
    assert stored_numbers(database, study_id) == list(range(40))


def test_a_study_ends_after_its_planned_chunks_whatever_the_engine_says(database: Database) -> None:
    engine = dataclasses.replace(fake_engine(), is_finished=lambda problem, past: False)
    study_id = make_study(database, trials=40)
    assert run_to_end(runner_on(database, engine), study_id) == "succeeded"
    with reading(database) as session:
        assert queries.get_study(session, study_id).chunks_done == 4


def test_work_done_again_after_a_change_of_process_is_not_counted_twice(database: Database) -> None:
    study_id, caught_up = make_study(database, trials=40), []

    def catch_up(problem: Any, chunk: int) -> None:
        caught_up.append(chunk)
        time.sleep(0.3)

    runner = runner_on(database, dataclasses.replace(fake_engine(), catch_up=catch_up))
    assert run_to_end(runner, study_id) == "succeeded"
    assert caught_up == [0, 1, 2, 3]
    with reading(database) as session:
        assert queries.get_study(session, study_id).busy_s < 0.3
