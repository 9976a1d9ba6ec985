"""Measured times: kept with what made them and the prediction of the time, and the trend of the model's errors."""

from __future__ import annotations

import uuid
from typing import Annotated

from fastapi import APIRouter, Query

from service.api.paging import PageSize, PageToken, page_of
from service.api.upload_body import FILE_BODY, FileBodyOf
from service.db import profiles as queries
from service.dependencies import HEAVY_WORK, DatabaseOf, EngineOf, IdempotencyKey, ReadSession
from service.errors import problem_responses
from service.measurements import Provenance, take_measurements
from service.schemas.measurements import (
    ErrorTrend,
    ErrorTrendEntry,
    MeasurementList,
    MeasurementRead,
    MeasurementsTaken,
    measurement_fields,
    trend_fields,
)

router = APIRouter(prefix="/v1/measurements", tags=["measurements"])

Device = Annotated[str | None, Query(max_length=100, description="Only of this device")]
Family = Annotated[str | None, Query(max_length=40, description="Only of this operator family")]


@router.post(
    "",
    status_code=201,
    operation_id="post_measurements",
    summary="Store measured times",
    openapi_extra=FILE_BODY,
    responses=problem_responses(409, 413, 422, 503),
    dependencies=[HEAVY_WORK],
)
def post_measurements(
    file: FileBodyOf,
    database: DatabaseOf,
    engine: EngineOf,
    kernel: Annotated[str, Query(max_length=200, description="Kernel that ran, unless a column states it")] = "",
    software_version: Annotated[
        str, Query(max_length=200, description="Software and its version, unless a column states it")
    ] = "",
    clock_hz: Annotated[float | None, Query(gt=0, lt=1e12, description="Clock during the measurement [Hz]")] = None,
    _key: IdempotencyKey = None,
) -> MeasurementsTaken:
    """
    Take a CSV in the column form of a measured table; each row is kept beside the prediction of the model of today.

    Rows faster than the hardware can be, or in another unit, are refused by line; the others are kept.
    """
    provenance = Provenance(kernel, software_version, clock_hz)
    batch = uuid.uuid4().hex
    taken = take_measurements(database, file.content, file.name, batch, engine.model_version, provenance)
    return MeasurementsTaken(**vars(taken), model_version=engine.model_version)


@router.get("", operation_id="list_measurements", summary="List measurements", responses=problem_responses(422, 503))
def list_measurements(
    session: ReadSession,
    device: Device = None,
    family: Family = None,
    page_size: PageSize = 50,
    page_token_: PageToken = None,
) -> MeasurementList:
    """Return one page of measurements in order of arrival."""
    page, token = page_of(
        lambda behind, limit: queries.list_measurements(session, device, family, behind[0] if behind else 0, limit),
        lambda row: (row.id,), (int,), page_size, page_token_,
    )  # fmt: skip
    return MeasurementList(items=[MeasurementRead(**measurement_fields(row)) for row in page], next_page_token=token)


@router.get(
    "/errors",
    operation_id="get_error_trend",
    summary="Errors of the model by its versions",
    responses=problem_responses(422, 503),
)
def get_error_trend(session: ReadSession, device: Device = None, family: Family = None) -> ErrorTrend:
    """Return how far predictions were off when measurements came, by version of the model, device and family."""
    entries = queries.error_trend(session, device, family)
    return ErrorTrend(items=[ErrorTrendEntry(**trend_fields(entry)) for entry in entries])
