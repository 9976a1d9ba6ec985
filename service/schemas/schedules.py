"""Schedules and their runs as the API shows them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from service.schemas.states import StudyState

Overlap = Literal["skip", "queue", "cancel_previous"]
Missed = Literal["run_latest", "run_all", "skip"]


class ScheduleCreate(BaseModel):
    """A study and when it is repeated."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=200, description="Name of the schedule")
    cron: str = Field(max_length=100, description="minute hour day month weekday", examples=["0 2 * * 1"])
    time_zone: str = Field("UTC", max_length=60, description="IANA name", examples=["Europe/Berlin"])
    study: dict[str, Any] = Field(
        description="Study document; `latest:NAME` where an upload is named means the newest one of that name"
    )
    overlap: Overlap = Field("skip", description="What a fire does while an earlier run has not ended")
    missed: Missed = Field("run_latest", description="What becomes of fires while nothing was running")
    missed_after_s: float = Field(300.0, ge=1, le=604_800, description="Delay after which a fire is missed [s]")


class ScheduleRead(BaseModel):
    """A schedule."""

    id: str = Field(description="Id of the schedule")
    name: str = Field(description="Name given by the caller")
    state: Literal["active", "paused"] = Field(description="Whether it fires")
    cron: str = Field(description="minute hour day month weekday")
    time_zone: str = Field(description="IANA name of the zone")
    overlap: Overlap = Field(description="What a fire does while an earlier run has not ended")
    missed: Missed = Field(description="What becomes of fires while nothing was running")
    missed_after_s: float = Field(description="Delay after which a fire is missed [s]")
    study: dict[str, Any] = Field(description="Study document")
    next_fires: list[datetime] = Field(description="Next times it fires, empty while it is paused")
    created_at: datetime = Field(description="When it was sent (UTC)")
    version: int = Field(description="Grows with every change")


class ScheduleList(BaseModel):
    """One page of schedules."""

    items: list[ScheduleRead] = Field(description="Schedules, newest first")
    next_page_token: str | None = Field(description="Token of the next page, null on the last one")


class RunRead(BaseModel):
    """One fire of a schedule."""

    fire_at: datetime = Field(description="When it was to fire (UTC)")
    kind: Literal["scheduled", "manual", "backfill"] = Field(description="What made it fire")
    study_id: str | None = Field(description="The study it started")
    state: StudyState | Literal["waiting", "skipped"] = Field(description="State of the study")
    skipped_because: str | None = Field(description="Why it started none")
    drift: dict[str, Any] | None = Field(description="What moved since the run before, once both have succeeded")


class RunList(BaseModel):
    """One page of runs."""

    items: list[RunRead] = Field(description="Runs, the latest fire first")
    next_page_token: str | None = Field(description="Token of the next page, null on the last one")


class BackfillRequest(BaseModel):
    """A span of the past whose fires are made up for."""

    model_config = ConfigDict(extra="forbid")

    from_: datetime = Field(alias="from", description="First moment; without a zone it is UTC")
    to: datetime = Field(description="Last moment, not in the future; without a zone it is UTC")


class BackfillRead(BaseModel):
    """What a backfill added."""

    added: list[datetime] = Field(description="Fires that now run")
    known: int = Field(description="Fires of the span that had run or been noted before")
