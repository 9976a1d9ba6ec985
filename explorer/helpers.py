"""Further processes beside this one: started before anything large is imported, so that all import at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context


@contextmanager
def helpers(count: int) -> Iterator[list[ProcessPoolExecutor]]:
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
        pool.submit(_import_all)
    started = [child for child in active_children() if child not in before]
    try:
        yield pools
    finally:
        for pool in pools:
            pool.shutdown(wait=False, cancel_futures=True)
        for child in started:
            child.terminate()


def _import_all() -> None:
    import explorer.team  # noqa: F401  (what it imports takes a second)
