"""Queues a study, whoever asks for it: a caller, a clone, a cell of a sweep, a fire of a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from service.db import queries, uploads
from service.db.session import Database, reading
from service.db.tables import Study
from service.engine import Document, StudyEngine
from service.errors import InvalidRequestError
from service.quotas import require_extent
from service.settings import Settings
from service.stored_inputs import StoredInputs, load_inputs, read_named_study

SIMILAR_STUDIES = 5
"""Past studies that a warm start looks at unless it names them."""

LOOKED_AT = 100
"""Newest finished studies among which similar ones are looked for."""

DEFAULT_QUEUE, DEFAULT_PRIORITY = "studies", 100


@dataclass(frozen=True)
class PlannedStudy:
    """A checked study with what it names and what it begins with; `problem` is None where preparing it can wait."""

    document: Document
    spec: Any
    problem: Any
    inputs: StoredInputs
    workload_hash: str
    warm_start: Document | None


def plan_study(database: Database, engine: StudyEngine, settings: Settings, document: Document) -> PlannedStudy:
    """
    Return a study ready to be queued; no transaction is open while it is prepared.

    Raises
    ------
    InvalidRequestError, StudyError
        With a pointer to what is at fault.
    """
    with reading(database) as session:
        inputs = load_inputs(session, document)
    spec = read_named_study(engine, document, inputs)
    require_extent(engine.extent(spec), settings)
    problem = engine.prepare(spec, inputs.uploads)
    with reading(database) as session:
        warm_start = warm_start_of(session, engine, spec, problem)
    if warm_start is not None:
        problem = engine.with_warm_start(problem, warm_start["designs"])
    return PlannedStudy(document, spec, problem, inputs, engine.workload_hash(problem), warm_start)


def queue_planned(
    session: Session,
    engine: StudyEngine,
    study_id: str,
    planned: PlannedStudy,
    owner: str = "",
    queue: str = DEFAULT_QUEUE,
    priority: int = DEFAULT_PRIORITY,
) -> Study:
    """
    Add a study in state `queued`; one that is there under this id stays as it is.

    Parameters
    ----------
    queue : str
        One of `service.jobs.executor.QUEUES`.
    priority : int
        The smaller, the earlier.
    """
    name = str(getattr(planned.spec, "name", "") or study_id)[:200]
    study = queries.create_study(
        session, study_id, name, planned.document, engine.model_version, owner, planned.workload_hash,
        planned.warm_start, queue, priority,
    )  # fmt: skip
    uploads.note_inputs(session, study_id, planned.inputs.ids)
    return study


def warm_start_of(session: Session, engine: StudyEngine, spec: Any, problem: Any) -> Document | None:
    """Return designs of past studies to begin with and what was dropped, None where the study asks for none."""
    asked = getattr(getattr(spec, "search", None), "warm_start", False)
    if not asked:
        return None
    named = getattr(asked, "studies", None)
    limit = int(getattr(asked, "designs", 20))
    past = _named(session, named) if named else _similar(session, engine, spec)
    points = [(study, point) for study in past for point in _best_points(study)]
    designs, dropped = engine.warm_designs(problem, [point["params"] for _, point in points])
    reasons = [
        {"study_id": points[position][0].id, "trial": points[position][1]["trial"], "reason": reason}
        for position, reason in dropped.items()
    ]
    kept = [position for position in range(len(points)) if position not in dropped]
    for position in kept[limit:]:
        study, point = points[position]
        reasons.append(
            {"study_id": study.id, "trial": point["trial"], "reason": f"beyond the limit of {limit} designs"}
        )
    return {"studies": [study.id for study in past], "designs": designs[:limit], "dropped": reasons}


def _named(session: Session, ids: Sequence[str]) -> Sequence[Study]:
    found = queries.studies_with_results(session, ids)
    for position, study_id in enumerate(ids):
        if study_id not in {study.id for study in found}:
            raise InvalidRequestError(f"/search/warm_start/studies/{position}", f"unknown study '{study_id}'")
    return found


def _similar(session: Session, engine: StudyEngine, spec: Any) -> Sequence[Study]:
    """Finished studies that have most in common with a new one, the newest of equal ones first."""
    ranked = []
    for study in queries.latest_succeeded(session, LOOKED_AT):
        try:
            share = engine.similarity_fraction(spec, engine.read_study(study.document))
        except engine.study_error:  # this version no longer reads it, or it names its workload
            continue
        if share > 0:
            ranked.append((share, study.id))
    ranked.sort(key=lambda pair: -pair[0])
    return queries.studies_with_results(session, [study_id for _, study_id in ranked[:SIMILAR_STUDIES]])


def _best_points(study: Study) -> list[Document]:
    """The recommended design of a study, then its front."""
    result = study.result or {}
    points = [result["recommended"]] if result.get("recommended") else []
    points += [point for point in result.get("pareto", []) if point not in points]
    return [point for point in points if "params" in point]
