"""What-if: many designs on one workload, judged together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from explorer.chip_report import technology_document
from explorer.document import StudyError
from explorer.evaluation import design_columns, design_of, excess_document, read_design, serves
from explorer.identity import model_version
from explorer.inputs import Inputs
from explorer.known_work import KnownWork
from explorer.problem import Problem, judge_designs
from explorer.records import design_document, metrics_document, operating_point
from explorer.workload import require_links
from models.hardware.design import DESIGN_FIELDS, DesignBatch, take

FIELDS = {"designs", "study", "profile"}
JUDGED_TOGETHER = 256
"""Designs of one call of the model: what all their inner choices need fits into some hundred MB."""

MAX_FAULTS = 1000
"""Faults that a refusal lists."""


def evaluate_batch(
    document: Mapping[str, Any], inputs: Inputs = None, known: KnownWork | None = None
) -> dict[str, Any]:
    """
    Return designs judged on a workload: design, operating point, metrics and limits of each, in their order.

    Parameters
    ----------
    document : dict
        {designs: [{...}, ...], study: a study document}, and {profile: ...} as in `evaluate_document`.
    inputs : Path or Uploads, optional
        Where files and networks named by the study lie.
    known : KnownWork, optional
        Work compiled by earlier calls.

    Raises
    ------
    StudyError
        With a pointer to every field at fault, of every design.
    """
    unknown = sorted(set(document) - FIELDS)
    if unknown:
        raise StudyError([{"pointer": f"/{name}", "detail": "is no field beside designs"} for name in unknown])
    designs = read_designs(document["designs"])
    problem = _problem(document, inputs, known or KnownWork(), designs)
    weakest = int(np.argmin(designs.scale_up_bytes_per_s))
    pointer = f"/designs/{weakest}/scale_up_bytes_per_s"
    require_links(problem.document.system, float(designs.scale_up_bytes_per_s[weakest]), pointer)
    return {
        "items": [item for part in _parts(designs) for item in _judged(problem, part)],
        "technology": technology_document(problem),
        "model_version": model_version(),
        "profile": problem.document.profile,
    }


def read_designs(documents: Any) -> DesignBatch:
    """
    Return a batch of designs from field -> value, codes by name.

    Raises
    ------
    StudyError
        With a pointer to every design at fault.
    """
    if not isinstance(documents, list) or not documents:
        raise StudyError([{"pointer": "/designs", "detail": "must be a list of at least one design"}])
    try:
        return _read_together(documents)
    except (StudyError, ValueError):
        return _read_one_by_one(documents)


def _read_together(documents: Sequence[Any]) -> DesignBatch:
    """Read designs by what they state, so that their rules are checked for all of them at once."""
    columns = [design_columns(each) for each in documents]
    alike: dict[tuple[str, ...], list[int]] = {}
    for i, each in enumerate(columns):
        alike.setdefault(tuple(each), []).append(i)
    found = [
        design_of({name: np.array([columns[i][name] for i in members]) for name in names})
        for names, members in alike.items()
    ]
    return take(joined(found), np.argsort(np.concatenate([np.array(members) for members in alike.values()])))


def _read_one_by_one(documents: Sequence[Any]) -> DesignBatch:
    """Read designs so that every one at fault is named."""
    found, faults = [], []
    for i, each in enumerate(documents):
        try:
            found.append(read_design(each, f"/designs/{i}"))
        except StudyError as error:
            faults += error.errors
    if faults:
        raise StudyError(faults[:MAX_FAULTS])
    return joined(found)


def joined(batches: Sequence[DesignBatch]) -> DesignBatch:
    """Return several batches as one."""
    return DesignBatch(**{name: np.concatenate([getattr(each, name) for each in batches]) for name in DESIGN_FIELDS})


def _problem(document: Mapping[str, Any], inputs: Inputs, known: KnownWork, designs: DesignBatch) -> Problem:
    if not isinstance(document.get("study"), dict):
        raise StudyError([{"pointer": "/study", "detail": "must be a study document"}])
    asked = document["study"] | ({"profile": document["profile"]} if "profile" in document else {})
    try:
        return known.problem_for(known.study_of(asked, inputs), inputs, designs)
    except StudyError as error:
        raise StudyError([{**each, "pointer": "/study" + each["pointer"]} for each in error.errors]) from None


def _parts(designs: DesignBatch) -> Iterator[DesignBatch]:
    for first in range(0, designs.n_designs, JUDGED_TOGETHER):
        yield take(designs, np.arange(first, min(first + JUDGED_TOGETHER, designs.n_designs)))


def _judged(problem: Problem, designs: DesignBatch) -> list[dict[str, Any]]:
    judgement = judge_designs(problem, designs)
    return [
        {
            "design": design_document(designs, i),
            "operating_point": operating_point(problem, judgement, i),
            "metrics": metrics_document(problem, judgement, i),
            "serves": serves(judgement, i),
            "feasible": bool(judgement.feasible[i]),
            "excess_fractions": excess_document(judgement, i),
        }
        for i in range(designs.n_designs)
    ]
