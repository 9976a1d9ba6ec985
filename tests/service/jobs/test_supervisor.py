"""Whose work is orphaned, from heartbeats alone."""

from __future__ import annotations

import pytest

from service.db.tables import Executor
from service.jobs.process import current_process
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
