"""Trials that are judged elsewhere as the API shows and takes them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from service.db.tables import Suggestion
from service.schemas.moments import moment

ClientName = Annotated[str, Field(min_length=1, max_length=80, pattern="^[A-Za-z0-9._-]+$")]


class SuggestionRead(BaseModel):
    """One design to be judged."""

    number: int = Field(description="Number of the trial in the study", examples=[0])
    params: dict[str, Any] = Field(description="Values of the space as a study writes them", examples=[{"n_cores": 96}])
    design: dict[str, Any] = Field(
        description="Every design parameter, the unit at the end of its name",
        examples=[{"n_cores": 96.0, "clock_hz": 1.6e9}],
    )
    client: str = Field(description="Client it is leased to", examples=["rtl-1"])
    lease_expires_at: datetime = Field(
        description="When it may be given to another client (UTC)", examples=["2026-11-30T20:15:00Z"]
    )
    leases: int = Field(description="How often it was handed out", examples=[1])


class SuggestionList(BaseModel):
    """Trials for one client."""

    items: list[SuggestionRead] = Field(description="Its own leased trials first, then returned ones, then new ones")
    next_page_token: str | None = Field(description="Always null", examples=[None])


class TrialOutcome(BaseModel):
    """What came of one trial: figures, or why there are none."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    number: int = Field(ge=0, le=2**31 - 1, description="Number of the trial", examples=[0])
    metrics: dict[Annotated[str, Field(pattern="^[a-z][a-z0-9_]{0,79}$")], float] = Field(
        default_factory=dict, max_length=100, examples=[{"latency_s": 0.012}],
        description="Figures by name, the unit at the end; every objective of the study among them",
    )  # fmt: skip
    constraints: dict[Annotated[str, Field(pattern="^[a-z][a-z0-9_]{0,79}$")], float] = Field(
        default_factory=dict, max_length=20, examples=[{"area": -0.1}],
        description="Excess over every limit of the study as a share of it, at most 0 where it is kept",
    )  # fmt: skip
    failure: str | None = Field(
        None, min_length=1, max_length=1000, description="Why it could not be judged", examples=[None]
    )

    @model_validator(mode="after")
    def _figures_or_failure(self) -> TrialOutcome:
        if self.failure is not None and (self.metrics or self.constraints):
            raise ValueError("a failed trial must hold neither metrics nor constraints")
        return self


class TrialOutcomes(BaseModel):
    """What came of some trials of one client; taken all or none."""

    model_config = ConfigDict(extra="forbid")

    client: ClientName = Field("default", description="Client that the trials are leased to", examples=["rtl-1"])
    trials: list[TrialOutcome] = Field(min_length=1, max_length=1000, description="Trials, each once")

    @model_validator(mode="after")
    def _each_once(self) -> TrialOutcomes:
        numbers = [each.number for each in self.trials]
        if len(set(numbers)) != len(numbers):
            raise ValueError("a trial must not occur twice")
        return self


def suggestion_fields(row: Suggestion) -> dict[str, Any]:
    """Fields of a suggestion as the API shows them."""
    return {
        "number": row.number, "params": row.params, "design": row.design, "client": row.client,
        "lease_expires_at": moment(row.lease_expires_at_s), "leases": row.leases,
    }  # fmt: skip
