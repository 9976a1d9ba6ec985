"""A proof in shards: parts of the space that are searched apart, by any worker, and merged in their order."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from explorer.boxes import Boxes, root_boxes
from explorer.cover import CoverSearch, empty_archive
from explorer.document import StudyError
from explorer.exact import ExactSearch, shuffled
from explorer.hypervolume import proven_hypervolume
from explorer.local_search import neighbours
from explorer.pareto import non_dominated
from explorer.problem import Problem
from explorer.proof import FRONT, LEAST_FRONT_GAP
from models.checks import IntArray

Outcome = Mapping[str, Any]
"""What one shard has proven, as plain data."""

KeepGoing = Callable[[], bool]
"""Asked after every round of a second or so; a shard that may not go on is given up."""


@dataclass(frozen=True)
class Shard:
    """A share of the boxes that a proof starts from, in one objective or in the front of all."""

    metric: str
    share: int
    n_shares: int


LEAST_SHARDED = 1_000_000
"""Designs of a space below which a proof is too little work to share."""


def n_shares(problem: Problem) -> int:
    """Shares of the space of a proof; 1 means that it is not sharded."""
    return int(problem.document.search.shards) if problem.space.n_designs >= LEAST_SHARDED else 1


def shards_of(problem: Problem) -> list[Shard]:
    """Every shard of a proof in the order in which they are merged; none for one that is not sharded."""
    shares = n_shares(problem)
    if shares == 1:
        return []
    metrics = [objective.metric for objective in problem.objectives]
    metrics += [FRONT] if len(metrics) > 1 else []
    return [Shard(metric, share, shares) for metric in metrics for share in range(shares)]


def require_a_trial_for_each_shard(problem: Problem) -> None:
    """
    Return if every shard may record what it found.

    Raises
    ------
    StudyError
        With a pointer to the trials.
    """
    shards, trials = len(shards_of(problem)), problem.document.search.trials
    if trials < shards:
        detail = f"must be at least {shards}, one for each shard of each objective and of their front, got {trials}"
        raise StudyError([{"pointer": "/search/trials", "detail": detail}])


def _boxes_of(problem: Problem, shard: Shard) -> Boxes:
    """Every n-th of the boxes that cover the space, in an order that mixes all categories."""
    boxes = shuffled(root_boxes(problem))
    return boxes.take(np.arange(shard.share, boxes.n_boxes, shard.n_shares))


def run_shard(problem: Problem, index: int, keep_going: KeepGoing = lambda: True) -> Outcome | None:
    """
    Return what shard `index` proves within the study's search time; None where it was told to stop.

    But for the wall time, a function of problem and index unless the time runs out.
    """
    shard, started = shards_of(problem)[index], time.perf_counter()
    boxes = _boxes_of(problem, shard)
    search: CoverSearch | ExactSearch
    if shard.metric == FRONT:
        gap = max(problem.document.search.target_gap, LEAST_FRONT_GAP)
        search = CoverSearch(problem, gap, boxes, empty_archive(problem))
    else:
        objective = next(each for each in problem.objectives if each.metric == shard.metric)
        search = ExactSearch(problem, objective, problem.document.search.target_gap, roots=boxes)
    while not search.complete and time.perf_counter() - started < problem.document.search.timeout:
        if not keep_going():
            return None
        search.advance(1)
    found = _front_outcome(search) if isinstance(search, CoverSearch) else _objective_outcome(search)
    return {"metric": shard.metric, **found, "wall_s": time.perf_counter() - started}


def _objective_outcome(search: ExactSearch) -> dict[str, Any]:
    best = search.incumbent
    members = [] if best.point is None else [_member([best.cost], best.point, best.alternative)]
    return {
        "bound": _number(search.bound), "gap": _number(search.gap), "boxes": search.boxes_bounded,
        "open_boxes": search.n_open, "complete": bool(search.complete), "members": members,
    }  # fmt: skip


def _front_outcome(search: CoverSearch) -> dict[str, Any]:
    archive = search.archive
    members = [_member(*each) for each in zip(archive.cost, archive.point, archive.alternative, strict=True)]
    optimistic = search.optimistic_costs()
    return {
        "bound": None, "gap": _number(search.remaining_gap()), "boxes": search.boxes_bounded,
        "open_boxes": search.n_open, "complete": bool(search.complete), "members": members,
        "optimistic": None if optimistic is None else optimistic.tolist(),
    }  # fmt: skip


def _member(cost: Sequence[float], point: IntArray, alternative: int) -> dict[str, Any]:
    return {
        "cost": [float(each) for each in cost],
        "point": [int(i) for i in point],
        "alternative": int(alternative),
    }


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


@dataclass(frozen=True)
class MergedProof:
    """
    What the first of the shards have proven together; the same for the same outcomes, whoever ran them.

    The whole space is bounded by the least bound of the shards, so nothing is proven of an objective before all its
    shards are there. A bound that is missing is infinite: no design is feasible there.
    """

    problem: Problem
    outcomes: Sequence[Outcome]

    def _of(self, metric: str) -> list[Outcome]:
        return [each for each in self.outcomes if each["metric"] == metric]

    def _best(self, metric: str) -> Mapping[str, Any] | None:
        members = [member for each in self._of(metric) for member in each["members"]]
        return min(members, key=lambda member: member["cost"][0], default=None)

    @property
    def complete(self) -> bool:
        """Whether everything asked for is proven."""
        return len(self.outcomes) == len(shards_of(self.problem)) and all(each["complete"] for each in self.outcomes)

    def front(self) -> list[Mapping[str, Any]]:
        """Members of the fronts of the shards that none beats, best in the first objective first."""
        members = [member for each in self._of(FRONT) for member in each["members"]]
        if not members:
            return []
        costs = np.array([member["cost"] for member in members])
        kept = np.flatnonzero(non_dominated(costs))
        return [members[i] for i in sorted(kept, key=lambda i: tuple(costs[i]))]

    def incumbents(self) -> list[tuple[IntArray, int]]:
        """Best designs of the single objectives and the members of the front, each with its alternative."""
        best = [self._best(objective.metric) for objective in self.problem.objectives]
        members = [each for each in best if each is not None] + self.front()
        return [(np.array(each["point"]), each["alternative"]) for each in members]

    def fillers(self) -> list[tuple[IntArray, int]]:
        """Neighbours of the best design, which tell how it would do otherwise."""
        return [(near, -1) for point, _ in self.incumbents()[:1] for near in neighbours(self.problem.space, point)]

    def certificate(self) -> list[dict[str, Any]]:
        """What is proven: one entry per objective of which a shard has reported, and one for the front."""
        entries = [self._objective_entry(i) for i in range(len(self.problem.objectives))]
        return [entry for entry in [*entries, self._front_entry()] if entry is not None]

    def _front_entry(self) -> dict[str, Any] | None:
        entry, reported = self._entry(FRONT), self._of(FRONT)
        if entry is None:
            return None
        if len(reported) < n_shares(self.problem) or any(each["optimistic"] is None for each in reported):
            return entry | {"hypervolume": None}
        n = len(self.problem.objectives)
        found = np.array([member["cost"] for member in self.front()]).reshape(-1, n)
        optimistic = np.concatenate([np.array(each["optimistic"]).reshape(-1, n) for each in reported])
        return entry | {"hypervolume": proven_hypervolume(self.problem.objectives, found, optimistic)}

    def _entry(self, metric: str) -> dict[str, Any] | None:
        """Sums over shards, and the largest of their gaps once all are there."""
        reported = self._of(metric)
        if not reported:
            return None
        whole = len(reported) == n_shares(self.problem)
        gaps = [each["gap"] for each in reported]
        return {
            "metric": metric,
            "best": None,
            "bound": None,
            "gap": max(gaps) if whole and None not in gaps else None,
            "boxes": sum(each["boxes"] for each in reported),
            "open_boxes": sum(each["open_boxes"] for each in reported),
            "wall_s": sum(each["wall_s"] for each in reported),
            "complete": whole and all(each["complete"] for each in reported),
        }

    def _objective_entry(self, position: int) -> dict[str, Any] | None:
        objective = self.problem.objectives[position]
        entry, best = self._entry(objective.metric), self._best(objective.metric)
        if entry is None:
            return None
        if best is None:
            return entry | {"gap": 0.0 if entry["complete"] else None}
        entry |= {"best": objective.value(best["cost"][0]), "gap": None}
        reported = self._of(objective.metric)
        if len(reported) < n_shares(self.problem) or any(_is_open(each) for each in reported):
            return entry
        bound = min([best["cost"][0], *[each["bound"] for each in reported if each["bound"] is not None]])
        gap = (best["cost"][0] - bound) / abs(best["cost"][0])
        return entry | {"bound": objective.value(bound), "gap": gap}


def _is_open(outcome: Outcome) -> bool:
    """Whether nothing bounds a shard yet: it has not looked at all its boxes."""
    return outcome["bound"] is None and not outcome["complete"]


def merged_proof(problem: Problem, count: int) -> MergedProof:
    """
    Return the proof of the first `count` shards.

    Outcomes that the problem holds are taken, the others are worked out in this process and kept.
    """
    shards = shards_of(problem)
    while len(problem.outcomes) < min(count, len(shards)):
        outcome = run_shard(problem, len(problem.outcomes))
        assert outcome is not None
        problem.outcomes.append(outcome)
    return MergedProof(problem, problem.outcomes[:count])


def with_outcomes(problem: Problem, outcomes: Sequence[Outcome]) -> Problem:
    """Return the problem with what its first shards have proven elsewhere."""
    return dataclasses.replace(problem, outcomes=list(outcomes))
