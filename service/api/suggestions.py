"""Ask and tell: trials of a study for an evaluator outside, and what came of them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from service.api.location import StudyId
from service.dependencies import HEAVY_WORK, DatabaseOf, IdempotencyKey, WriteSession
from service.errors import problem_responses
from service.outside import complete, suggest
from service.schemas.studies import StudyRead, study_fields
from service.schemas.suggestions import ClientName, SuggestionList, SuggestionRead, TrialOutcomes, suggestion_fields

router = APIRouter(prefix="/v1/studies", tags=["ask and tell"])


@router.post(
    "/{study_id}:suggest",
    operation_id="suggest_trials",
    summary="Ask for trials to judge",
    responses=problem_responses(404, 409, 422, 503),
    dependencies=[HEAVY_WORK],
)
def suggest_trials(
    study_id: StudyId,
    database: DatabaseOf,
    count: Annotated[int, Query(ge=1, le=100, description="Most trials wanted", examples=[4])] = 1,
    client: Annotated[
        ClientName, Query(description="Who asks; its own trials come first", examples=["rtl-1"])
    ] = "default",
    _key: IdempotencyKey = None,
) -> SuggestionList:
    """Lease trials to a client; what it holds already is renewed, and comes again after a crash of the client."""
    rows = suggest(database, study_id, client, count)
    return SuggestionList(items=[SuggestionRead(**suggestion_fields(row)) for row in rows], next_page_token=None)


@router.post(
    "/{study_id}:complete",
    operation_id="complete_trials",
    summary="Tell what came of trials",
    responses=problem_responses(404, 409, 413, 422, 503),
)
def complete_trials(
    study_id: StudyId, outcomes: TrialOutcomes, session: WriteSession, _key: IdempotencyKey = None
) -> StudyRead:
    """Record figures or failures of leased trials, all or none; the last ones end the study."""
    return StudyRead(**study_fields(complete(session, study_id, outcomes.client, outcomes.trials)))
