"""Studies, their progress, designs and results as the API shows them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from service.db import queries
from service.db.tables import Study
from service.schemas.designs import TrialRead
from service.schemas.moments import moment
from service.schemas.states import StudyState


class ProgressRead(BaseModel):
    """How far a study is."""

    state: StudyState = Field(description="State of the study")
    chunks_done: int = Field(description="Chunks of trials recorded")
    chunks_planned: int | None = Field(description="Chunks in all, once known")
    trials_done: int = Field(description="Trials recorded")
    feasible_done: int = Field(description="Trials among them that meet every limit")
    busy_s: float = Field(description="Search time spent [s]")
    eta_s: float | None = Field(description="Search time still needed at the mean pace so far [s]")


class StudyRead(BaseModel):
    """A study."""

    id: str = Field(description="Id of the study")
    name: str = Field(description="Name given by the caller")
    state: StudyState = Field(description="State of the study")
    progress: ProgressRead = Field(description="How far it is")
    document: dict[str, Any] = Field(description="The request as it was sent")
    model_version: str = Field(description="Version of the analytical model")
    error: str | None = Field(description="Why it failed, if it did")
    created_at: datetime = Field(description="When it was sent (UTC)")
    started_at: datetime | None = Field(description="When it began (UTC)")
    finished_at: datetime | None = Field(description="When it ended (UTC)")
    attempt: int = Field(description="1 plus the number of times it was resumed")
    version: int = Field(description="Grows with every change")


class StudyResultRead(StudyRead):
    """A study with its result."""

    result: dict[str, Any] | None = Field(description="The result once the study has succeeded")


class StudyList(BaseModel):
    """One page of studies."""

    items: list[StudyRead] = Field(description="Studies, newest first")
    next_page_token: str | None = Field(description="Token of the next page, null on the last one")


class TrialList(BaseModel):
    """One page of a study's designs."""

    items: list[TrialRead] = Field(description="Trials in the order of their numbers")
    next_page_token: str | None = Field(description="Token of the next page, null on the last one")


class ParetoRead(BaseModel):
    """Designs that no other one of the study beats in every objective."""

    state: StudyState = Field(description="State of the study; while it runs, the front is the one so far")
    pareto: list[dict[str, Any]] = Field(description="Points with design, operating_point and metrics")


class RecommendationRead(BaseModel):
    """The design chipfit recommends."""

    state: StudyState = Field(description="State of the study; while it runs, the best one so far")
    feasible: bool = Field(description="Whether any design meets every limit")
    recommended: dict[str, Any] | None = Field(description="The design with operating_point and metrics, or null")
    binding_limit: dict[str, Any] | None = Field(
        description="Where nothing is feasible: the limit that the nearest design misses, and by which share of it"
    )


def study_fields(study: Study) -> dict[str, Any]:
    """Fields of a study as the API shows them."""
    return {
        "id": study.id, "name": study.name, "state": study.state, "progress": queries.progress(study),
        "document": study.document, "model_version": study.model_version, "error": study.error,
        "created_at": moment(study.created_at_s), "started_at": moment(study.started_at_s),
        "finished_at": moment(study.finished_at_s), "attempt": study.attempt, "version": study.version,
    }  # fmt: skip
