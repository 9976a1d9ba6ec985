"""Workloads: upload a file, see what it asks for, name it in studies."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from service.api.location import set_stored
from service.api.paging import PageSize, PageToken, newest_page
from service.api.upload_body import FILE_BODY, FileBodyOf
from service.db import uploads
from service.db.tables import UploadedWorkload
from service.dependencies import DatabaseOf, IdempotencyKey, ReadSession, SettingsOf, WriteSession
from service.errors import problem_responses
from service.schemas.workloads import WorkloadInspection, WorkloadList, WorkloadRead, ZeroTokenRows, workload_fields
from service.workloads import take_workload

router = APIRouter(prefix="/v1/workloads", tags=["workloads"])

WorkloadId = Annotated[str, Path(max_length=40, description="Id of the workload")]


@router.post(
    "",
    status_code=201,
    operation_id="upload_workload",
    summary="Upload a workload",
    openapi_extra=FILE_BODY,
    responses={
        200: {"description": "The same content was sent before", "model": WorkloadInspection},
        **problem_responses(413, 422, 503),
    },
)
def upload_workload(
    file: FileBodyOf,
    request: Request,
    response: Response,
    database: DatabaseOf,
    settings: SettingsOf,
    zero_token_rows: Annotated[
        ZeroTokenRows, Query(description="`drop` leaves out rows without tokens and counts them; they are refused else")
    ] = "refuse",
    _key: IdempotencyKey = None,
) -> WorkloadInspection:
    """
    Take a trace, a GEMM list, a layer table or a study's workload, and return what it asks for.

    Its id names it in studies: as `trace`, `file` or `network` of a scenario, or as the whole `workload`.
    """
    taken = take_workload(database, file.content, file.name, zero_token_rows, settings.max_upload_bytes)
    set_stored(request, response, taken.is_new, "get_workload", workload_id=taken.row.id)
    return _inspection(taken.row)


@router.get(
    "", operation_id="list_workloads", summary="List workloads, newest first", responses=problem_responses(422, 503)
)
def list_workloads(
    session: ReadSession,
    page_size: PageSize = 50,
    page_token_: PageToken = None,
) -> WorkloadList:
    """Return one page of uploaded workloads."""
    page, token = newest_page(partial(uploads.list_workloads, session), page_size, page_token_)
    return WorkloadList(items=[WorkloadRead(**workload_fields(row)) for row in page], next_page_token=token)


@router.get(
    "/{workload_id}",
    operation_id="get_workload",
    summary="Get a workload and what it asks for",
    responses=problem_responses(404, 503),
)
def get_workload(workload_id: WorkloadId, session: ReadSession) -> WorkloadInspection:
    """Return the inspection that the upload was answered with."""
    return _inspection(uploads.get_workload(session, workload_id))


@router.delete(
    "/{workload_id}",
    status_code=204,
    operation_id="delete_workload",
    summary="Delete a workload",
    responses=problem_responses(404, 409, 503),
)
def delete_workload(workload_id: WorkloadId, session: WriteSession) -> None:
    """Remove a workload that no study reads."""
    uploads.delete_workload(session, workload_id)


def _inspection(row: UploadedWorkload) -> WorkloadInspection:
    return WorkloadInspection(**{**row.inspection, **workload_fields(row)})
