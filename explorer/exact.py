"""Branch and bound over boxes of designs: the best design, and the proof of how good it is."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from explorer.bounds import Boxes, bound_boxes, budget_spans, join, root_boxes
from explorer.objectives import Objective
from explorer.problem import Problem
from explorer.space import Space
from models.checks import FloatArray, IntArray

BATCH_BOXES = 2048
"""Boxes that are split and bounded together."""

PSEUDO_COST_MEMORY = 0.98
"""Share of an axis' past pseudo-cost that one more observation leaves."""

MAX_OPEN_BOXES = 3_000_000
"""Boxes kept open before the search goes depth first."""

DIAGONAL = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Places on a box's diagonal at which an incumbent is sought."""


@dataclass
class Incumbent:
    """Best feasible design met so far: its cost in the objective, its point, and the alternative it is judged at."""

    cost: float = np.inf
    point: IntArray | None = None
    alternative: int = 0


@dataclass
class ExactSearch:
    """
    One objective searched to a proof; a deterministic function of the number of rounds done.

    `bound` is never above the cost of any feasible design; the search is complete when no box is left that could
    hold a design better than the incumbent by more than the target gap.
    """

    problem: Problem
    objective: Objective
    target_gap: float
    incumbent: Incumbent = field(default_factory=Incumbent)
    boxes_bounded: int = 0
    rounds: int = 0
    complete: bool = False

    def __post_init__(self) -> None:
        space = self.problem.space
        self._axes = np.array([i for i, p in enumerate(space.parameters) if p.ordered and len(p.values) > 1])
        self._pseudo_cost = np.ones(len(space.parameters))
        self._closed_bound = np.inf
        roots = root_boxes(self.problem)
        bounded = self._bounded(roots)
        self._open, self._cost = bounded
        self._seek_incumbent(np.argsort(self._cost, kind="stable")[:256])
        self._prune()

    @property
    def bound(self) -> float:
        """Cost that no feasible design of the space beats."""
        open_bound = float(self._cost.min()) if len(self._cost) else np.inf
        return min(open_bound, self._closed_bound, self.incumbent.cost)

    @property
    def gap(self) -> float:
        """How much better than the incumbent a design could still be, relative to the incumbent."""
        if not np.isfinite(self.incumbent.cost):
            return np.inf if np.isfinite(self.bound) else 0.0
        return (self.incumbent.cost - self.bound) / abs(self.incumbent.cost)

    @property
    def n_open(self) -> int:
        """Boxes not yet closed."""
        return len(self._cost)

    def advance(self, rounds: int) -> None:
        """Split and bound up to `rounds` batches of boxes."""
        for _ in range(rounds):
            if self.complete:
                return
            self._round()
            self.rounds += 1

    def _threshold(self) -> float:
        """Boxes whose bound is not below this cannot improve the incumbent by more than the target gap."""
        if not np.isfinite(self.incumbent.cost):
            return np.inf
        return self.incumbent.cost - self.target_gap * abs(self.incumbent.cost)

    def _prune(self) -> None:
        keep = self._cost < self._threshold()
        if not keep.all():
            dropped = self._cost[~keep]
            self._closed_bound = min(self._closed_bound, float(dropped.min()))
            self._open, self._cost = self._open.take(keep), self._cost[keep]
        self.complete = len(self._cost) == 0

    def _bounded(self, boxes: Boxes) -> tuple[Boxes, FloatArray]:
        """Bound boxes, drop those without a feasible design, narrow the windows of the rest."""
        parts, costs = [], []
        for start in range(0, boxes.n_boxes, BATCH_BOXES):
            some = boxes.take(np.arange(start, min(start + BATCH_BOXES, boxes.n_boxes)))
            bounds = bound_boxes(self.problem, some, (self.objective,))
            keep = np.isfinite(bounds.cost[:, 0])
            parts.append(Boxes(some.low[keep], some.high[keep], bounds.first[keep], bounds.last[keep]))
            costs.append(bounds.cost[keep, 0])
        self.boxes_bounded += boxes.n_boxes
        return join(parts), np.concatenate(costs)

    def _round(self) -> None:
        """Split the most promising boxes, bound their halves, look for incumbents in the best of them."""
        count = min(BATCH_BOXES // 2, len(self._cost))
        chosen = np.argpartition(self._cost, count - 1)[:count] if count < len(self._cost) else np.arange(count)
        parents, parent_cost = self._open.take(chosen), self._cost[chosen]
        rest = np.ones(len(self._cost), dtype=bool)
        rest[chosen] = False
        points = np.all(parents.low == parents.high, axis=1)
        self._close_points(parents.take(points), parent_cost[points])
        parents, parent_cost = parents.take(~points), parent_cost[~points]
        children, axis, parent = self._split(parents)
        bounded, cost, kept = self._bound_children(children)
        self._learn(axis, parent_cost[parent], cost, kept, parent)
        self._open, self._cost = join([self._open.take(rest), bounded]), np.concatenate([self._cost[rest], cost[kept]])
        if len(self._cost):
            best = np.argsort(cost[kept], kind="stable")[:64]
            self._seek_incumbent(np.count_nonzero(rest) + best)
        self._prune()

    def _close_points(self, points: Boxes, cost: FloatArray) -> None:
        """A point box is its own exact value: it competes as incumbent and is closed."""
        if not len(cost):
            return
        bounds = bound_boxes(self.problem, points, (self.objective,))
        best = int(np.argmin(bounds.cost[:, 0]))
        self._offer(points.low[best], bounds.cost[best, 0], bounds.best[best])

    def _offer(self, point: IntArray, cost: float, alternative: int) -> None:
        if cost < self.incumbent.cost:
            self.incumbent = Incumbent(float(cost), np.array(point), int(alternative))

    def _split(self, parents: Boxes) -> tuple[Boxes, IntArray, IntArray]:
        """Halve each box along the axis with the largest budget span x pseudo-cost."""
        n = parents.n_boxes
        open_axes = parents.high[:, self._axes] > parents.low[:, self._axes]
        spans = budget_spans(self.problem, parents, self._axes) + 1e-3
        score = np.where(open_axes, spans * self._pseudo_cost[self._axes], -1.0)
        axis = self._axes[np.argmax(score, axis=1)] if n else np.zeros(0, dtype=np.int64)
        rows = np.arange(n)
        middle = (parents.low[rows, axis] + parents.high[rows, axis]) // 2
        left_high, right_low = parents.high.copy(), parents.low.copy()
        left_high[rows, axis] = middle
        right_low[rows, axis] = middle + 1
        left = Boxes(parents.low, left_high, parents.first, parents.last)
        right = Boxes(right_low, parents.high, parents.first, parents.last)
        return join([left, right]), axis, np.concatenate([rows, rows])

    def _bound_children(self, children: Boxes) -> tuple[Boxes, FloatArray, np.ndarray]:
        bounds = bound_boxes(self.problem, children, (self.objective,))
        self.boxes_bounded += children.n_boxes
        cost = bounds.cost[:, 0]
        kept = np.isfinite(cost)
        narrowed = Boxes(children.low[kept], children.high[kept], bounds.first[kept], bounds.last[kept])
        return narrowed, cost, kept

    def _learn(
        self, axis: IntArray, parent_cost: FloatArray, cost: FloatArray, kept: np.ndarray, parent: IntArray
    ) -> None:
        """Pseudo-cost of an axis: product of the shares of the needed bound rise that both halves achieve."""
        n = len(axis)
        if not n:
            return
        needed = np.maximum(self._threshold() - parent_cost, 1e-12 * np.abs(parent_cost) + 1e-300)
        with np.errstate(invalid="ignore"):
            share = np.where(kept, np.minimum((cost - parent_cost) / needed, 1.0), 1.0)
        share = np.where(np.isfinite(share), np.maximum(share, 0.02), 0.02)
        product = share[:n] * share[n:]
        for each in np.unique(axis):
            mean = float(product[axis == each].mean())
            memory = PSEUDO_COST_MEMORY ** min(np.count_nonzero(axis == each), 50)
            self._pseudo_cost[each] = memory * self._pseudo_cost[each] + (1.0 - memory) * mean

    def _seek_incumbent(self, rows: IntArray) -> None:
        """Judge points on the diagonals of boxes, then polish the best one coordinate at a time."""
        boxes = self._open.take(rows)
        if not boxes.n_boxes:
            return
        places = [boxes.low + np.floor((boxes.high - boxes.low) * place).astype(np.int64) for place in DIAGONAL]
        points = np.concatenate(places)
        window = [np.tile(values, len(DIAGONAL)) for values in (boxes.first, boxes.last)]
        before = self.incumbent.cost
        self._judge(points, *window)
        if self.incumbent.cost < before:
            self._polish()

    def _judge(self, points: IntArray, first: IntArray, last: IntArray) -> None:
        bounds = bound_boxes(self.problem, Boxes(points, points, first, last), (self.objective,))
        best = int(np.argmin(bounds.cost[:, 0]))
        self._offer(points[best], bounds.cost[best, 0], bounds.best[best])

    def _polish(self) -> None:
        """Exchange one parameter at a time, over all its values and all alternatives, until nothing improves."""
        whole = root_windows(self.problem)
        for _ in range(30):
            assert self.incumbent.point is not None
            near = neighbours(self.problem.space, self.incumbent.point)
            before = self.incumbent.cost
            self._judge(
                np.repeat(near, len(whole), axis=0), np.tile(whole[:, 0], len(near)), np.tile(whole[:, 1], len(near))
            )
            if not self.incumbent.cost < before:
                return


def root_windows(problem: Problem) -> IntArray:
    """Windows of alternatives of the whole problem, shape (n_windows, 2)."""
    from explorer.bounds import alternative_windows

    return alternative_windows(problem)


def neighbours(space: Space, point: IntArray) -> IntArray:
    """All points that differ from `point` in one parameter, and the point itself, shape (n_points, n_parameters)."""
    points = [point]
    for i, size in enumerate(space.sizes):
        for value in range(size):
            if value != point[i]:
                other = point.copy()
                other[i] = value
                points.append(other)
    return np.array(points)
