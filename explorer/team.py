"""Further processes that bound boxes of the same study beside this one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

import numpy as np
from numpy.typing import NDArray

from explorer.bounds import Boxes
from explorer.document import StudyDocument
from explorer.inputs import Inputs
from explorer.problem import Problem, prepare
from explorer.regret import alone
from models.checks import FloatArray, IntArray

Rows = tuple[Boxes | NDArray[Any], ...]

LEAST_ROWS = 256
"""Boxes or designs of the smallest part below which a call is not worth sharing out."""


class Team:
    """
    Processes that have prepared the same study and do parts of its largest calls.

    A part gives the same whichever process does it, so that an answer does not depend on their number. Work starts
    without those that are not ready yet, and goes on without them where they die.
    """

    def __init__(self, pool: ProcessPoolExecutor, n_others: int) -> None:
        self._pool, self._n_others = pool, n_others
        self._ready = [pool.submit(_is_ready) for _ in range(n_others)]
        self._gone = False

    def shared(self, problem: Problem, work: Callable[..., Any], rows: Rows, args: tuple[Any, ...]) -> list[Any]:
        """
        Return `work(problem, *rows, *args)` in parts of consecutive rows, one after the other.

        Parameters
        ----------
        work : callable
            A function of a module.
        rows : tuple
            Arrays of shape (n_rows, ...) or boxes, all of which are cut alike.
        """
        return self._shared(problem, work, rows, args, np.array_split(np.arange(_n_rows(rows)), self._n_others + 1))

    def shared_by_place(
        self, problem: Problem, work: Callable[..., Any], rows: Rows, args: tuple[Any, ...], place: IntArray
    ) -> tuple[list[Any], IntArray]:
        """
        As `shared`, where rows of one place always go to the same process, which then fills its tables for them alone.

        Parameters
        ----------
        place : array of shape (n_rows,)
            Any number.

        Returns
        -------
        parts : list
        position : array of shape (n_rows,)
            Position of each row in the joined parts.
        """
        owner = place % (self._n_others + 1)
        cut = [np.flatnonzero(owner == i) for i in range(self._n_others + 1)]
        found = self._shared(problem, work, rows, args, cut)
        if len(found) == 1:
            return found, np.arange(len(place))
        return found, np.argsort(np.concatenate(cut), kind="stable")

    def _shared(
        self, problem: Problem, work: Callable[..., Any], rows: Rows, args: tuple[Any, ...], cut: list[IntArray]
    ) -> list[Any]:
        """`work` on the rows of each cut, or on all at once where the others are not worth or not able to be asked."""
        if min(len(part) for part in cut) < LEAST_ROWS or not self._available():
            return [work(problem, *rows, *args)]
        parts = [(*_cut(rows, part), *args) for part in cut]
        best = problem.mixture.best_units_per_s
        rates = None if best is None else best()
        sent = [self._sent(problem.only, rates, work, part) for part in parts[1:]]
        found = [work(problem, *parts[0])]
        for part, each in zip(parts[1:], sent, strict=True):
            other = self._result(each)
            found.append(work(problem, *part) if other is None else other)
        return found

    def _available(self) -> bool:
        return not self._gone and all(each.done() and each.exception() is None for each in self._ready)

    def _sent(self, *args: Any) -> Future[Any] | None:
        """A part on its way to another process, None where it is gone."""
        try:
            return self._pool.submit(_work, *args)
        except BrokenProcessPool:
            self._gone = True
            return None

    def _result(self, sent: Future[Any] | None) -> Any:
        """What another process found, None where it is gone."""
        try:
            return None if sent is None else sent.result()
        except BrokenProcessPool:
            self._gone = True
            return None


def _n_rows(rows: Rows) -> int:
    return rows[0].n_boxes if isinstance(rows[0], Boxes) else len(rows[0])


def _cut(rows: Rows, part: IntArray) -> Rows:
    return tuple(each.take(part) if isinstance(each, Boxes) else each[part] for each in rows)


@contextmanager
def team(document: StudyDocument, inputs: Inputs, processes: int) -> Iterator[list[Team]]:
    """
    Start the other processes; yields a list for `Problem.team`, empty where this process works alone.

    Parameters
    ----------
    processes : int
        This one included, at least 1.
    """
    if processes == 1:
        yield []
        return
    pool = ProcessPoolExecutor(
        processes - 1, mp_context=get_context("spawn"), initializer=_prepare, initargs=(document, inputs)
    )
    try:
        yield [Team(pool, processes - 1)]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


_PREPARED: dict[int | None, Problem] = {}
"""In another process: the problem of the study, and those of its scenarios alone."""


def _prepare(document: StudyDocument, inputs: Inputs) -> None:
    _PREPARED[None] = prepare(document, inputs)


def _is_ready() -> bool:
    return None in _PREPARED


def _work(only: int | None, rates: FloatArray | None, work: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Do a part of a call on the problem that this process prepared."""
    if only not in _PREPARED and only is not None:
        _PREPARED[only] = alone(_PREPARED[None], only)
    problem = _PREPARED[only]
    if rates is not None:
        mixture = dataclasses.replace(problem.mixture, best_units_per_s=lambda: rates)
        problem = dataclasses.replace(problem, mixture=mixture)
    return work(problem, *args)
