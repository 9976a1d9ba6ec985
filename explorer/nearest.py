"""Where no design is feasible: the design that comes nearest, which tells what binds and by how much."""

from __future__ import annotations

import numpy as np

from explorer.local_search import neighbours
from explorer.problem import Problem, judge_points
from models.checks import FloatArray, IntArray

MAX_STEPS = 6
"""Exchanges of parameters: some seconds of work in the full space."""


def nearest_to_feasible(problem: Problem, points: IntArray) -> IntArray:
    """
    Return a design that misses its worst limit by less than any of `points` does.

    From the nearest of them one parameter is exchanged, or one raised and another lowered, while that helps.

    Parameters
    ----------
    problem : Problem
    points : array of shape (n_points, n_parameters)
        Where to start.

    Returns
    -------
    array of shape (n_parameters,)
        The nearest design found, which need not be the nearest of the space.
    """
    excess = largest_excess(problem, points)
    best: IntArray = points[np.argmin(excess)]
    least = float(excess.min())
    for _ in range(MAX_STEPS):
        near = neighbours(problem.space, best)
        excess = largest_excess(problem, near)
        if not excess.min() < least:
            break
        best, least = near[np.argmin(excess)], float(excess.min())
    return best


def largest_excess(problem: Problem, points: IntArray) -> FloatArray:
    """Relative excess of each design over the limit that it misses most, shape (n_points,) [1]."""
    return np.asarray(np.max(np.stack(list(judge_points(problem, points).excess.values())), axis=0))
