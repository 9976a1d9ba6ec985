"""Schedules: studies that are repeated as their workload changes, each run compared with the one before it."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from itertools import islice, takewhile
from typing import Annotated

import structlog
from fastapi import APIRouter, BackgroundTasks, Path, Query, Request, Response

from service.api.location import set_location
from service.api.paging import PageSize, PageToken, newest_page, page_of
from service.db import schedules
from service.db.session import clock_s, reading
from service.db.tables import Schedule, ScheduleRun
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
from service.errors import InvalidRequestError, TooManyError, problem_responses
from service.jobs.fire_times import fire_times, require_cron
from service.jobs.schedule_clerk import ScheduleClerk, first_fire_s, run_id
from service.schemas.moments import moment
from service.schemas.schedules import (
    BackfillRead,
    BackfillRequest,
    RunList,
    RunRead,
    ScheduleCreate,
    ScheduleList,
    ScheduleRead,
)
from service.study_creation import plan_study

LOG = structlog.get_logger("chipfit.schedules")

router = APIRouter(prefix="/v1/schedules", tags=["schedules"])

ScheduleId = Annotated[str, Path(max_length=40, description="Id of the schedule")]

SHOWN_FIRES = 5
MOST_BACKFILLED = 500


@router.post(
    "",
    status_code=201,
    operation_id="create_schedule",
    summary="Repeat a study",
    dependencies=[HEAVY_WORK],
    responses=problem_responses(409, 413, 422, 429, 503),
)
def create_schedule(
    request: ScheduleCreate,
    http_request: Request,
    response: Response,
    session: WriteSession,
    database: DatabaseOf,
    engine: EngineOf,
    settings: SettingsOf,
    caller: CallerOf,
    schedule_id: CreationId,
) -> ScheduleRead:
    """Check times and study, and begin to fire."""
    with reading(database) as looking:
        now_s = clock_s(looking)
    require_cron(request.cron, request.time_zone, now_s)
    _check_study(ScheduleClerk(database, engine, settings), request.study)
    if schedules.count_schedules(session, caller.key_id) >= settings.max_schedules:
        raise TooManyError(f"schedules of one key must be at most {settings.max_schedules}, got one more")
    fields = {name: getattr(request, name) for name in ("name", "cron", "time_zone", "overlap", "missed")}
    fields |= {"missed_after_s": request.missed_after_s, "document": request.study, "owner": caller.key_id}
    first_s = next(fire_times(request.cron, request.time_zone, now_s), None)
    row = schedules.add_schedule(session, schedule_id, {**fields, "next_fire_at_s": first_s})
    set_location(http_request, response, "get_schedule", schedule_id=schedule_id)
    return _read(row, now_s)


@router.get(
    "", operation_id="list_schedules", summary="List schedules, newest first", responses=problem_responses(422, 503)
)
def list_schedules(session: ReadSession, page_size: PageSize = 50, page_token_: PageToken = None) -> ScheduleList:
    """Return one page of schedules."""
    page, token = newest_page(partial(schedules.list_schedules, session), page_size, page_token_)
    now_s = clock_s(session)
    return ScheduleList(items=[_read(row, now_s) for row in page], next_page_token=token)


@router.get(
    "/{schedule_id}", operation_id="get_schedule", summary="Get a schedule", responses=problem_responses(404, 503)
)
def get_schedule(schedule_id: ScheduleId, session: ReadSession, response: Response) -> ScheduleRead:
    """Return a schedule with its next times; its ETag serves `If-Match` of changing calls."""
    row = schedules.get_schedule(session, schedule_id)
    response.headers["ETag"] = version_tag(row.version)
    return _read(row, clock_s(session))


@router.delete(
    "/{schedule_id}",
    status_code=204,
    operation_id="delete_schedule",
    summary="Delete a schedule",
    responses=problem_responses(404, 412, 503),
)
def delete_schedule(schedule_id: ScheduleId, session: WriteSession, is_wanted: WantedVersion) -> None:
    """Remove a schedule and the record of its runs; the studies stay in the history."""
    schedules.delete_schedule(session, schedule_id, is_wanted)


@router.post(
    "/{schedule_id}:pause",
    operation_id="pause_schedule",
    summary="Stop firing",
    responses=problem_responses(404, 412, 503),
)
def pause_schedule(schedule_id: ScheduleId, session: WriteSession, is_wanted: WantedVersion) -> ScheduleRead:
    """Pause a schedule: what falls into the pause is not missed and does not run later."""
    row = schedules.locked_schedule(session, schedule_id, is_wanted)
    if row.state != "paused":
        row.state, row.next_fire_at_s = "paused", None
        row.version += 1
    return _read(row, clock_s(session))


@router.post(
    "/{schedule_id}:resume",
    operation_id="resume_schedule",
    summary="Fire again",
    responses=problem_responses(404, 412, 503),
)
def resume_schedule(schedule_id: ScheduleId, session: WriteSession, is_wanted: WantedVersion) -> ScheduleRead:
    """Resume a paused schedule from now on."""
    row, now_s = schedules.locked_schedule(session, schedule_id, is_wanted), clock_s(session)
    if row.state != "active":
        row.state, row.next_fire_at_s = "active", first_fire_s(row, now_s)
        row.version += 1
    return _read(row, now_s)


@router.post(
    "/{schedule_id}:run",
    status_code=202,
    operation_id="run_schedule",
    summary="Run a schedule now",
    responses=problem_responses(404, 409, 422, 503),
)
def run_schedule(
    schedule_id: ScheduleId, session: WriteSession, jobs: JobsOf, creation_id: CreationId, tasks: BackgroundTasks
) -> RunRead:
    """Start a run at once, paused or not; it joins whatever runs already."""
    schedules.locked_schedule(session, schedule_id)
    now_s = clock_s(session)
    schedules.add_run(session, schedule_id, now_s, "manual", creation_id, None)
    tasks.add_task(jobs.wake.set)
    ((run, state),) = schedules.list_runs(session, schedule_id, None, 1)
    return _run(run, state)


@router.post(
    "/{schedule_id}:backfill",
    status_code=202,
    operation_id="backfill_schedule",
    summary="Make up for fires of the past",
    responses=problem_responses(404, 422, 503),
)
def backfill_schedule(
    schedule_id: ScheduleId, request: BackfillRequest, session: WriteSession, jobs: JobsOf, tasks: BackgroundTasks
) -> BackfillRead:
    """Run every fire of a span that has not run; a second call for the same span runs nothing."""
    row = schedules.locked_schedule(session, schedule_id)
    from_s, to_s = (_seconds(each, pointer) for each, pointer in ((request.from_, "/from"), (request.to, "/to")))
    if not from_s <= to_s <= clock_s(session):
        raise InvalidRequestError("/to", "the span must begin before it ends, and must not end in the future")
    times = takewhile(lambda fire_s: fire_s <= to_s, fire_times(row.cron, row.time_zone, from_s - 1.0))
    fires = list(islice((each for each in times if each >= from_s), MOST_BACKFILLED + 1))
    if len(fires) > MOST_BACKFILLED:
        raise InvalidRequestError("/from", f"the span must hold at most {MOST_BACKFILLED} fires, got more")
    added = [
        fire_s
        for fire_s in fires
        if schedules.add_run(session, schedule_id, fire_s, "backfill", run_id(schedule_id, fire_s), None)
    ]
    tasks.add_task(jobs.wake.set)
    return BackfillRead(added=[_moment(each) for each in added], known=len(fires) - len(added))


@router.get(
    "/{schedule_id}/runs",
    operation_id="list_schedule_runs",
    summary="List the runs of a schedule, each with what moved since the one before",
    responses=problem_responses(404, 422, 503),
)
def list_schedule_runs(
    schedule_id: ScheduleId,
    session: ReadSession,
    with_drift: Annotated[bool, Query(description="Whether the reports come along")] = True,
    page_size: PageSize = 50,
    page_token_: PageToken = None,
) -> RunList:
    """Return one page of runs, the latest fire first."""
    schedules.get_schedule(session, schedule_id)
    page, token = page_of(
        lambda behind, limit: schedules.list_runs(session, schedule_id, behind and behind[0], limit),
        lambda row: (row[0].fire_at_s,), (float,), page_size, page_token_,
    )  # fmt: skip
    return RunList(items=[_run(run, state, with_drift) for run, state in page], next_page_token=token)


def _check_study(clerk: ScheduleClerk, study: dict[str, object]) -> None:
    """Refuse a study that could not run now, with pointers below `/study`."""
    try:
        plan_study(clerk.database, clerk.engine, clerk.settings, clerk.current_document(study))
    except (clerk.engine.study_error, InvalidRequestError) as error:
        faults = [{**each, "pointer": f"/study{each['pointer']}"} for each in getattr(error, "errors", [])]
        raise InvalidRequestError.of(faults, str(error)) from error


def _read(row: Schedule, now_s: float) -> ScheduleRead:
    coming = fire_times(row.cron, row.time_zone, now_s) if row.state == "active" else iter(())
    return ScheduleRead.model_validate(
        {
            "id": row.id, "name": row.name, "state": row.state, "cron": row.cron, "time_zone": row.time_zone,
            "overlap": row.overlap, "missed": row.missed, "missed_after_s": row.missed_after_s, "study": row.document,
            "next_fires": [_moment(each) for each in islice(coming, SHOWN_FIRES)],
            "created_at": moment(row.created_at_s), "version": row.version,
        }
    )  # fmt: skip


def _run(run: ScheduleRun, study_state: str | None, with_drift: bool = True) -> RunRead:
    state = "skipped" if run.skipped_because is not None else study_state or "waiting"
    return RunRead.model_validate(
        {
            "fire_at": _moment(run.fire_at_s), "kind": run.kind, "study_id": run.study_id, "state": state,
            "skipped_because": run.skipped_because, "drift": run.drift if with_drift else None,
        }
    )  # fmt: skip


def _moment(time_s: float) -> datetime:
    return datetime.fromtimestamp(time_s, UTC)


def _seconds(when: datetime, pointer: str) -> float:
    try:
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    except (OverflowError, ValueError) as error:
        raise InvalidRequestError(pointer, f"must be a moment that clocks can show, got {when}") from error
