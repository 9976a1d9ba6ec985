"""Studies: create, read, cancel, resume, delete, and what they found."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Annotated

import structlog
from fastapi import APIRouter, BackgroundTasks, Depends, Query, Request, Response

from explorer.explanation.asked import Asked
from explorer.outside import is_outside, prepare_outside
from service.api.documents import RequestDocument
from service.api.location import StudyId, set_location
from service.api.paging import PageSize, PageToken, newest_page, page_of
from service.db import queries
from service.db.suggestions import begin_outside_study
from service.db.tables import Study
from service.dependencies import (
    HEAVY_WORK,
    CallerOf,
    CreationId,
    DatabaseOf,
    EngineOf,
    JobsOf,
    ReadSession,
    SettingsOf,
    WantedVersion,
    WriteSession,
    version_tag,
)
from service.errors import problem_responses
from service.explanation import explain_study
from service.outside import create_outside_study, outside_extent
from service.quotas import require_extent, require_room
from service.schemas.designs import TrialRead
from service.schemas.states import StudyQueue, StudyState
from service.schemas.studies import (
    ExplanationRead,
    ParetoRead,
    RecommendationRead,
    StudyList,
    StudyRead,
    StudyResultRead,
    TrialList,
    study_fields,
)
from service.study_creation import plan_study, queue_planned

LOG = structlog.get_logger("chipfit.studies")

router = APIRouter(prefix="/v1/studies", tags=["studies"])


def _study_choice(
    state: Annotated[StudyState | None, Query(description="Only studies in this state")] = None,
    name_contains: Annotated[str | None, Query(max_length=200, description="Only with this in their name")] = None,
    workload_hash: Annotated[str | None, Query(max_length=64, description="Only on this workload")] = None,
    model_version: Annotated[str | None, Query(max_length=40, description="Only of this model")] = None,
    created_from: Annotated[datetime | None, Query(description="Only sent at this time or later")] = None,
    created_before: Annotated[datetime | None, Query(description="Only sent before this time")] = None,
    queue: Annotated[StudyQueue | None, Query(description="Only of this queue")] = None,
) -> queries.StudyChoice:
    return queries.StudyChoice(
        state, name_contains, workload_hash, model_version, _time_s(created_from), _time_s(created_before), queue
    )


def _time_s(moment: datetime | None) -> float | None:
    """Seconds since 1970, half a microsecond early as answers round moments; without a zone it is UTC."""
    if moment is None:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - 0.5e-6


StudyChoiceOf = Annotated[queries.StudyChoice, Depends(_study_choice)]


@router.post(
    "",
    status_code=202,
    operation_id="create_study",
    summary="Queue a study",
    responses=problem_responses(409, 413, 422, 429, 503),
    dependencies=[HEAVY_WORK],
)
def create_study(
    document: RequestDocument,
    request: Request,
    response: Response,
    session: WriteSession,
    database: DatabaseOf,
    engine: EngineOf,
    jobs: JobsOf,
    settings: SettingsOf,
    caller: CallerOf,
    study_id: CreationId,
    tasks: BackgroundTasks,
) -> StudyRead:
    """Check the study and queue it, or with `evaluator: outside` begin to hand out its trials."""
    set_location(request, response, "get_study", study_id=study_id)
    if is_outside(document):
        outside_problem = prepare_outside(document)
        require_extent(outside_extent(outside_problem), settings)
        require_room(session, caller, settings)
        made = create_outside_study(session, study_id, outside_problem, document, engine.model_version, caller.key_id)
        return StudyRead(**study_fields(made))
    planned = plan_study(database, engine, settings, document)
    require_room(session, caller, settings)
    study = queue_planned(session, engine, study_id, planned, caller.key_id)
    jobs.runner.cache.keep(study_id, planned.problem)
    LOG.info("study queued", study_id=study_id)
    tasks.add_task(jobs.wake.set)
    return StudyRead(**study_fields(study))


@router.get(
    "", operation_id="list_studies", summary="List studies, newest first", responses=problem_responses(422, 503)
)
def list_studies(
    session: ReadSession,
    chosen: StudyChoiceOf,
    page_size: PageSize = 50,
    page_token_: PageToken = None,
) -> StudyList:
    """Return one page of studies."""
    page, token = newest_page(partial(queries.list_studies, session, chosen), page_size, page_token_)
    return StudyList(items=[StudyRead(**study_fields(row)) for row in page], next_page_token=token)


@router.get(
    "/{study_id}",
    operation_id="get_study",
    summary="Get a study with its result",
    responses={304: {"description": "Unchanged since the answer in If-None-Match"}, **problem_responses(404, 503)},
)
def get_study(study_id: StudyId, session: ReadSession, response: Response) -> StudyResultRead:
    """Return a study and, once it has succeeded, its result; its ETag serves `If-Match` of changing calls."""
    study = queries.get_study(session, study_id)
    response.headers["ETag"] = version_tag(study.version)
    return StudyResultRead(**study_fields(study), result=study.result)


@router.delete(
    "/{study_id}",
    status_code=204,
    operation_id="delete_study",
    summary="Delete a finished study",
    responses=problem_responses(404, 409, 412, 422, 503),
)
def delete_study(study_id: StudyId, session: WriteSession, wanted: WantedVersion) -> None:
    """Remove a finished study with its designs and events."""
    queries.delete_study(session, study_id, wanted)


@router.post(
    "/{study_id}:cancel",
    operation_id="cancel_study",
    summary="Cancel a study",
    responses=problem_responses(404, 409, 412, 422, 503),
)
def cancel_study(study_id: StudyId, session: WriteSession, wanted: WantedVersion) -> StudyRead:
    """Cancel a queued or running study; what it has found stays."""
    return StudyRead(**study_fields(queries.cancel_study(session, study_id, wanted)))


@router.post(
    "/{study_id}:resume",
    status_code=202,
    operation_id="resume_study",
    summary="Resume a study",
    responses=problem_responses(404, 409, 412, 422, 503),
)
def resume_study(
    study_id: StudyId, session: WriteSession, wanted: WantedVersion, jobs: JobsOf, tasks: BackgroundTasks
) -> StudyRead:
    """Queue a cancelled or failed study again; it goes on after its last recorded chunk."""
    study = queries.resume_study(session, study_id, wanted)
    if is_outside(study.document):
        begin_outside_study(session, study, study.chunks_planned or 0)
    tasks.add_task(jobs.wake.set)
    return StudyRead(**study_fields(study))


@router.get(
    "/{study_id}/designs",
    operation_id="list_study_designs",
    summary="List the designs a study has looked at",
    responses=problem_responses(404, 422, 503),
)
def list_study_designs(
    study_id: StudyId,
    session: ReadSession,
    feasible: Annotated[bool | None, Query(description="Only designs that meet every limit, or only others")] = None,
    page_size: PageSize = 100,
    page_token_: PageToken = None,
) -> TrialList:
    """Return one page of trial records in the order of their numbers."""
    queries.study_state(session, study_id)
    page, token = page_of(
        lambda behind, limit: queries.list_trials(session, study_id, behind[0] if behind else -1, limit, feasible),
        lambda row: (row["number"],), (int,), page_size, page_token_,
    )  # fmt: skip
    return TrialList(items=[TrialRead(**row) for row in page], next_page_token=token)


@router.get(
    "/{study_id}/pareto",
    operation_id="get_pareto",
    summary="Get the Pareto front",
    responses=problem_responses(404, 503),
)
def get_pareto(study_id: StudyId, session: ReadSession, jobs: JobsOf) -> ParetoRead:
    """Return the designs that no other one beats in every objective."""
    study = queries.get_study(session, study_id)
    result = study.result or jobs.runner.result_so_far(study_id)
    return ParetoRead(state=_state(study), pareto=result.get("pareto", []))


@router.get(
    "/{study_id}/recommendation",
    operation_id="get_recommendation",
    summary="Get the recommended design",
    responses=problem_responses(404, 503),
)
def get_recommendation(study_id: StudyId, session: ReadSession, jobs: JobsOf) -> RecommendationRead:
    """Return the recommended design, or which limit binds where none is feasible."""
    study = queries.get_study(session, study_id)
    result = study.result or jobs.runner.result_so_far(study_id)
    recommended = result.get("recommended")
    return RecommendationRead(
        state=_state(study),
        feasible=recommended is not None,
        recommended=recommended,
        binding_limit=result.get("binding_limit"),
    )


def _asked(
    trial: Annotated[int | None, Query(ge=0, description="Trial of the study; by default the recommended one")] = None,
    chip: Annotated[str | None, Query(max_length=60, description="Chip of the catalogue on the study's work")] = None,
    next_budget: Annotated[
        bool, Query(description="Search again with ten percent more area, and power: half a minute")
    ] = False,
    flip_distance: Annotated[
        bool, Query(description="How far each technology constant is from another recommendation: some seconds")
    ] = False,
) -> Asked:
    return Asked(trial, chip, next_budget, flip_distance)


@router.get(
    "/{study_id}/explanation",
    operation_id="get_explanation",
    summary="Explain a design",
    responses=problem_responses(404, 409, 422, 503),
    dependencies=[HEAVY_WORK],
)
def get_explanation(
    study_id: StudyId, database: DatabaseOf, jobs: JobsOf, asked: Annotated[Asked, Depends(_asked)]
) -> ExplanationRead:
    """Return what binds the recommended design, a trial or a chip, and what relief of it would bring."""
    found = explain_study(database, jobs.runner, study_id, asked)
    return ExplanationRead(**{name: found.get(name) for name in ExplanationRead.model_fields})


def _state(study: Study) -> StudyState:
    return study.state  # type: ignore[return-value]
