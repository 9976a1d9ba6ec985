"""Whose work is orphaned, from heartbeats alone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from service.db.tables import Executor
from service.jobs.process import current_process, is_known_dead, new_executor_id, start_time
from service.jobs.supervisor import Heartbeat, orphans

STALE_S = 10.0


def executor(name: str, age_s: float, *, here: bool = False, pid: int = 1) -> tuple[Executor, float]:
    """An executor of another machine, or of this one, with the age of its last beat."""
    machine = current_process().machine if here else "elsewhere"
    row = Executor(id=name, machine=machine, pid=pid, process_started="1", started_at_s=0.0, heartbeat_at_s=0.0)
    return row, age_s


def beating(steady_s: float) -> Heartbeat:
    """A heartbeat that has been steady for a time."""
    heartbeat = Heartbeat(2.0)
    heartbeat.note()
    heartbeat.steady_since_s = heartbeat.last_s - steady_s
    return heartbeat


@pytest.mark.parametrize(
    ("known", "steady_s", "taken"),
    [
        ([executor("me", 0), executor("other", 1)], 60, []),
        ([executor("me", 0)], 0, ["w"]),
        ([executor("me", 0), executor("other", 11)], 60, ["w"]),
        ([executor("me", 0), executor("other", 11)], 5, []),
        ([executor("me", 0), executor("other", 1, here=True, pid=2**22 + 1)], 0, ["w"]),
        ([executor("elder", 1), executor("me", 0)], 60, []),
        ([executor("elder", 11), executor("me", 0)], 60, ["w"]),
        ([], 60, []),
    ],
    ids=[
        "alive",
        "row gone",
        "stale",
        "stale after an outage",
        "process gone",
        "an elder acts",
        "elder dead",
        "unknown",
    ],
)
def test_work_is_taken_only_from_the_dead(
    known: list[tuple[Executor, float]], steady_s: float, taken: list[str]
) -> None:
    assert orphans({"w": "other"}, known, "me", beating(steady_s), STALE_S) == taken


def test_own_work_is_never_an_orphan() -> None:
    assert orphans({"w": "me"}, [executor("me", 0)], "me", beating(60), STALE_S) == []


def test_a_missed_beat_ends_steadiness(monkeypatch: pytest.MonkeyPatch) -> None:
    heartbeat = Heartbeat(2.0)
    for now_s in (100.0, 102.0, 104.0):
        monkeypatch.setattr("service.jobs.supervisor.time.monotonic", lambda now_s=now_s: now_s)
        heartbeat.note()
    assert heartbeat.steady_s() == 4.0
    monkeypatch.setattr("service.jobs.supervisor.time.monotonic", lambda: 109.0)
    heartbeat.note()
    assert heartbeat.steady_s() == 0.0


def test_a_process_is_known_dead_once_it_has_ended() -> None:
    me = current_process()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    began = start_time(child.pid)
    assert began is not None
    assert not is_known_dead(me.machine, child.pid, began)
    child.communicate(b"\n")
    assert is_known_dead(me.machine, child.pid, began)


def test_nothing_is_known_of_another_machine_or_an_unknown_start() -> None:
    assert not is_known_dead("elsewhere", os.getpid(), "1")
    assert not is_known_dead(current_process().machine, os.getpid(), "unknown")


def test_an_executor_id_is_never_given_twice() -> None:
    assert len({new_executor_id() for _ in range(100)}) == 100
