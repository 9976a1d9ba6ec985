"""The exact search of a study as a sequence of chunks: what is proposed in each, and what is proven after it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from explorer.boxes import root_boxes
from explorer.cover import CoverSearch, empty_archive
from explorer.exact import ExactSearch, shuffled
from explorer.hypervolume import proven_hypervolume
from explorer.local_search import neighbours
from explorer.problem import Problem
from models.checks import IntArray

BOXES_PER_CHUNK = 16_384
"""Boxes of one scenario after which a chunk ends: about a second of work, the longest a cancellation waits."""

FIRST_PROPOSALS = 20
"""Designs looked at before anything is proven: the most promising box of each array shape."""

PROPOSALS_PER_CHUNK = 2
"""Designs looked at after each chunk; a proof must be done within the trials of its study."""

FRONT = "front"
"""Name of the certificate of several objectives together."""

LEAST_FRONT_GAP = 0.01
"""A front is proven to this gap at best: its members would otherwise be too many to look at."""


@dataclass
class Proof:
    """
    Exact searches of a study: one for each objective and, where there are several, one for the front they span.

    They take turns, chunk by chunk, so that an interrupted proof says something about each. A deterministic
    function of the number of chunks done: a resumed study continues where it stopped.
    """

    problem: Problem
    chunks_done: int = 0
    searches: list[ExactSearch] = field(default_factory=list)
    cover: CoverSearch | None = None
    wall_s: dict[str, float] = field(default_factory=dict)

    @property
    def target_gap(self) -> float:
        """Gap at which a search may stop."""
        return float(self.problem.document.search.target_gap)

    @property
    def complete(self) -> bool:
        """Whether everything asked for is proven."""
        return not self._pending()

    def _pending(self) -> list[int]:
        """
        Parts to go on with: positions of objectives, and their number for the front.

        Objectives that are proven to the gap of the front wait for it before they go on to their own.
        """
        n = len(self.problem.objectives)
        unproven = [i for i in range(n) if i >= len(self.searches) or not self.searches[i].complete]
        if n == 1 or (self.cover is not None and self.cover.complete):
            return unproven
        return [*[i for i in unproven if i >= len(self.searches) or self.searches[i].gap > LEAST_FRONT_GAP], n]

    def advance(self) -> None:
        """Do one chunk of work: the next part in turn that is not proven yet."""
        pending = self._pending()
        if not pending:
            return
        started = time.perf_counter()
        n = len(self.problem.objectives)
        turn = (n + self.chunks_done) % (n + 1)
        part = min(pending, key=lambda i: (i - turn) % (n + 1))
        if part == n:
            self._advance_cover()
        else:
            while len(self.searches) <= part:
                objective = self.problem.objectives[len(self.searches)]
                self.searches.append(ExactSearch(self.problem, objective, self.target_gap))
            self._advance(self.searches[part])
        name = FRONT if part == n else self.problem.objectives[part].metric
        self.wall_s[name] = self.wall_s.get(name, 0.0) + time.perf_counter() - started
        self.chunks_done += 1

    def _advance(self, search: ExactSearch | CoverSearch) -> None:
        """Rounds until about a second is gone; a box of a mixture takes as long as one of each scenario."""
        ends = search.boxes_bounded + BOXES_PER_CHUNK // len(self.problem.scenarios)
        while not search.complete and search.boxes_bounded < ends:
            search.advance(1)

    def _advance_cover(self) -> None:
        if self.cover is None:
            archive = empty_archive(self.problem)
            gap = max(self.target_gap, LEAST_FRONT_GAP)
            self.cover = CoverSearch(self.problem, gap, shuffled(root_boxes(self.problem)), archive)
        for search in self.searches:
            if search.incumbent.point is not None:
                window = np.array([search.incumbent.alternative])
                self.cover.offer(search.incumbent.point[None, :], window, window)
        if self.searches:
            self.cover.pseudo_cost = np.mean([search.pseudo_cost for search in self.searches], axis=0)
        self._advance(self.cover)
        archive = self.cover.archive
        for i, search in enumerate(self.searches):
            if len(archive.cost):
                best = int(np.argmin(archive.cost[:, i]))
                search.offer(archive.cost[best, i], archive.point[best], archive.alternative[best])

    def incumbents(self) -> list[tuple[IntArray, int]]:
        """Best designs of the single objectives and the members of the front, each with its alternative."""
        found = [(s.incumbent.point, s.incumbent.alternative) for s in self.searches if s.incumbent.point is not None]
        if self.cover is not None:
            archive = self.cover.archive
            order = np.argsort(archive.cost[:, 0], kind="stable")
            found += [(archive.point[i], int(archive.alternative[i])) for i in order]
        return found

    def fillers(self) -> list[tuple[IntArray, int]]:
        """
        Promising designs beside the incumbents.

        While boxes are open the middle of the best ones, one for each array shape first; then the neighbours of
        the best design, which tell how it would do otherwise.
        """
        parts = [part for part in (*self.searches, self.cover) if part is not None]
        boxes, cost = next((part for part in parts if part.open_boxes()[0].n_boxes), parts[-1]).open_boxes()
        if not boxes.n_boxes:
            best = self.incumbents()
            return [(near, -1) for point, _ in best[:1] for near in neighbours(self.problem.space, point)]
        shape = next(i for i, p in enumerate(self.problem.space.parameters) if p.name == "array_shape")
        order = np.argsort(cost, kind="stable")
        _, first = np.unique(boxes.low[order, shape], return_index=True)
        chosen = np.concatenate([order[np.sort(first)], order])
        middle = (boxes.low[chosen] + boxes.high[chosen]) // 2
        return [(point, -1) for point in middle]

    def certificate(self) -> list[dict[str, Any]]:
        """What is proven: one entry per objective searched, and one for the front."""
        entries: list[dict[str, Any]] = [
            {
                "metric": search.objective.metric,
                "best": _number(search.objective.value(search.incumbent.cost)),
                "bound": _number(search.objective.value(search.bound)),
                "gap": _number(search.gap),
                "boxes": search.boxes_bounded,
                "open_boxes": search.n_open,
                "wall_s": self.wall_s.get(search.objective.metric, 0.0),
                "complete": search.complete,
            }
            for search in self.searches
        ]
        if self.cover is not None:
            entries.append(
                {
                    "metric": FRONT,
                    "best": None,
                    "bound": None,
                    "gap": _number(self.cover.remaining_gap()),
                    "boxes": self.cover.boxes_bounded,
                    "open_boxes": self.cover.n_open,
                    "wall_s": self.wall_s.get(FRONT, 0.0),
                    "complete": self.cover.complete,
                    "hypervolume": _hypervolume(self.cover),
                }
            )
        return entries


def _hypervolume(cover: CoverSearch) -> dict[str, Any] | None:
    """Between which values the hypervolume of the true front lies; None while nothing bounds it."""
    optimistic = cover.optimistic_costs()
    if optimistic is None:
        return None
    return proven_hypervolume(cover.problem.objectives, cover.archive.cost, optimistic)


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def proof_after(problem: Problem, chunks: int) -> Proof:
    """
    Return the proof of a study after `chunks` chunks.

    The problem keeps the proof it worked on last; one that stands further back is brought forward, any other is
    done anew from the beginning, which gives the same.
    """
    known = problem.proofs[0] if problem.proofs else None
    proof = known if isinstance(known, Proof) and known.chunks_done <= chunks else Proof(problem)
    while proof.chunks_done < chunks and not proof.complete:
        proof.advance()
    problem.proofs[:] = [proof]
    return proof
