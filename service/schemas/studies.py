"""Studies, their progress, designs and results as the API shows them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

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
    from_history_done: int = Field(description="Trials among them that an equal study had judged before")
    busy_s: float = Field(description="Search time spent [s]")
    eta_s: float | None = Field(description="Search time still needed at the mean pace so far [s]")


class StudyRead(BaseModel):
    """A study."""

    id: str = Field(description="Id of the study")
    name: str = Field(description="Name given by the caller")
    state: StudyState = Field(description="State of the study")
    progress: ProgressRead = Field(description="How far it is")
    document: dict[str, Any] = Field(description="The request as it was sent; an extension replaces its search")
    model_version: str = Field(description="Version of the analytical model")
    workload_hash: str = Field(description="The same for studies that judge designs alike")
    queue: str = Field(description="Queue it waits in")
    priority: int = Field(description="The smaller, the earlier it begins")
    warm_start: dict[str, Any] | None = Field(
        description="Past studies it begins with, the designs taken from them, and what was dropped for which reason"
    )
    error: str | None = Field(description="Why it failed, if it did")
    created_at: datetime = Field(description="When it was sent (UTC)")
    started_at: datetime | None = Field(description="When it began (UTC)")
    finished_at: datetime | None = Field(description="When it ended (UTC)")
    attempt: int = Field(description="1 plus the number of times it was resumed")
    version: int = Field(description="Grows with every change")


class ExtendRequest(BaseModel):
    """Search settings that replace those of a finished study."""

    model_config = ConfigDict(extra="forbid")

    trials: int | None = Field(None, ge=1, le=100_000, description="Trials in all, more than were done")
    timeout: str | None = Field(
        None, max_length=40, description="Search time in all, such as '120 s'; by default as long again as before"
    )
    target_gap: float | None = Field(None, ge=0, lt=1, description="Gap at which a proof may stop [1]")
    certify: bool | None = Field(None, description="Whether the answer is to be proven")


class CloneRequest(BaseModel):
    """What differs in a study that is otherwise like another one."""

    model_config = ConfigDict(extra="forbid")

    changes: dict[str, Any] = Field(
        default_factory=dict,
        description="Fields to merge into the document: mappings are merged, null removes, anything else replaces",
    )


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


class ExplanationRead(BaseModel):
    """Why a design does what it does."""

    state: StudyState = Field(description="State of the study; while it runs, of the designs so far")
    trial: int | None = Field(description="Trial that is explained, null for a chip")
    chip: str | None = Field(description="Chip of the catalogue that is explained, null for a trial")
    design: dict[str, Any] | None = Field(description="Its parameters, null where no design is feasible")
    operating_point: dict[str, Any] | None = Field(description="How it works: plan, batch, formats")
    explanation: dict[str, Any] | None = Field(
        description="summary, time_shares, bottleneck_chain, resource_return, parameter_sensitivity, build_or_buy, "
        "questions, slack_fractions; next_budget and flip_distance where asked for"
    )


def study_fields(study: Study) -> dict[str, Any]:
    """Fields of a study as the API shows them."""
    return {
        "id": study.id, "name": study.name, "state": study.state, "progress": queries.progress(study),
        "document": study.document, "model_version": study.model_version,
        "workload_hash": study.workload_hash, "queue": study.queue, "priority": study.priority,
        "warm_start": study.warm_start, "error": study.error,
        "created_at": moment(study.created_at_s), "started_at": moment(study.started_at_s),
        "finished_at": moment(study.finished_at_s), "attempt": study.attempt, "version": study.version,
    }  # fmt: skip
