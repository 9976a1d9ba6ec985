"""Calls whose rows the processes of a team do side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from explorer.problem import Problem
from models.checks import IntArray

TABULATED = ("array_shape", "arrays_per_core", "n_cores", "scratchpad_per_core", "noc_per_core")
"""Parameters by which cycles of GEMMs are tabulated: designs that agree in them go to the same process of a team."""

PLACE_FACTORS = np.array([1, 3, 5, 7, 11])
"""Odd, so that a step of any parameter moves a design to the other one of two processes."""


def shared(problem: Problem, work: Callable[..., Any], rows: tuple[Any, ...], args: tuple[Any, ...] = ()) -> list[Any]:
    """`work(problem, *rows, *args)` in parts of rows that the processes of a team do side by side, or in one."""
    return problem.team[0].shared(problem, work, rows, args) if problem.team else [work(problem, *rows, *args)]


def shared_by_place(
    problem: Problem, work: Callable[..., Any], rows: tuple[Any, ...], args: tuple[Any, ...], place: IntArray
) -> tuple[list[Any], IntArray | slice]:
    """As `shared`, rows of one place always in one process; with the positions of the rows in the joined parts."""
    if not problem.team:
        return shared(problem, work, rows, args), slice(None)
    parts, position = problem.team[0].shared_by_place(problem, work, rows, args, place)
    return parts, position


def place_of(problem: Problem, points: IntArray) -> IntArray:
    """A number for each design, equal where the designs share their rows of the largest factor tables."""
    names = [p.name for p in problem.space.parameters]
    axes = [names.index(name) for name in TABULATED]
    return np.asarray(points[:, axes] @ PLACE_FACTORS)
