"""Bounds of boxes in two stages: a limit that closes few boxes is looked at for few of them."""

from __future__ import annotations

import dataclasses

import numpy as np

from explorer.bounds import bound_boxes, without_prompts
from explorer.box_bounds import BoxBounds, Rival
from explorer.boxes import Boxes
from explorer.objectives import Objective
from explorer.problem import Problem
from models.metrics import METRICS
from models.serving.steady import CompiledServing

WORTH_LOOKING = 0.02
"""Share of the boxes that the first stage leaves open, and the second closes, above which the next call has both."""

FIRST_WAIT = 3
"""Calls before the first look: boxes that wide are closed by nothing."""


class StagedBounds:
    """
    Bounds without prompts computed alone, and at times with them for the boxes that these leave open.

    Such prompts are up to three tenths of the work of a box (`chat-550-150`) and decide nothing but the latency of
    first tokens, which seldom binds where the rate of tokens does not. Calls have the second stage as long as it closes
    boxes; while it does not, twice as many calls go without it as before. Bounds are valid either way. A function of
    the calls so far.

    Parameters
    ----------
    problem : Problem
    objectives : tuple of Objective
    """

    def __init__(self, problem: Problem, objectives: tuple[Objective, ...]) -> None:
        self._problem, self._objectives = problem, objectives
        left_out = any(
            isinstance(each, CompiledServing) and not each.looks_at_prompts
            for each in without_prompts(problem).scenarios
        )
        self._in_one = not left_out or any(o.metric in METRICS and METRICS[o.metric].of_prompts for o in objectives)
        self._calls, self._wait, self._next_look = 0, FIRST_WAIT, FIRST_WAIT

    def __call__(self, boxes: Boxes, rival: Rival) -> BoxBounds:
        """Return bounds as `bound_boxes` does."""
        if self._in_one:
            return bound_boxes(self._problem, boxes, self._objectives, rival)
        found = bound_boxes(self._problem, boxes, self._objectives, rival, prompts=False)
        if self._calls >= self._next_look:
            found = self._looked(boxes, found, rival)
        self._calls += 1
        return found

    def _looked(self, boxes: Boxes, found: BoxBounds, rival: Rival) -> BoxBounds:
        """Bounds with prompts for the boxes that still matter without."""
        rows = np.flatnonzero(found.matters)
        if not len(rows):
            return found
        left = found.narrow(boxes).take(rows)
        whole = bound_boxes(self._problem, left, self._objectives, rival)
        closed = np.count_nonzero(~whole.matters) / len(rows)
        self._wait = 0 if closed > WORTH_LOOKING else 2 * self._wait + 1
        self._next_look = self._calls + 1 + self._wait
        merged = {}
        for each in dataclasses.fields(BoxBounds):
            merged[each.name] = getattr(found, each.name).copy()
            merged[each.name][rows] = getattr(whole, each.name)
        merged["left_out"] = np.minimum(found.left_out, merged["left_out"])
        return BoxBounds(**merged)
