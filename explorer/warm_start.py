"""Designs of past studies as the first trials of a new one, and records that the history already holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from explorer.document import StudyDocument
from explorer.problem import Problem, judge_points
from explorer.records import TrialRecord, record_from_json, records_of
from explorer.space import point_of, values_at
from models.checks import IntArray

Params = Mapping[str, Any]
Lookup = Callable[[Sequence[Params]], Mapping[int, Mapping[str, Any]]]
"""Free parameters of designs -> position of those that were judged before, with their records."""

_SIMILARITY_PARTS: Mapping[str, Callable[[StudyDocument], Any]] = {
    "kinds": lambda document: [each.kind for each in document.workload.scenarios],
    "networks": lambda document: [getattr(each, "network", None) for each in document.workload.scenarios],
    "workload": lambda document: document.workload,
    "system": lambda document: document.system,
    "technology": lambda document: document.technology,
    "budget": lambda document: document.budget,
    "objectives": lambda document: document.objectives,
}
"""Parts of a study that two may have in common."""


def similarity_fraction(one: StudyDocument, other: StudyDocument) -> float:
    """Return the share of parts that two studies have in common; 0 where their scenarios are of other kinds [1]."""
    same = {name: part(one) == part(other) for name, part in _SIMILARITY_PARTS.items()}
    return sum(same.values()) / len(same) if same["kinds"] else 0.0


def warm_designs(problem: Problem, candidates: Sequence[Params]) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """
    Return the candidates that lie in the space of a study, each once, and why the others do not.

    Returns
    -------
    tuple
        Parameters of the designs taken, and position of each other candidate -> reason.
    """
    taken: dict[tuple[int, ...], dict[str, Any]] = {}
    dropped: dict[int, str] = {}
    for position, params in enumerate(candidates):
        try:
            point = point_of(problem.space, params)
        except (ValueError, KeyError) as error:
            dropped[position] = f"outside the space: {str(error) if isinstance(error, ValueError) else error.args[0]}"
            continue
        if tuple(point) in taken:
            dropped[position] = "another past study proposes the same design"
            continue
        taken[tuple(point)] = values_at(problem.space, point)
    return list(taken.values()), dropped


def with_warm_start(problem: Problem, designs: Sequence[Params]) -> Problem:
    """Return the problem with designs that are its first trials."""
    points = np.array([point_of(problem.space, params) for params in designs], dtype=np.int64)
    return dataclasses.replace(problem, warm_points=points.reshape(len(designs), len(problem.space.parameters)))


def with_history(problem: Problem, lookup: Lookup) -> Problem:
    """Return the problem with a way to find records that equal judgements left."""
    return dataclasses.replace(problem, lookup=lookup)


def judged_records(problem: Problem, points: IntArray, first_number: int) -> list[TrialRecord]:
    """Return the records of points of shape (n_points, n_parameters), judged where the history does not hold them."""
    if problem.lookup is None or not len(points):
        return records_of(problem, points, judge_points(problem, points), first_number)
    known = problem.lookup([values_at(problem.space, point) for point in points])
    missing = [i for i in range(len(points)) if i not in known]
    records = {i: _taken_over(record) for i, record in known.items()}
    if missing:
        judged = records_of(problem, points[missing], judge_points(problem, points[missing]), 0)
        records |= dict(zip(missing, judged, strict=True))
    return [dataclasses.replace(records[i], number=first_number + i) for i in range(len(points))]


def _taken_over(record: Mapping[str, Any]) -> TrialRecord:
    """A record of another study, without what was proven there."""
    return dataclasses.replace(record_from_json(dict(record)), certificate=None)
