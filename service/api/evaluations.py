"""What-if evaluation of a chip or of designs on a workload, answered at once."""

from __future__ import annotations

from fastapi import APIRouter, Response

from service.api.documents import RequestDocument
from service.db.session import to_json
from service.dependencies import HEAVY_WORK, DatabaseOf, EngineOf, IdempotencyKey, SettingsOf
from service.errors import problem_responses
from service.evaluation import answer_batch, answer_evaluation
from service.schemas.evaluations import EvaluationBatch, EvaluationRead

router = APIRouter(prefix="/v1/evaluations", tags=["evaluations"])


@router.post(
    "",
    operation_id="evaluate",
    summary="Evaluate a chip, a design, or many designs",
    response_model=None,
    responses={200: {"model": EvaluationRead | EvaluationBatch}, **problem_responses(409, 413, 422, 503)},
    dependencies=[HEAVY_WORK],
)
def evaluate(
    document: RequestDocument,
    engine: EngineOf,
    database: DatabaseOf,
    settings: SettingsOf,
    _key: IdempotencyKey = None,
) -> Response:
    """
    Take `chip`, `design` or `designs` with a study's workload; return operating points and metrics.

    One chip or design comes with intervals, parts, idle shares, runners-up and warnings, and is kept: the same asked
    again is answered from the history. With `explanation` it says what binds the design, with `sizes` how it fits the
    work and what moving data costs, with `scaling` (true, `{"max_chips": n}` or `{"chips": [n, ...]}`) what it does in
    systems of other sizes. `designs` come as `items` in their order, without these, and are not kept.
    """
    if "designs" in document:
        answer = answer_batch(database, engine, document, settings.max_evaluated_designs)
    else:
        answer = answer_evaluation(database, engine, document)
    return Response(to_json(answer), media_type="application/json")
