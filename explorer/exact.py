"""Branch and bound over boxes of designs: the best design, and the proof of how good it is."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import numpy as np

from explorer.box_bounds import Below
from explorer.boxes import Boxes, alternative_windows, join, root_boxes
from explorer.budget_cuts import budget_spans, tighten, tighten_halves
from explorer.local_search import DIAGONAL, Incumbent, Operation, best_of, best_of_each, polished
from explorer.objectives import REGRET, Objective
from explorer.problem import Problem
from explorer.staged_bounds import StagedBounds
from models.checks import FloatArray, IntArray

BATCH_BOXES = 16384
"""Boxes that are split and bounded together."""

PSEUDO_COST_MEMORY = 0.98
"""Share of an axis' past pseudo-cost that one more observation leaves."""

WIDTH_SHARE = 0.1
"""Budget that the whole width of an axis counts for beside what it costs, so that free parameters are split too."""

STARTS = 12
"""Local searches from all over the space in a round that makes some."""

SEEK_SPACING = 8
"""Every round makes some until one finds a feasible design; the next follow after so many times as many rounds."""

START_MARGIN = 0.1
"""How much worse than the incumbent a design may be from which a local search starts, where judging one takes long."""

MIXTURE_STARTS = 4
"""The same for a mixture of scenarios, whose designs take longer to judge."""

SEEN_PER_ROUND = 32
"""Boxes of a round on whose diagonals a better design is looked for."""

SEEN_EVERY = 3
"""Rounds from one such look to the next."""


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
    roots: Boxes | None = None
    """Boxes searched; those that cover the space where none are given."""

    def __post_init__(self) -> None:
        space = self.problem.space
        self._axes = space.split_axes
        self._formats = [p.name for p in space.parameters].index("native_formats")
        self.pseudo_cost = np.ones(len(space.parameters))
        self._closed_bound = np.inf
        self._known: set[Operation] = set()
        self._bounds = StagedBounds(self.problem, (self.objective,))
        self._roots = shuffled(root_boxes(self.problem)) if self.roots is None else self.roots
        self._open, self._cost = self._roots.take(np.zeros(0, dtype=np.int64)), np.zeros(0)
        self._split_rounds = self._seeks_at = 0

    @property
    def bound(self) -> float:
        """Cost that no feasible design of the space beats."""
        if self._roots.n_boxes:
            return -np.inf
        open_bound = float(self._cost.min()) if len(self._cost) else np.inf
        return min(open_bound, self._closed_bound, self.incumbent.cost)

    @property
    def gap(self) -> float:
        """How much better than the incumbent a design could still be, relative to the incumbent."""
        if not np.isfinite(self.incumbent.cost):
            return 0.0 if self.complete else np.inf
        return (self.incumbent.cost - self.bound) / abs(self.incumbent.cost)

    @property
    def n_open(self) -> int:
        """Boxes not yet closed, those not yet bounded included."""
        return len(self._cost) + self._roots.n_boxes

    def offer(self, cost: float, point: IntArray, alternative: int) -> None:
        """Let a feasible design that was judged elsewhere compete as incumbent."""
        if cost < self.incumbent.cost:
            self.incumbent = Incumbent(float(cost), np.array(point), int(alternative))

    def open_boxes(self) -> tuple[Boxes, FloatArray]:
        """Boxes not yet closed and their bounds, shape (n_open,)."""
        return self._open, self._cost

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
        self.complete = self.n_open == 0

    def _bounded(self, boxes: Boxes) -> tuple[Boxes, FloatArray]:
        """Bound boxes, drop those without a feasible design, narrow the windows of the rest."""
        parts, costs = [], []
        for start in range(0, max(boxes.n_boxes, 1), BATCH_BOXES):
            some = boxes.take(np.arange(start, min(start + BATCH_BOXES, boxes.n_boxes)))
            bounds = self._bounds(some, Below(self._threshold()))
            self._closed_bound = min(self._closed_bound, float(bounds.left_out.min(initial=np.inf)))
            keep = np.isfinite(bounds.cost[:, 0])
            parts.append(bounds.narrow(some).take(keep))
            costs.append(bounds.cost[keep, 0])
        self.boxes_bounded += boxes.n_boxes
        return join(parts), np.concatenate(costs)

    def _round(self) -> None:
        """Split the most promising boxes, bound their halves, look for incumbents in the best of them."""
        if self._roots.n_boxes:
            self._bound_next_roots()
            return
        if not len(self._cost):
            self.complete = True
            return
        if self._split_rounds >= self._seeks_at:
            self._seek_from_everywhere()
            if self.incumbent.point is not None:
                self._seeks_at = SEEK_SPACING * (self._split_rounds + 1)
        self._split_rounds += 1
        chosen = self._chosen(min(BATCH_BOXES // 2, len(self._cost)))
        parents, parent_cost = self._open.take(chosen), self._cost[chosen]
        rest = np.ones(len(self._cost), dtype=bool)
        rest[chosen] = False
        points = np.all(parents.low == parents.high, axis=1)
        self._close_points(parents.take(points), parent_cost[points])
        parents, parent_cost = parents.take(~points), parent_cost[~points]
        children, axis = self._split(parents)
        bounded, cost, kept = self._bound_children(children)
        self._learn(axis, parent_cost, cost)
        self._open, self._cost = join([self._open.take(rest), bounded]), np.concatenate([self._cost[rest], kept])
        if len(kept) and self._split_rounds % SEEN_EVERY == 0:
            best = np.argsort(kept, kind="stable")[:SEEN_PER_ROUND]
            self._seek_in_best(np.count_nonzero(rest) + best)
        self._prune()

    def _chosen(self, count: int) -> IntArray:
        """
        Positions of the boxes to split next: of those that share the native formats of the best one, the best `count`.

        Every box below the threshold must be split at some time; designs of equal formats are evaluated together.
        """
        if count == len(self._cost):
            return np.arange(count)
        formats = self._open.low[:, self._formats]
        alike = np.flatnonzero(formats == formats[np.argmin(self._cost)])
        return alike[np.argpartition(self._cost[alike], count - 1)[:count]] if count < len(alike) else alike

    def _bound_next_roots(self) -> None:
        """Bound a batch of boxes that cover the space; a batch at a time."""
        some = np.arange(min(BATCH_BOXES, self._roots.n_boxes))
        boxes, cost = self._bounded(tighten(self.problem, self._roots.take(some)))
        self._roots = self._roots.take(np.arange(len(some), self._roots.n_boxes))
        if self.objective.metric == REGRET and self.incumbent.point is None:
            self._seek_from_bests()
        self._open, self._cost = join([self._open, boxes]), np.concatenate([self._cost, cost])
        self._prune()

    def _seek_from_bests(self) -> None:
        """Start a regret from the designs that are best for one scenario each."""
        points = self.problem.mixture.best_points() if self.problem.mixture.best_points else np.zeros((0, 0), np.int64)
        each, idle = np.arange(len(points)), np.zeros(len(points), dtype=np.int64)
        found = best_of_each(self.problem, self.objective, points, idle, idle, each, len(points))
        self._compete(polished(self.problem, self.objective, found, self._known))

    def _close_points(self, points: Boxes, cost: FloatArray) -> None:
        """A point box is its own exact value: it competes as incumbent and is closed."""
        if len(cost):
            self._compete(best_of(self.problem, self.objective, points.low, points.first, points.last))

    def _split(self, parents: Boxes) -> tuple[Boxes, IntArray]:
        axis = split_axis(self.problem, parents, self._axes, self.pseudo_cost)
        return halves(parents, axis), axis

    def _bound_children(self, children: Boxes) -> tuple[Boxes, FloatArray, FloatArray]:
        """Boxes that may hold a feasible design, the cost of every child (infinite where closed), and theirs."""
        tagged = tighten_halves(self.problem, dataclasses.replace(children, parent=np.arange(children.n_boxes)))
        cost = np.full(children.n_boxes, np.inf)
        bounded, kept = self._bounded(tagged)
        cost[bounded.parent] = kept
        return bounded, cost, kept

    def _learn(self, axis: IntArray, parent_cost: FloatArray, cost: FloatArray) -> None:
        """Pseudo-cost of an axis: product of the shares of the needed bound rise that both halves achieve."""
        n = len(axis)
        if not n:
            return
        threshold = self._threshold()
        needed = threshold - parent_cost if np.isfinite(threshold) else np.abs(parent_cost)
        rise = np.where(np.isfinite(cost), cost, np.inf).reshape(2, n) - parent_cost
        share = np.clip(rise / np.maximum(needed, 1e-12 * np.abs(parent_cost) + 1e-300), 0.02, 1.0)
        product = share[0] * share[1]
        for each in np.unique(axis):
            mean = float(product[axis == each].mean())
            memory = PSEUDO_COST_MEMORY ** min(int(np.count_nonzero(axis == each)), 50)
            self.pseudo_cost[each] = memory * self.pseudo_cost[each] + (1.0 - memory) * mean

    def _seek_from_everywhere(self) -> None:
        """
        Local searches that start apart: in the best open boxes of each array shape under each degree and mix.

        Of the designs on their diagonals the best of each shape, and of each degree and mix, go on, the first few.
        """
        order = np.argsort(self._cost, kind="stable")
        names = [p.name for p in self.problem.space.parameters]
        shape = self._open.low[order, names.index("array_shape")]
        plan = np.searchsorted(alternative_windows(self.problem)[:, 0], self._open.first[order], side="right")
        _, first = np.unique(np.stack([shape, plan], axis=1), axis=0, return_index=True)
        promising = self.incumbent.cost + START_MARGIN * abs(self.incumbent.cost)
        found = self._best_on_diagonals(self._open.take(order[first]), promising)
        by_cost = np.argsort([each.cost for each in found], kind="stable")
        apart = [np.unique(kind[first][by_cost], return_index=True)[1] for kind in (shape, plan)]
        n_starts = STARTS if len(self.problem.scenarios) == 1 else MIXTURE_STARTS
        starts = by_cost[np.unique(np.concatenate(apart))][:n_starts]
        self._compete(polished(self.problem, self.objective, [found[i] for i in starts], self._known))

    def _best_on_diagonals(self, boxes: Boxes, limit: float) -> list[Incumbent]:
        """The best design on the diagonal of each box, at any alternative of its window; dearer ones may be missed."""
        width = boxes.high - boxes.low
        places = [boxes.low + np.floor(width * place).astype(np.int64) for place in DIAGONAL]
        points = np.stack(places, axis=1).reshape(-1, width.shape[1])
        first, last, owner = (
            np.repeat(values, len(DIAGONAL)) for values in (boxes.first, boxes.last, np.arange(boxes.n_boxes))
        )
        return best_of_each(self.problem, self.objective, points, first, last, owner, boxes.n_boxes, limit)

    def _compete(self, found: Incumbent) -> None:
        if found.cost < self.incumbent.cost:
            self.incumbent = found

    def _seek_in_best(self, rows: IntArray) -> None:
        """Judge points on the diagonals of boxes, then polish the best one if it leads."""
        found = min(
            self._best_on_diagonals(self._open.take(rows), self.incumbent.cost),
            key=lambda each: each.cost,
            default=Incumbent(),
        )
        if found.cost < self.incumbent.cost:
            self._compete(polished(self.problem, self.objective, [found], self._known))


def split_axis(problem: Problem, boxes: Boxes, axes: IntArray, pseudo_cost: FloatArray) -> IntArray:
    """Axis of each box with the largest budget span x pseudo-cost, shape (n_boxes,)."""
    if not boxes.n_boxes:
        return np.zeros(0, dtype=np.int64)
    still_open = boxes.high[:, axes] > boxes.low[:, axes]
    width = (boxes.high[:, axes] - boxes.low[:, axes]) / (problem.space.sizes[axes] - 1)
    spans = budget_spans(problem, boxes, axes) + WIDTH_SHARE * width
    return np.asarray(axes[np.argmax(np.where(still_open, spans * pseudo_cost[axes], -1.0), axis=1)])


def shuffled(boxes: Boxes) -> Boxes:
    """The boxes in an order that mixes all categories, always the same."""
    return boxes.take(np.random.default_rng(0).permutation(boxes.n_boxes))


def halves(boxes: Boxes, axis: IntArray) -> Boxes:
    """Both halves of each box along its axis: all lower ones, then all upper ones."""
    rows = np.arange(boxes.n_boxes)
    middle = (boxes.low[rows, axis] + boxes.high[rows, axis]) // 2
    left_high, right_low = boxes.high.copy(), boxes.low.copy()
    left_high[rows, axis] = middle
    right_low[rows, axis] = middle + 1
    return join([dataclasses.replace(boxes, high=left_high), dataclasses.replace(boxes, low=right_low)])
