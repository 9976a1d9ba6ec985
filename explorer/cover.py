"""A front proven to cover: no design is better in every objective by more than the target gap."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from explorer.bounds import alternative_costs
from explorer.boxes import Boxes, alternative_windows, join, point_boxes
from explorer.budget_cuts import tighten, tighten_halves
from explorer.exact import BATCH_BOXES, SEEN_EVERY, SEEN_PER_ROUND, halves, split_axis
from explorer.local_search import DIAGONAL, NEAR_BATCHES, exchanges, fitted_to_plans
from explorer.pareto import non_dominated
from explorer.problem import Problem
from explorer.staged_bounds import StagedBounds
from models.checks import BoolArray, FloatArray, IntArray

POLISHES_PER_ROUND = 3
"""Members of the archive whose neighbourhood is looked at in each round."""


SEEDS_PER_OBJECTIVE = 32
"""Boxes of each batch of roots, by promise in each objective, from which the archive gets its first members."""


MOST_COMPARED = 1000
"""Bounds of open boxes in three objectives or more that are compared with one another."""


@dataclass
class Archive:
    """Feasible designs at their operating points of which none beats another; costs are minimised."""

    cost: FloatArray
    point: IntArray
    alternative: IntArray

    def offer(self, cost: FloatArray, point: IntArray, alternative: IntArray) -> None:
        """Add points, keep what nothing beats."""
        keep = np.all(np.isfinite(cost), axis=1)
        costs = np.concatenate([self.cost, cost[keep]])
        points = np.concatenate([self.point, point[keep]])
        alternatives = np.concatenate([self.alternative, alternative[keep]])
        front = non_dominated(costs)
        self.cost, self.point, self.alternative = costs[front], points[front], alternatives[front]

    def covers(self, bound: FloatArray, gap: float) -> BoolArray:
        """Whether some member is within `gap` of a bound in every objective, shape (n_boxes,)."""
        if not len(self.cost):
            return np.zeros(len(bound), dtype=bool)
        reach = self.cost - gap * np.abs(self.cost)
        reached: BoolArray = np.all(reach[None, :, :] <= bound[:, None, :], axis=2)
        return np.asarray(np.any(reached, axis=1))


@dataclass(frozen=True)
class Uncovered:
    """Everything matters that no member of an archive comes within the gap of."""

    archive: Archive
    gap: float

    def __call__(self, cost: FloatArray) -> BoolArray:
        """Whether each cost is uncovered."""
        flat = cost.reshape(-1, cost.shape[-1])
        return ~self.archive.covers(flat, self.gap).reshape(cost.shape[:-1])


@dataclass
class CoverSearch:
    """
    Several objectives searched until every box of the space is covered by the archive.

    Deterministic in the number of rounds. Boxes are taken newest first, so that few are open at a time.
    """

    problem: Problem
    target_gap: float
    roots: Boxes
    archive: Archive
    boxes_bounded: int = 0
    complete: bool = False
    pseudo_cost: FloatArray = field(default_factory=lambda: np.ones(0))
    """How far splitting an axis raises bounds, shape (n_parameters,): learned where single objectives are searched."""
    _explored: set[tuple[int, ...]] = field(default_factory=set)
    _split_rounds: int = 0

    def __post_init__(self) -> None:
        space = self.problem.space
        self._bounds = StagedBounds(self.problem, self.problem.objectives)
        self._axes = space.split_axes
        self._formats = [p.name for p in space.parameters].index("native_formats")
        if not len(self.pseudo_cost):
            self.pseudo_cost = np.ones(len(space.parameters))
        nothing = np.zeros(0, dtype=np.int64)
        self._open, self._bound = self.roots.take(nothing), np.zeros((0, len(self.problem.objectives)))

    @property
    def n_open(self) -> int:
        """Boxes not yet covered, those not yet bounded included."""
        return len(self._bound) + self.roots.n_boxes

    def open_boxes(self) -> tuple[Boxes, FloatArray]:
        """Boxes not yet covered and their bounds in the first objective, shape (n_open,)."""
        return self._open, self._bound[:, 0]

    def advance(self, rounds: int) -> None:
        """Split and bound up to `rounds` batches of boxes."""
        for _ in range(rounds):
            if self.complete:
                return
            self._round()

    def remaining_gap(self) -> float:
        """Gap at which the archive covers every open box; the target once none is open."""
        if self.complete:
            return self.target_gap
        if not len(self.archive.cost) or self.roots.n_boxes:
            return np.inf
        worst = self.target_gap
        for start in range(0, len(self._bound), 4096):
            bound = self._bound[start : start + 4096]
            short = (self.archive.cost[None] - bound[:, None]) / np.abs(self.archive.cost[None])
            worst = max(worst, float(short.max(axis=2).min(axis=1).max()))
        return worst

    def optimistic_costs(self) -> FloatArray | None:
        """
        Return rows of which every feasible design is at best as good as one, shape (n_rows, n_objectives).

        Members of the archive moved by the target gap, which cover the closed boxes, and the bounds of the open ones.
        None before all boxes were bounded, and while those of more than two objectives are too many to compare.
        """
        if self.roots.n_boxes or (self._bound.shape[1] > 2 and len(self._bound) > MOST_COMPARED):
            return None
        reach = self.archive.cost - self.target_gap * np.abs(self.archive.cost)
        rows = np.concatenate([reach, self._bound])
        return rows[non_dominated(rows)]

    def _prune(self) -> None:
        keep = ~self.archive.covers(self._bound, self.target_gap)
        self._open, self._bound = self._open.take(keep), self._bound[keep]
        self.complete = self.n_open == 0

    def _bounded(self, boxes: Boxes) -> tuple[Boxes, FloatArray]:
        parts, costs = [], []
        for start in range(0, max(boxes.n_boxes, 1), BATCH_BOXES):
            some = boxes.take(np.arange(start, min(start + BATCH_BOXES, boxes.n_boxes)))
            bounds = self._bounds(some, Uncovered(self.archive, self.target_gap))
            keep = bounds.matters & np.all(np.isfinite(bounds.cost), axis=1)
            keep[keep] &= ~self.archive.covers(bounds.cost[keep], self.target_gap)
            parts.append(bounds.narrow(some).take(keep))
            costs.append(bounds.cost[keep])
        self.boxes_bounded += boxes.n_boxes
        return join(parts), np.concatenate(costs)

    def polish(self) -> None:
        """Offer what lies around members of the archive that were not explored yet, at their own degree and mix."""
        windows = alternative_windows(self.problem)
        for _ in range(POLISHES_PER_ROUND):
            keys = [(*point, plan) for point, plan in zip(self.archive.point, self._plans(), strict=True)]
            fresh = next((i for i, key in enumerate(keys) if key not in self._explored), None)
            if fresh is None:
                return
            self._explored.add(keys[fresh])
            point = self.archive.point[fresh]
            near = exchanges(self.problem, point)
            own = windows[keys[fresh][-1]]
            close = np.clip(self.archive.alternative[fresh] + np.array([-NEAR_BATCHES, NEAR_BATCHES]), *own)
            self.offer(near, *[np.full(len(near), end) for end in close])
            if len(windows) > 1:
                points, plan = fitted_to_plans(self.problem, point, windows)
                self.offer(points, windows[plan, 0], windows[plan, 1])

    def _plans(self) -> list[int]:
        """Window of alternatives that each member of the archive lies in."""
        starts = alternative_windows(self.problem)[:, 0]
        return [int(i) for i in np.searchsorted(starts, self.archive.alternative, side="right") - 1]

    def _bound_next_roots(self) -> None:
        """Bound a batch of boxes that cover the space, the most promising of them to be split first."""
        some = np.arange(min(BATCH_BOXES, self.roots.n_boxes))
        boxes, bound = self._bounded(tighten(self.problem, self.roots.take(some)))
        self.roots = self.roots.take(np.arange(len(some), self.roots.n_boxes))
        order = np.argsort(-bound.sum(axis=1), kind="stable")
        self._offer_diagonals(boxes, bound)
        self._open, self._bound = join([self._open, boxes.take(order)]), np.concatenate([self._bound, bound[order]])
        self._prune()

    def _offer_diagonals(self, boxes: Boxes, bound: FloatArray) -> None:
        """Offer designs on the diagonals of the boxes that promise most in each objective."""
        for column in bound.T:
            some = boxes.take(np.argsort(column, kind="stable")[:SEEDS_PER_OBJECTIVE])
            for place in DIAGONAL:
                middle = some.low + np.floor((some.high - some.low) * place).astype(np.int64)
                self.offer(middle, some.first, some.last)

    def _round(self) -> None:
        self.polish()
        if self.roots.n_boxes:
            self._bound_next_roots()
            return
        if not len(self._bound):
            self.complete = True
            return
        formats = self._open.low[:, self._formats]
        chosen = np.flatnonzero(formats == formats[-1])[-BATCH_BOXES // 2 :]
        parents = self._open.take(chosen)
        rest = np.delete(np.arange(len(self._bound)), chosen)
        self._open, self._bound = self._open.take(rest), self._bound[rest]
        points = np.all(parents.low == parents.high, axis=1)
        self.offer(parents.low[points], parents.first[points], parents.last[points])
        parents = parents.take(~points)
        if parents.n_boxes:
            if self._split_rounds % SEEN_EVERY == 0:
                self._offer_inside(parents)
            self._split_rounds += 1
            children = halves(parents, split_axis(self.problem, parents, self._axes, self.pseudo_cost))
            boxes, bound = self._bounded(tighten_halves(self.problem, children))
            order = np.argsort(-bound.sum(axis=1), kind="stable")
            self._open = join([self._open, boxes.take(order)])
            self._bound = np.concatenate([self._bound, bound[order]])
        self._prune()

    def _offer_inside(self, boxes: Boxes) -> None:
        """Offer designs inside some of the boxes."""
        some = boxes.take(np.arange(0, boxes.n_boxes, max(1, boxes.n_boxes // SEEN_PER_ROUND)))
        for place in DIAGONAL[1:4]:
            middle = some.low + np.floor((some.high - some.low) * place).astype(np.int64)
            self.offer(middle, some.first, some.last)

    def offer(self, points: IntArray, first: IntArray, last: IntArray) -> None:
        """Judge designs at every alternative of their windows and offer all of them to the archive."""
        affordable = tighten(self.problem, point_boxes(points, first, last))
        points, first, last = affordable.low, affordable.first, affordable.last
        if not len(points):
            return
        cost, alternative = alternative_costs(self.problem, points, first, last, self.problem.objectives)
        flat = cost.reshape(-1, cost.shape[2])
        rows = np.repeat(np.arange(len(points)), cost.shape[1])
        feasible = np.all(np.isfinite(flat), axis=1)
        self.archive.offer(flat[feasible], points[rows[feasible]], alternative.reshape(-1)[feasible])


def empty_archive(problem: Problem) -> Archive:
    """An archive without members."""
    n = len(problem.objectives)
    return Archive(
        np.empty((0, n)), np.empty((0, len(problem.space.parameters)), dtype=np.int64), np.empty(0, dtype=np.int64)
    )
