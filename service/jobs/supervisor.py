"""Decides whose work is orphaned, from heartbeats alone."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from service.db.tables import Executor
from service.jobs.process import is_known_dead


@dataclass
class Heartbeat:
    """This process's own beats: when the last was, and since when none was missed."""

    interval_s: float
    last_s: float = -float("inf")
    steady_since_s: float = field(default=float("inf"))

    def note(self) -> None:
        """Note a beat that reached the database."""
        now_s = time.monotonic()
        if now_s - self.last_s > 2.0 * self.interval_s:
            self.steady_since_s = now_s
        self.last_s = now_s

    def age_s(self) -> float:
        """Time since the last beat [s]."""
        return time.monotonic() - self.last_s

    def steady_s(self) -> float:
        """Time for which beats have arrived without a gap [s]."""
        return self.last_s - self.steady_since_s


def orphans(
    owners: Mapping[str, str],
    known: Sequence[tuple[Executor, float]],
    me: str,
    heartbeat: Heartbeat,
    stale_after_s: float,
) -> list[str]:
    """
    Return the workflows that executor `me` has to put back into the queue.

    An executor is gone if its row is gone, if it was a process of this machine that no longer exists, or if its
    last beat is older than `stale_after_s`. The last is believed only once our own beats have been steady for as
    long: after an outage of the database everyone looks stale. Only the eldest live executor acts.
    """
    trusts_age = heartbeat.steady_s() > stale_after_s
    live = [row.id for row, age_s in known if is_alive(row, age_s, stale_after_s)]
    if not live or live[0] != me:
        return []
    present = {row.id for row, age_s in known if is_alive(row, age_s, stale_after_s if trusts_age else float("inf"))}
    return [workflow_id for workflow_id, owner in owners.items() if owner not in present]


def is_alive(row: Executor, age_s: float, stale_after_s: float) -> bool:
    """Whether an executor has beaten lately and is no process of this machine that is gone."""
    return age_s <= stale_after_s and not is_known_dead(row.machine, row.pid, row.process_started)
