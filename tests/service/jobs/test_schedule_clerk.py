"""Fires, overlaps, downtime and replaced workloads, without a running server: each look is called by hand."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import sqlalchemy as sa

from service.db import queries, schedules
from service.db.session import Database, clock_s, reading, writing
from service.db.tables import ScheduleRun, Study
from service.jobs.schedule_clerk import ScheduleClerk
from service.settings import Settings
from tests.service.fake_engine import fake_engine
from tests.service.jobs.test_runner import run_to_end, runner_on

NEVER = threading.Event()


def make_schedule(database: Database, late_s: float = 0.0, **fields: Any) -> str:
    """A schedule for every minute whose next fire came `late_s` ago."""
    with writing(database) as session:
        due_s = clock_s(session) - late_s
        stated = {
            "name": "s", "owner": "", "cron": "* * * * *", "time_zone": "UTC", "overlap": "skip",
            "missed": "run_latest", "missed_after_s": 30.0, "document": {"name": "study", "trials": 20},
            "next_fire_at_s": due_s, **fields,
        }  # fmt: skip
        return schedules.add_schedule(session, "schedule-1", stated).id


def clerk_on(database: Database) -> ScheduleClerk:
    return ScheduleClerk(database, fake_engine(), Settings())


def runs_of(database: Database) -> list[ScheduleRun]:
    with reading(database) as session:
        return [run for run, _ in schedules.list_runs(session, "schedule-1", None, 100)][::-1]


def studies_of(database: Database) -> list[str]:
    with reading(database) as session:
        return list(session.scalars(sa.select(Study.id)))


def test_a_fire_queues_one_study_however_often_it_is_looked_at(database: Database) -> None:
    make_schedule(database)
    for _ in range(3):
        clerk_on(database).act(NEVER)
    (run,) = runs_of(database)
    assert studies_of(database) == [run.study_id]
    with reading(database) as session:
        study = queries.get_study(session, str(run.study_id))
        schedule = schedules.get_schedule(session, "schedule-1")
        assert (study.queue, study.name) == ("sweeps", "study")
        assert schedule.next_fire_at_s is not None and schedule.next_fire_at_s > clock_s(session)


@pytest.mark.parametrize(("missed", "expected"), [("run_latest", 1), ("run_all", 10), ("skip", 0)])
def test_fires_during_downtime_follow_the_policy(database: Database, missed: str, expected: int) -> None:
    make_schedule(database, late_s=595.0, missed=missed, missed_after_s=0.001, overlap="queue")
    clerk_on(database).act(NEVER)
    runs = runs_of(database)
    assert len(runs) in (10, 11)
    started = [run for run in runs if run.skipped_because is None]
    assert len(started) == (len(runs) if missed == "run_all" else expected)
    assert len(studies_of(database)) == len(started)
    if missed == "run_latest":
        assert started == [runs[-1]]


@pytest.mark.parametrize("overlap", ["skip", "queue", "cancel_previous"])
def test_a_fire_while_the_last_run_goes_on_follows_the_policy(database: Database, overlap: str) -> None:
    schedule_id = make_schedule(database, overlap=overlap)
    clerk_on(database).act(NEVER)
    with writing(database) as session:
        schedules.get_schedule(session, schedule_id).next_fire_at_s = clock_s(session)
    clerk_on(database).act(NEVER)
    first, second = runs_of(database)
    with reading(database) as session:
        state = queries.study_state(session, str(first.study_id))
    assert state == ("cancelled" if overlap == "cancel_previous" else "queued")
    assert (second.skipped_because is not None) == (overlap == "skip")


def test_a_run_that_has_succeeded_is_compared_with_the_one_before(database: Database) -> None:
    schedule_id = make_schedule(database, overlap="queue")
    clerk = clerk_on(database)
    for trials in (20, 30):
        with writing(database) as session:
            schedule = schedules.get_schedule(session, schedule_id)
            schedule.document = {"name": "study", "trials": trials}
            schedule.next_fire_at_s = clock_s(session)
        clerk.act(NEVER)
        run_to_end(runner_on(database), str(runs_of(database)[-1].study_id))
    clerk.act(NEVER)
    first, second = runs_of(database)
    assert first.drift is None
    assert second.drift == {
        "before": 20, "after": 30, "previous_study_id": first.study_id, "study_id": second.study_id,
    }  # fmt: skip


def test_a_study_that_cannot_be_run_is_said_with_the_run(database: Database) -> None:
    make_schedule(database, document={"name": "study", "trace": "latest:week"})
    clerk_on(database).act(NEVER)
    (run,) = runs_of(database)
    assert run.skipped_because == "the study cannot be run: no workload was uploaded under the name 'week'"
    assert studies_of(database) == []


def test_a_paused_schedule_does_not_fire(database: Database) -> None:
    schedule_id = make_schedule(database)
    with writing(database) as session:
        schedules.get_schedule(session, schedule_id).state = "paused"
    clerk_on(database).act(NEVER)
    assert runs_of(database) == []
