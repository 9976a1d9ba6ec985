"""Designs of the history as the API shows them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field


class TrialRead(BaseModel):
    """One design a study has looked at, judged at its best use."""

    number: int = Field(description="Number of the trial in the study")
    params: dict[str, Any] = Field(description="Free parameters as the search chose them")
    feasible: bool = Field(description="Whether it meets every limit")
    violated: str | None = Field(description="The limit it misses most, if any")
    excess: dict[str, float] = Field(description="By which share each limit is missed (above 0) or kept (below) [1]")
    objectives: list[float] = Field(description="Values of the objectives in the study's order [of each metric]")
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


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")


FilterText = Field(None, max_length=1000, description="Filter, as for the list of designs")


class NearestRequest(_Request):
    """A point of some fields and how many neighbours are wanted."""

    point: dict[str, Annotated[float, Field(allow_inf_nan=False)] | bool | str] = Field(
        min_length=1, max_length=20, description="Field -> number (SI), quantity with its unit, or text"
    )
    filter: str | None = FilterText
    limit: int = Field(10, ge=1, le=100, description="Most designs in the answer")


class NearDesignRead(DesignRead):
    """A design near the point."""

    distance: float = Field(description="Mean of |x - p| / (|x| + |p|) over the fields, between 0 and 1 [1]")


class NearDesignList(BaseModel):
    """Neighbours, nearest first."""

    items: list[NearDesignRead] = Field(description="Designs, nearest first")


class FacetValue(BaseModel):
    """One value and how often it occurs."""

    value: float | bool | str = Field(description="The value, a number in the unit of the field [as `unit` says]")
    count: int = Field(description="Designs with it")


class Histogram(BaseModel):
    """Counts in bins of equal width."""

    lowest: float = Field(description="Lower edge of the first bin [as `unit` says]")
    highest: float = Field(description="Upper edge of the last bin [as `unit` says]")
    counts: list[int] = Field(description="Designs in each bin")


class FacetRead(BaseModel):
    """How the selected designs spread over one field."""

    field: str = Field(description="Name of the field")
    unit: str = Field(description="Unit of its numbers, empty for texts")
    values: list[FacetValue] | None = Field(description="The most frequent values, null where there are too many")
    histogram: Histogram | None = Field(description="Where there are too many values for a list")


class FacetList(BaseModel):
    """Facets of a selection."""

    count: int = Field(description="Designs selected")
    items: list[FacetRead] = Field(description="One entry for each field asked for")


class ReevaluationRequest(_Request):
    """Which designs of the history to judge again, and on which study's workload."""

    study: dict[str, Any] = Field(description="Study document; its space and search are not used")
    filter: str | None = FilterText
    order_by: str | None = Field(None, max_length=80, description="As for the list of designs")
    limit: int = Field(50, ge=1, le=500, description="Most designs judged")


class ReevaluatedDesign(BaseModel):
    """One design before and under the other workload."""

    study_id: str = Field(description="Study that looked at it")
    number: int = Field(description="Its number there")
    metrics: dict[str, Any] = Field(description="Metrics in that study")
    answer: dict[str, Any] = Field(description="The answer of an evaluation under the other workload")


class ReevaluationRead(BaseModel):
    """A selection judged again."""

    items: list[ReevaluatedDesign] = Field(description="Designs in the order asked for")
    from_history: int = Field(description="Designs whose answer was in the history already")
    skipped: list[dict[str, Any]] = Field(description="Designs that could not be judged, with the reason")
