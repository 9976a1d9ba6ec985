"""Further processes beside this one: started before anything large is imported, so that all import at the same time."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process

NICENESS = 5
"""By which other processes have less claim to a core than the first one."""


def default_processes() -> int:
    """Processes that share a proof where nobody says how many: two where there are two cores."""
    return min(2, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


@contextmanager
def other_processes(count: int) -> Iterator[list[ProcessPoolExecutor]]:
    """
    Start processes that can join the team of a study (`explorer.team`); they end with the block.

    Parameters
    ----------
    count : int
        At least 0.

    Returns
    -------
    context manager of list of ProcessPoolExecutor
        Each of one process, so that it can be told which work is its own.
    """
    before = set(active_children())
    pools = [ProcessPoolExecutor(1, mp_context=get_context("spawn")) for _ in range(count)]
    for pool in pools:
        pool.submit(_begin)
    started = [child for child in active_children() if child not in before]
    try:
        yield pools
    finally:
        for pool in pools:
            pool.shutdown(wait=False, cancel_futures=True)
        for child in started:
            child.terminate()


def _begin() -> None:
    """In another process: end with the first one however that ends, give way to what answers people, import."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to both, and the first one decides
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    import explorer.team  # noqa: F401  (what it imports takes a second)


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
