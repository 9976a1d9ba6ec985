"""Designs as files: of one study, or of the history."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from service import exports
from service.api.designs import FilterText, read_filter, read_order
from service.api.location import StudyId
from service.db import queries
from service.dependencies import DatabaseOf, EngineOf, ReadSession
from service.errors import problem_responses
from service.stored_inputs import load_inputs, read_named_study

router = APIRouter(prefix="/v1", tags=["exports"])


JSON_FILE = {
    "type": "object",
    "required": ["designs"],
    "properties": {
        "designs": {"type": "array", "items": {"type": "object"}, "description": "Records of trials with study_id"}
    },
}


def _files(*kinds: str) -> dict[int | str, dict[str, Any]]:
    """How the specification describes the file that is sent."""
    content = {
        exports.MEDIA_TYPES[kind].partition(";")[0]: {"schema": JSON_FILE if kind == "json" else {"type": "string"}}
        for kind in kinds
    }
    return {200: {"description": "The file, sent as it is written", "content": content}}


@router.get(
    "/studies/{study_id}/export",
    operation_id="export_study",
    summary="Get the designs of a study as a file",
    response_class=StreamingResponse,
    responses={**_files("csv", "parquet", "json", "optuna"), **problem_responses(404, 422, 503)},
)
def export_study(
    study_id: StudyId,
    session: ReadSession,
    database: DatabaseOf,
    engine: EngineOf,
    kind: Annotated[
        Literal["csv", "parquet", "json", "optuna"],
        Query(alias="format", description="`optuna` is a journal that Optuna's JournalStorage reads"),
    ] = "csv",
) -> StreamingResponse:
    """Send every design the study has looked at so far, in the order of the trials."""
    document = queries.get_study(session, study_id).document
    pages = exports.study_pages(database, study_id)
    if kind != "optuna":
        return _answer(exports.table_bytes(pages, kind), study_id, kind)
    study = read_named_study(engine, document, load_inputs(session, document))
    return _answer(exports.journal_bytes(study, pages), study_id, kind)


@router.get(
    "/designs:export",
    operation_id="export_designs",
    summary="Get designs of the history as a file",
    response_class=StreamingResponse,
    responses={**_files("csv", "parquet", "json"), **problem_responses(422, 503)},
)
def export_designs(
    database: DatabaseOf,
    filter_: FilterText = None,
    order_by: Annotated[
        str | None, Query(max_length=80, description="A numeric field, `desc` behind it for the largest first")
    ] = None,
    kind: Annotated[exports.TableFormat, Query(alias="format", description="Kind of file")] = "csv",
) -> StreamingResponse:
    """Send every design of the history that meets the filter."""
    pages = exports.history_pages(database, read_filter(filter_, "query.filter"), read_order(order_by))
    return _answer(exports.table_bytes(pages, kind), "designs", kind)


def _answer(pieces: Iterator[bytes], name: str, kind: str) -> StreamingResponse:
    headers = {"Content-Disposition": f'attachment; filename="{name}.{exports.SUFFIXES[kind]}"'}
    return StreamingResponse(pieces, media_type=exports.MEDIA_TYPES[kind], headers=headers)
