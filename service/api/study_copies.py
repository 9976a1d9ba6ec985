"""More of a study: extended by further search, or cloned with changes."""

from __future__ import annotations

from typing import Any

import structlog
from fastapi import APIRouter, BackgroundTasks, Request, Response

from explorer.quantities import parse_quantity
from service.api.location import StudyId, set_location
from service.db import queries
from service.db.session import reading
from service.dependencies import (
    HEAVY_WORK,
    CallerOf,
    CreationId,
    DatabaseOf,
    EngineOf,
    JobsOf,
    SettingsOf,
    WantedVersion,
    WriteSession,
)
from service.errors import InvalidRequestError, problem_responses
from service.quotas import require_room
from service.schemas.studies import CloneRequest, ExtendRequest, StudyRead, study_fields
from service.study_creation import plan_study, queue_planned

LOG = structlog.get_logger("chipfit.studies")

router = APIRouter(prefix="/v1/studies", tags=["studies"])


@router.post(
    "/{study_id}:extend",
    status_code=202,
    operation_id="extend_study",
    summary="Search on in a finished study",
    dependencies=[HEAVY_WORK],
    responses=problem_responses(404, 409, 412, 413, 422, 503),
)
def extend_study(
    study_id: StudyId,
    request: ExtendRequest,
    session: WriteSession,
    engine: EngineOf,
    jobs: JobsOf,
    database: DatabaseOf,
    settings: SettingsOf,
    is_wanted: WantedVersion,
    tasks: BackgroundTasks,
) -> StudyRead:
    """Queue a finished study again with more trials, more time or a smaller gap; its trials so far stay."""
    with reading(database) as looking:
        study = queries.get_study(looking, study_id)
    document = _extended(study.document, request.model_dump(exclude_none=True), study.busy_s)
    if request.trials is not None and request.trials <= study.trials_done:
        detail = f"trials must be more than the {study.trials_done} done, got {request.trials}"
        raise InvalidRequestError("/trials", detail)
    plan_study(database, engine, settings, document)
    extended = queries.extend_study(session, study_id, document, is_wanted)
    LOG.info("study extended", study_id=study_id)
    tasks.add_task(jobs.wake.set)
    return StudyRead(**study_fields(extended))


@router.post(
    "/{study_id}:clone",
    status_code=202,
    operation_id="clone_study",
    summary="Queue a study like another one",
    dependencies=[HEAVY_WORK],
    responses=problem_responses(404, 409, 413, 422, 429, 503),
)
def clone_study(
    study_id: StudyId,
    request: CloneRequest,
    http_request: Request,
    response: Response,
    session: WriteSession,
    engine: EngineOf,
    database: DatabaseOf,
    jobs: JobsOf,
    settings: SettingsOf,
    caller: CallerOf,
    clone_id: CreationId,
    tasks: BackgroundTasks,
) -> StudyRead:
    """Queue a new study whose document is that of another one with changes; `Location` is where to look for it."""
    with reading(database) as looking:
        document = merged(queries.get_study(looking, study_id).document, request.changes)
    planned = plan_study(database, engine, settings, document)
    require_room(session, caller, settings)
    clone = queue_planned(session, engine, clone_id, planned, caller.key_id)
    LOG.info("study cloned", study_id=clone_id, cloned_from=study_id)
    set_location(http_request, response, "get_study", study_id=clone_id)
    tasks.add_task(jobs.wake.set)
    return StudyRead(**study_fields(clone))


def _extended(document: dict[str, Any], search: dict[str, Any], busy_s: float) -> dict[str, Any]:
    """The document with new search settings; without a new time the old one counts from now on."""
    known = document.get("search", {})
    if "timeout" not in search and isinstance(known.get("timeout"), str):
        search = search | {"timeout": _longer(known["timeout"], busy_s)}
    return {**document, "search": merged(known, search)}


def _longer(timeout: str, busy_s: float) -> str:
    return f"{parse_quantity(timeout, 's', '60 s') + busy_s:.3f} s"


def merged(document: Any, changes: Any) -> Any:
    """The document with changes in the manner of RFC 7396: mappings are merged, null removes, the rest replaces."""
    if not isinstance(changes, dict):
        return changes
    result = dict(document) if isinstance(document, dict) else {}
    for name, value in changes.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result
