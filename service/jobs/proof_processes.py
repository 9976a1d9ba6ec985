"""Processes that help this one with proofs, started with the first proof."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from explorer.processes import other_processes


class ProofProcesses:
    """
    Returns the processes; where one of them has died all are started anew. Several threads may share it.

    Parameters
    ----------
    count : int
        At least 0.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._pools: Sequence[ProcessPoolExecutor] = ()
        self._running = contextlib.ExitStack()
        self._lock = threading.Lock()

    def __call__(self) -> Sequence[ProcessPoolExecutor]:
        """The processes, each in a pool of its own."""
        with self._lock:
            if not all(_lives(pool) for pool in self._pools):
                self._stop()
            if len(self._pools) < self._count:
                self._pools = self._running.enter_context(other_processes(self._count))
            return self._pools

    def stop(self) -> None:
        """End the processes; the next call would start them anew."""
        with self._lock:
            self._stop()

    def _stop(self) -> None:
        self._running.close()
        self._pools = ()


def _lives(pool: ProcessPoolExecutor) -> bool:
    """Whether a pool still takes work."""
    try:
        pool.submit(int)
    except BrokenProcessPool:
        return False
    return True
