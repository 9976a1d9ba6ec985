"""Boxes cut to the area budget, and what their axes cost of it."""

from __future__ import annotations

import dataclasses

import numpy as np

from explorer.box_bounds import SLACK
from explorer.boxes import Boxes, join
from explorer.corners import cheapest_designs, designs_of
from explorer.problem import Problem
from explorer.shared_work import shared
from models.checks import BoolArray, FloatArray, IntArray
from models.hardware.area import die_area_mm2
from models.hardware.power import full_rate_power_w


def tighten(problem: Problem, boxes: Boxes) -> Boxes:
    """
    Return the boxes that the area budget leaves, each axis cut to the largest index it can afford.

    With all other parameters at their lowest, area rises along each axis, so everything beyond the cut is over
    budget whatever the rest is. Boxes whose lowest corner is over budget are left out.
    """
    return join(shared(problem, _tighten, (boxes,))) if boxes.n_boxes else boxes


def tighten_halves(problem: Problem, boxes: Boxes) -> Boxes:
    """Return `tighten` of lower and then upper halves of tight boxes: the lower ones are tight as they are."""
    lower, upper = np.array_split(np.arange(boxes.n_boxes), 2)
    return join([boxes.take(lower), tighten(problem, boxes.take(upper))])


def _tighten(problem: Problem, boxes: Boxes) -> Boxes:
    limit = problem.document.budget.area * (1.0 + SLACK)
    boxes = boxes.take(_area_mm2(problem, boxes, boxes.low) <= limit)
    ordered = np.array([p.ordered for p in problem.space.parameters])
    rows, axes = np.nonzero((boxes.high > boxes.low) & ordered)
    over = boxes.high[rows, axes]
    beyond = ~_fits(problem, boxes, rows, axes, over, limit)
    rows, axes, over = rows[beyond], axes[beyond], over[beyond]
    affordable = boxes.low[rows, axes]
    while np.any(over - affordable > 1):
        middle = (affordable + over) // 2
        fits = _fits(problem, boxes, rows, axes, middle, limit)
        affordable, over = np.where(fits, middle, affordable), np.where(fits, over, middle)
    high = boxes.high.copy()
    high[rows, axes] = affordable
    return dataclasses.replace(boxes, high=high)


def _fits(
    problem: Problem, boxes: Boxes, rows: IntArray, axes: IntArray, index: IntArray, limit_mm2: float
) -> BoolArray:
    """Whether the cheapest corner of boxes `rows`, each with the axis of `axes` at `index`, keeps the area budget."""
    some = boxes.take(rows)
    return np.asarray(_area_mm2(problem, some, _raised(some.low, axes, index)) <= limit_mm2)


def _raised(points: IntArray, axes: IntArray, index: IntArray) -> IntArray:
    """Points with one axis each at another index."""
    raised = points.copy()
    raised[np.arange(len(points)), axes] = index
    return raised


def _area_mm2(problem: Problem, boxes: Boxes, points: IntArray) -> FloatArray:
    return die_area_mm2(cheapest_designs(problem, boxes, points), problem.technology)


def budget_spans(problem: Problem, boxes: Boxes, axes: IntArray) -> FloatArray:
    """
    Return what raising each axis from its low to its high index costs, others low, in budgets.

    Returns
    -------
    array of shape (n_boxes, n_axes)
        Share of the area budget plus share of the power cap. [1]
    """
    return np.concatenate(shared(problem, _budget_spans, (boxes,), (axes,)))


def _budget_spans(problem: Problem, boxes: Boxes, axes: IntArray) -> FloatArray:
    spans = np.zeros((boxes.n_boxes, len(axes)))
    rows, columns = np.nonzero(boxes.high[:, axes] > boxes.low[:, axes])
    raised = _raised(boxes.low[rows], axes[columns], boxes.high[rows, axes[columns]])
    spans[rows, columns] = _budget_shares(problem, raised) - _budget_shares(problem, boxes.low)[rows]
    return spans


def _budget_shares(problem: Problem, points: IntArray) -> FloatArray:
    budget, designs, used = problem.document.budget, designs_of(problem, points), problem.technology
    return np.asarray(die_area_mm2(designs, used) / budget.area + full_rate_power_w(designs, used) / budget.tdp)
