"""What-if evaluation of one design or chip on a workload, answered at once."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from service.api.documents import RequestDocument
from service.dependencies import HEAVY_WORK, DatabaseOf, EngineOf, IdempotencyKey
from service.errors import problem_responses
from service.evaluation import answer_evaluation

router = APIRouter(prefix="/v1/evaluations", tags=["evaluations"])


@router.post(
    "",
    operation_id="evaluate",
    summary="Evaluate a design or chip",
    responses=problem_responses(409, 413, 422, 503),
    dependencies=[HEAVY_WORK],
)
def evaluate(
    document: RequestDocument, engine: EngineOf, database: DatabaseOf, _key: IdempotencyKey = None
) -> dict[str, Any]:
    """Take `design` or `chip` with a study's workload; return operating point and metrics."""
    return answer_evaluation(database, engine, document)
