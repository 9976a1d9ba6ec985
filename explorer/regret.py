"""The best rate of each scenario of a mixture served alone: what regret is measured against."""

from __future__ import annotations

import dataclasses

import numpy as np

from explorer.exact import ExactSearch
from explorer.objectives import Mixture, Objective
from explorer.problem import Problem
from models.checks import FloatArray, IntArray

BOXES_PER_SCENARIO = 250_000
"""Boxes bounded for each scenario before the interval is taken as it stands: about a quarter of a minute of work."""

TARGET_GAP = 0.01

RATE = Objective("units_per_s", True)


def bests(problem: Problem) -> tuple[FloatArray, IntArray]:
    """
    Return a rate of each scenario that no design of the space beats, shape (n_scenarios,) [1/s], and designs found.

    Each scenario is searched by itself, exactly, within a box budget. The upper end of the certified interval is
    kept, so that regret is never understated: the regret of a design is above the true one by at most the gap left.
    """
    found = [searched(alone(problem, i), BOXES_PER_SCENARIO) for i in range(len(problem.scenarios))]
    points = [each.incumbent.point for each in found if each.incumbent.point is not None]
    return np.array([-each.bound for each in found]), np.array(points).reshape(-1, len(problem.space.parameters))


def searched(problem: Problem, n_boxes: int) -> ExactSearch:
    """The rate of one scenario searched exactly to 1 %, or as far as a budget of boxes goes."""
    search = ExactSearch(problem, RATE, TARGET_GAP)
    while not search.complete and search.boxes_bounded < n_boxes:
        search.advance(1)
    return search


def alone(problem: Problem, index: int) -> Problem:
    """The problem of one scenario by itself, in the same space and budget, its rate the objective."""
    return dataclasses.replace(
        problem,
        scenarios=(problem.scenarios[index],),
        qualities=(problem.qualities[index],),
        objectives=(RATE,),
        mixture=Mixture(np.ones(1), np.ones(1)),
        proofs=[],
        only=index,
    )
