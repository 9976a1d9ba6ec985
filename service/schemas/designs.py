"""Designs of the history as the API shows them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class TrialRead(BaseModel):
    """One design a study has looked at, judged at its best use."""

    number: int = Field(description="Number of the trial in the study")
    params: dict[str, Any] = Field(description="Free parameters as the search chose them")
    feasible: bool = Field(description="Whether it meets every limit")
    violated: str | None = Field(description="The limit it misses most, if any")
    excess: dict[str, float] = Field(description="By which share each limit is missed (above 0) or kept (below)")
    objectives: list[float] = Field(description="Values of the objectives in the study's order")
    design: dict[str, Any] = Field(description="Every design parameter (SI units)")
    operating_point: dict[str, Any] = Field(description="Plan, batch, formats and chunk at which it was judged")
    metrics: dict[str, Any] = Field(description="Metrics with their unit in the name")


class DesignRead(TrialRead):
    """A design of the history."""

    study_id: str = Field(description="Id of the study that looked at it")


class DesignList(BaseModel):
    """One page of designs."""

    items: list[DesignRead] = Field(description="Designs in the order asked for")
    next_page_token: str | None = Field(description="Token of the next page, null on the last one")
