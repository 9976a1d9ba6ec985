"""Sweeps: grids of studies over budgets, nodes, workloads and limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Annotated

import structlog
from fastapi import APIRouter, BackgroundTasks, Path, Query, Request, Response
from sqlalchemy.orm import Session

from explorer.fleet import plan_fleet
from explorer.sweep import SweepDocument, axes_document, heat_map, objective_metrics
from models.checks import UnknownNameError, require_known
from service.api.documents import RequestDocument
from service.api.location import set_location
from service.api.paging import PageSize, PageToken, newest_page
from service.db import sweeps
from service.db.queries import FINISHED_STATES
from service.db.session import reading
from service.db.sweeps import CellRow
from service.db.tables import Sweep
from service.dependencies import (
    HEAVY_WORK,
    CallerOf,
    CreationId,
    DatabaseOf,
    EngineOf,
    JobsOf,
    ReadSession,
    SettingsOf,
    WriteSession,
)
from service.errors import InvalidRequestError, problem_responses
from service.quotas import require_room
from service.schemas.moments import moment
from service.schemas.sweeps import CellRead, FleetPlan, HeatMapRead, SweepList, SweepRead, SweepSummary
from service.stored_inputs import load_inputs
from service.sweeps import plan_sweep, queue_sweep

LOG = structlog.get_logger("chipfit.sweeps")

router = APIRouter(prefix="/v1/sweeps", tags=["sweeps"])

SweepId = Annotated[str, Path(max_length=40, description="Id of the sweep")]


@router.post(
    "",
    status_code=202,
    operation_id="create_sweep",
    summary="Queue a grid of studies",
    dependencies=[HEAVY_WORK],
    responses=problem_responses(409, 413, 422, 429, 503),
)
def create_sweep(
    document: RequestDocument,
    request: Request,
    response: Response,
    session: WriteSession,
    database: DatabaseOf,
    engine: EngineOf,
    jobs: JobsOf,
    settings: SettingsOf,
    caller: CallerOf,
    sweep_id: CreationId,
    tasks: BackgroundTasks,
) -> SweepRead:
    """Take `name`, `study` and `axes` (name, values; a pointer for unusual ones); every combination is a study."""
    planned = plan_sweep(database, engine, settings, document)
    require_room(session, caller, settings)
    row = queue_sweep(session, engine, sweep_id, planned, caller.key_id)
    LOG.info("sweep queued", sweep_id=sweep_id, cells=len(planned.planned))
    set_location(request, response, "get_sweep", sweep_id=sweep_id)
    tasks.add_task(jobs.wake.set)
    return _read(session, row)


@router.post(
    ":fleet",
    operation_id="plan_fleet",
    summary="Find the smallest fleet of real chips for a weekly demand",
    dependencies=[HEAVY_WORK],
    responses=problem_responses(413, 422, 503),
)
def fleet(document: RequestDocument, database: DatabaseOf) -> FleetPlan:
    """Take `study`, `demand_requests_per_s` by hour of the week, `spares`, `site_power`; answer at once, by chip."""
    with reading(database) as session:
        inputs = load_inputs(session, document).uploads
    return FleetPlan(**plan_fleet(document, inputs))


@router.get("", operation_id="list_sweeps", summary="List sweeps, newest first", responses=problem_responses(422, 503))
def list_sweeps(session: ReadSession, page_size: PageSize = 50, page_token_: PageToken = None) -> SweepList:
    """Return one page of sweeps."""
    page, token = newest_page(partial(sweeps.list_sweeps, session), page_size, page_token_)
    counts = sweeps.count_cells(session, [row.id for row in page])
    return SweepList(items=[_summary(row, counts[row.id]) for row in page], next_page_token=token)


@router.get(
    "/{sweep_id}",
    operation_id="get_sweep",
    summary="Get a sweep with what its cells have found so far",
    responses=problem_responses(404, 503),
)
def get_sweep(sweep_id: SweepId, session: ReadSession) -> SweepRead:
    """Return axes and cells; those that have ended show what they recommend."""
    return _read(session, sweeps.get_sweep(session, sweep_id))


@router.get(
    "/{sweep_id}/heatmap",
    operation_id="get_heat_map",
    summary="Get a metric of the recommended designs over two axes",
    responses=problem_responses(404, 422, 503),
)
def get_heat_map(
    sweep_id: SweepId,
    session: ReadSession,
    metric: Annotated[str | None, Query(max_length=80, description="By default the first objective")] = None,
    x: Annotated[str | None, Query(max_length=60, description="Axis of the columns; the last by default")] = None,
    y: Annotated[str | None, Query(max_length=60, description="Axis of the rows; the one before it by default")] = None,
    at: Annotated[
        str | None, Query(max_length=300, description="Index on other axes, such as `node_nm:1,workload:0`; else 0")
    ] = None,
) -> HeatMapRead:
    """Return values by row and column, null where a cell has not ended or nothing in it is feasible."""
    sweep = SweepDocument.model_validate(sweeps.get_sweep(session, sweep_id).document)
    asked = metric or next(iter(objective_metrics(sweep)), "area_mm2")
    values = {
        cell.coordinates: _number(cell, asked)
        for cell in sweeps.cell_rows(session, sweep_id)
        if cell.state in FINISHED_STATES
    }
    for pointer, name in (("query.x", x), ("query.y", y)):
        if name is not None:
            _require_axis(sweep, name, pointer)
    if x is not None and x == y:
        raise InvalidRequestError("query.y", f"y must be another axis than x, got '{y}'")
    return HeatMapRead(**heat_map(sweep, values, asked, x, y, _places(sweep, at)))


@router.post(
    "/{sweep_id}:cancel",
    operation_id="cancel_sweep",
    summary="Cancel the cells of a sweep that have not ended",
    responses=problem_responses(404, 409, 503),
)
def cancel_sweep(sweep_id: SweepId, session: WriteSession) -> SweepRead:
    """Cancel what waits or runs; what was found stays."""
    row = sweeps.get_sweep(session, sweep_id)
    sweeps.cancel_sweep(session, sweep_id)
    return _read(session, row)


@router.delete(
    "/{sweep_id}",
    status_code=204,
    operation_id="delete_sweep",
    summary="Delete a finished sweep with its studies",
    responses=problem_responses(404, 409, 503),
)
def delete_sweep(sweep_id: SweepId, session: WriteSession) -> None:
    """Remove a sweep, its cells and their studies."""
    sweeps.delete_sweep(session, sweep_id)


def _read(session: Session, row: Sweep) -> SweepRead:
    sweep = SweepDocument.model_validate(row.document)
    cells = [
        CellRead(
            coordinates=list(cell.coordinates), study_id=cell.study_id, state=cell.state,
            trials_done=cell.trials_done, error=cell.error, metrics=cell.metrics, design=cell.design,
        )
        for cell in sweeps.cell_rows(session, row.id)
    ]  # fmt: skip
    summary = _summary(row, Counter(cell.state for cell in cells))
    return SweepRead(
        **summary.model_dump(), axes=axes_document(sweep), metrics=objective_metrics(sweep), cells=cells,
    )  # fmt: skip


def _summary(row: Sweep, counts: Mapping[str, int]) -> SweepSummary:
    return SweepSummary(
        id=row.id, name=row.name, done=set(counts) <= set(FINISHED_STATES), n_cells=sum(counts.values()),
        cells_by_state=dict(counts), created_at=moment(row.created_at_s),
    )  # fmt: skip


def _number(cell: CellRow, metric: str) -> float | None:
    value = (cell.metrics or {}).get(metric)
    return float(value) if isinstance(value, int | float) else None


def _require_axis(sweep: SweepDocument, name: str, pointer: str) -> None:
    try:
        require_known("axis", name, [axis.name for axis in sweep.axes])
    except UnknownNameError as error:
        raise InvalidRequestError(pointer, str(error)) from error


def _places(sweep: SweepDocument, at: str | None) -> dict[str, int]:
    """Read `name:index` pairs."""
    places = {}
    for part in (at or "").split(",") if at else []:
        name, colon, index = part.strip().rpartition(":")
        _require_axis(sweep, name if colon else part, "query.at")
        size = sweep.shape[[axis.name for axis in sweep.axes].index(name)]
        if not index.isdigit() or int(index) >= size:
            raise InvalidRequestError("query.at", f"index on axis '{name}' must be below {size}, got {index[:20]}")
        places[name] = int(index)
    return places
