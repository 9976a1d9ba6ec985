"""Further processes that bound boxes of the same study beside this one."""

from __future__ import annotations

import dataclasses
import itertools
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import numpy as np
from numpy.typing import NDArray

from explorer.boxes import Boxes
from explorer.document import StudyDocument
from explorer.inputs import Inputs
from explorer.problem import Problem, prepare
from explorer.regret import alone
from explorer.samplers import EXACT
from explorer.study import n_shards, sampler_of
from models.checks import FloatArray, IntArray

Rows = tuple[Boxes | NDArray[Any], ...]

LEAST_ROWS = 256
"""Boxes or designs of the smallest part below which a call is not worth sharing out."""

STUDIES_KEPT = 2
"""Studies that a process keeps prepared; one that helps with more goes on without those asked about least lately."""

_NUMBERS = itertools.count()


class Team:
    """
    Processes that prepare the same study and do parts of its largest calls.

    A part gives the same whichever process does it, so that an answer does not depend on their number. Work starts
    without those that are not ready yet, and goes on without them where they die.

    Parameters
    ----------
    pools : sequence of ProcessPoolExecutor
        Of one process each (`explorer.processes`).
    document, inputs
        As for `explorer.problem.prepare`.
    """

    def __init__(self, pools: Sequence[ProcessPoolExecutor], document: StudyDocument, inputs: Inputs) -> None:
        self._pools, self._study = pools, next(_NUMBERS)
        self._gone = False
        self._ready = [self._sent(pool, _prepare, self._study, document, inputs) for pool in pools]

    def for_study(self, document: StudyDocument, inputs: Inputs) -> Team:
        """The same processes, for another study."""
        return Team(self._pools, document, inputs)

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
        return self._shared(problem, work, rows, args, np.array_split(np.arange(_n_rows(rows)), len(self._pools) + 1))

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
        owner = place % (len(self._pools) + 1)
        cut = [np.flatnonzero(owner == i) for i in range(len(self._pools) + 1)]
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
        sent = [
            self._sent(pool, _work, self._study, problem.only, rates, work, part)
            for pool, part in zip(self._pools, parts[1:], strict=True)
        ]
        found = [work(problem, *parts[0])]
        for part, each in zip(parts[1:], sent, strict=True):
            other = self._result(each)
            found.append(work(problem, *part) if other is None else other)
        return found

    def _available(self) -> bool:
        """Whether all of them are ready, and were able to prepare."""
        ready = [each for each in self._ready if each is not None and each.done()]
        return not self._gone and len(ready) == len(self._ready) and all(each.exception() is None for each in ready)

    def _sent(self, pool: ProcessPoolExecutor, *job: Any) -> Future[Any] | None:
        """A job on its way to another process, None where it is gone."""
        try:
            return pool.submit(*job)
        except RuntimeError:  # the pool is broken or was shut down
            self._gone = True
            return None

    def _result(self, sent: Future[Any] | None) -> Any:
        """What another process found, None where it is gone or has forgotten the study."""
        try:
            return None if sent is None else sent.result()
        except (BrokenProcessPool, CancelledError, StudyForgottenError):
            self._gone = True
            return None


def join_team(problem: Problem, others: Callable[[], Sequence[ProcessPoolExecutor]]) -> None:
    """Let other processes help with a study that is to be proven; they are asked for only then, and join once."""
    if not problem.team and sampler_of(problem) == EXACT and not n_shards(problem) and (pools := others()):
        problem.team.append(Team(pools, problem.document, problem.inputs))


class StudyForgottenError(Exception):
    """A process was asked about a study that it keeps no longer."""


def _n_rows(rows: Rows) -> int:
    return rows[0].n_boxes if isinstance(rows[0], Boxes) else len(rows[0])


def _cut(rows: Rows, part: IntArray) -> Rows:
    return tuple(each.take(part) if isinstance(each, Boxes) else each[part] for each in rows)


_PREPARED: OrderedDict[int, dict[int | None, Problem]] = OrderedDict()
"""In another process: by number of the study its problem, and those of its scenarios alone."""


def _prepare(study: int, document: StudyDocument, inputs: Inputs) -> None:
    _PREPARED[study] = {None: prepare(document, inputs)}
    while len(_PREPARED) > STUDIES_KEPT:
        _PREPARED.popitem(last=False)


def _work(
    study: int, only: int | None, rates: FloatArray | None, work: Callable[..., Any], args: tuple[Any, ...]
) -> Any:
    """Do a part of a call on the problem that this process prepared."""
    if study not in _PREPARED:
        raise StudyForgottenError
    _PREPARED.move_to_end(study)
    problems = _PREPARED[study]
    if only not in problems and only is not None:
        problems[only] = alone(problems[None], only)
    problem = problems[only]
    if rates is not None:
        mixture = dataclasses.replace(problem.mixture, best_units_per_s=lambda: rates)
        problem = dataclasses.replace(problem, mixture=mixture)
    return work(problem, *args)
