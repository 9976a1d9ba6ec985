"""
How far each technology constant must move before the recommendation changes.

A statement about candidates: the designs that a study has judged and kept close to its best. Every one is judged
again under the moved constant, at the inner choices that are best there, so a flip says which of them wins instead.
A design that no trial looked at may win earlier.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from explorer.pareto import knee, non_dominated
from explorer.problem import Problem, judge_designs
from explorer.records import TrialRecord
from explorer.report import costs_of, designs_of, recommended_of
from models.checks import FloatArray
from models.hardware.design import DesignBatch, MemoryKind
from models.technology import MEMORY, Technology

LARGEST_FACTOR = 4.0
"""Constants are moved by at most this factor either way; beyond it no table is in doubt."""
BISECTIONS = 10
"""Halvings of the logarithm of a change: the distance is known to 1.4 / 1024 of its logarithm."""
MOST_CANDIDATES = 24
NODE = "node"
"""Group of the quantities by node, which are moved at every node alike."""
MOST_NEAR_MISSES = 8
LARGEST_NEAR_MISS_FRACTION = 0.5
UNUSED = (
    "tdp_", "best_shape_", "_factor_90", "_half_width_90", "residual_log_sd", "reference_", "low_leakage",
    "narrow_element_rate",
)  # fmt: skip
"""Constants by part of their name that no design is judged by: fits, intervals, ratings, definitions."""


@dataclass(frozen=True)
class Flip:
    """The smallest found change of one constant that changes the recommendation; infinite where none does."""

    constant: str
    relative_change: float
    """New value over the shipped one, less one."""
    winner: int
    """Trial that is recommended beyond it; -1 where no candidate keeps the limits."""

    @property
    def distance(self) -> float:
        """Factor by which the constant must move, either way, less one."""
        return float(np.expm1(abs(np.log1p(self.relative_change)))) if np.isfinite(self.relative_change) else np.inf


def flip_distances(
    problem: Problem, records: Sequence[TrialRecord], constants: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """
    Return for each constant how far it must move to change the recommendation, nearest first.

    Parameters
    ----------
    problem : Problem
    records : sequence of TrialRecord
        Trials of the study; the candidates are those nearest to its best.
    constants : sequence of str, optional
        Names as `group.constant`, quantities by node as `node.quantity`; all that judge designs where left out.

    Returns
    -------
    list of dict
        constant, relative_change (None where up to a factor of four nothing changes), distance, instead (trial).
    """
    candidates = candidates_of(problem, records)
    if len(candidates) < 2:
        return []
    designs = designs_of(problem, candidates)
    names = list(constants or _constants(problem.technology, designs))
    flips = [_nearest_flip(problem, candidates, designs, name) for name in names]
    return [_document(flip) for flip in sorted(flips, key=lambda flip: flip.distance)]


def candidates_of(problem: Problem, records: Sequence[TrialRecord]) -> list[TrialRecord]:
    """
    Return the recommended trial, its front, what comes next in the objectives, and better ones that just miss a limit.

    A moved constant can bring one of the last inside. Distinct designs only.
    """
    distinct = list({tuple(sorted((k, str(v)) for k, v in r.params.items())): r for r in records}.values())
    feasible = [record for record in distinct if record.feasible]
    if not feasible:
        return []
    costs = costs_of(problem, feasible)
    front = [feasible[i] for i in np.flatnonzero(non_dominated(costs))]
    best = recommended_of(problem, front)
    ideal = costs.min(axis=0)
    loss = ((costs - ideal) / np.maximum(np.abs(ideal), np.finfo(float).tiny)).sum(axis=1)
    nearest = [feasible[i] for i in np.argsort(loss, kind="stable")]
    ordered = [*([best] if best else []), *front, *nearest]
    kept = list({id(record): record for record in ordered}.values())[: MOST_CANDIDATES - MOST_NEAR_MISSES]
    return kept + _near_misses(problem, distinct, ideal)


def _near_misses(problem: Problem, records: Sequence[TrialRecord], ideal: FloatArray) -> list[TrialRecord]:
    """Infeasible trials that beat the best of some objective and exceed no limit by more than half of it."""
    missed = [r for r in records if not r.feasible and max(r.excess.values()) <= LARGEST_NEAR_MISS_FRACTION]
    if not missed:
        return []
    better = np.asarray(np.any(costs_of(problem, missed) < ideal, axis=1))
    tempting = [record for record, beats in zip(missed, better, strict=True) if beats]
    return sorted(tempting, key=lambda record: max(record.excess.values()))[:MOST_NEAR_MISSES]


def _constants(technology: Technology, designs: DesignBatch) -> Iterator[str]:
    """Constants by which some candidate is judged; of memory those of the kinds that occur."""
    kinds = {MemoryKind(int(code)).name.lower() for code in designs.memory_kind}
    for group, values in technology.constants.items():
        for name, value in values.items():
            if group == MEMORY:
                if name.split(":")[1] in kinds:
                    yield f"{group}.{name}"
            elif value > 0 and not any(part in name for part in UNUSED):
                yield f"{group}.{name}"
    for quantity in technology.curves:
        yield f"{NODE}.{quantity}"


def _moved(technology: Technology, group: str, name: str, factor: float) -> Technology:
    """The technology with one constant, or one quantity at every node, times a factor."""
    if group == NODE:
        return technology.with_scaled_curve(name, factor)
    return technology.with_constant(group, name, technology.constants[group][name] * factor)


def _largest_factor(technology: Technology, group: str, name: str) -> float:
    """Factor by which a constant may rise: a share stays one."""
    if group != NODE and name.endswith("_fraction"):
        return min(LARGEST_FACTOR, 1.0 / technology.constants[group][name])
    return LARGEST_FACTOR


def _nearest_flip(problem: Problem, candidates: Sequence[TrialRecord], designs: DesignBatch, constant: str) -> Flip:
    """The nearer of the flips above and below the shipped value."""
    group, name = constant.split(".", 1)
    stays, flips = _winner(problem, designs, problem.technology), []
    for sign in (1.0, -1.0):
        edge = _edge(problem, designs, group, name, sign, stays)
        if edge is not None:
            change, winner = edge
            flips.append(Flip(constant, change, candidates[winner].number if winner >= 0 else -1))
    return min(flips, key=lambda flip: flip.distance, default=Flip(constant, float("inf"), -1))


def _edge(
    problem: Problem, designs: DesignBatch, group: str, name: str, sign: float, stays: int
) -> tuple[float, int] | None:
    """Relative change just beyond which another candidate wins in one direction, and which; None within the range."""

    def winner(log_change: float) -> int:
        return _winner(problem, designs, _moved(problem.technology, group, name, float(np.exp(log_change))))

    largest = _largest_factor(problem.technology, group, name) if sign > 0 else LARGEST_FACTOR
    inside, beyond = 0.0, float(sign * np.log(largest))
    beaten = winner(beyond)
    if beaten == stays:
        return None
    for _ in range(BISECTIONS):
        middle = 0.5 * (inside + beyond)
        found = winner(middle)
        if found == stays:
            inside = middle
        else:
            beyond, beaten = middle, found
    return float(np.expm1(beyond)), beaten


def _winner(problem: Problem, designs: DesignBatch, technology: Technology) -> int:
    """Candidate that is recommended under a technology, -1 where none is feasible."""
    judgement = judge_designs(dataclasses.replace(problem, technology=technology), designs)
    feasible = np.flatnonzero(judgement.feasible)
    if not len(feasible):
        return -1
    signs = np.array([objective.sign for objective in problem.objectives])
    costs: FloatArray = judgement.objectives[feasible] * signs
    front = np.flatnonzero(non_dominated(costs))
    front = front[np.lexsort(costs[front].T[::-1])]
    return int(feasible[front[knee(costs[front])]])


def _document(flip: Flip) -> dict[str, Any]:
    known = bool(np.isfinite(flip.relative_change))
    return {
        "constant": flip.constant,
        "relative_change": flip.relative_change if known else None,
        "distance": flip.distance if known else None,
        "instead": flip.winner if known and flip.winner >= 0 else None,
    }
