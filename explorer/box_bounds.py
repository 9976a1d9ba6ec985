"""What a bound of boxes says, and what it is held against."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from explorer.boxes import Boxes
from models.checks import BoolArray, FloatArray, IntArray

SLACK = 1e-9
"""Relative slack by which bounds are rounded outward against floating point."""


class Rival(Protocol):
    """What designs are held against: those already found."""

    def __call__(self, cost: FloatArray) -> BoolArray:
        """Whether a design of such costs, shape (..., n_objectives), would still matter, shape (...)."""


@dataclass(frozen=True)
class Below:
    """Everything matters that costs less than a threshold in the first objective."""

    threshold: float

    def __call__(self, cost: FloatArray) -> BoolArray:
        """Whether each cost is below."""
        return np.asarray(cost[..., 0] < self.threshold)


EVERYTHING = Below(np.inf)


@dataclass(frozen=True)
class BoxBounds:
    """
    Bounds of boxes, objectives as costs to minimise.

    `cost` of shape (n_boxes, n_objectives) is never above the cost of any feasible design and alternative inside,
    infinite where none can be feasible; `first` and `last`, or `kept`, are the alternatives that still matter;
    `left_out` of shape (n_boxes,) is the least cost in the first objective of a feasible one that does not, and
    `matters` tells whether any does.
    """

    cost: FloatArray
    first: IntArray
    last: IntArray
    left_out: FloatArray
    kept: BoolArray
    matters: BoolArray

    def narrow(self, boxes: Boxes) -> Boxes:
        """The boxes with the alternatives that still matter."""
        return dataclasses.replace(boxes, first=self.first, last=self.last, kept=self.kept)


def outward(costs: FloatArray) -> FloatArray:
    """Bounds lowered by the slack; infinite ones stay."""
    return np.asarray(costs - SLACK * np.abs(np.where(np.isfinite(costs), costs, 0.0)))
