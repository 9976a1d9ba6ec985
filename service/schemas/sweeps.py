"""Sweeps, their cells and heat maps as the API shows them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from service.schemas.states import StudyState


class AxisRead(BaseModel):
    """What one axis varies."""

    name: str = Field(description="Name of the axis")
    pointer: str = Field(description="JSON pointer to the field of the study")
    labels: list[str] = Field(description="What each value is called")


class CellRead(BaseModel):
    """One study of the grid."""

    coordinates: list[int] = Field(description="Index on each axis")
    study_id: str = Field(description="Its study")
    state: StudyState = Field(description="State of the study")
    trials_done: int = Field(description="Trials recorded so far")
    error: str | None = Field(description="Why it failed, if it did")
    metrics: dict[str, Any] | None = Field(description="Metrics of the recommended design, null where there is none")
    design: dict[str, Any] | None = Field(description="The recommended design, null where there is none")


class SweepSummary(BaseModel):
    """A sweep without its cells."""

    id: str = Field(description="Id of the sweep")
    name: str = Field(description="Name given by the caller")
    done: bool = Field(description="Whether every cell has ended")
    n_cells: int = Field(description="Cells of the grid")
    cells_by_state: dict[str, int] = Field(description="Number of cells in each state that occurs")
    created_at: datetime = Field(description="When it was sent (UTC)")


class SweepRead(SweepSummary):
    """A sweep with what its cells have found so far."""

    axes: list[AxisRead] = Field(description="Axes of the grid, the last one fastest")
    metrics: list[str] = Field(description="Metrics that the studies optimise")
    cells: list[CellRead] = Field(description="Cells in the order of the grid")


class SweepList(BaseModel):
    """One page of sweeps."""

    items: list[SweepSummary] = Field(description="Sweeps, newest first")
    next_page_token: str | None = Field(description="Token of the next page, null on the last one")


class HeatMapAxis(BaseModel):
    """One side of a heat map."""

    name: str = Field(description="Name of the axis")
    labels: list[str] = Field(description="What each value is called")


class HeatMapRead(BaseModel):
    """A metric of the recommended designs over two axes."""

    metric: str = Field(description="Name of the metric")
    unit: str = Field(description="Its unit")
    direction: str | None = Field(description="`minimize` or `maximize`")
    x: HeatMapAxis = Field(description="Columns")
    y: HeatMapAxis | None = Field(description="Rows, null for a sweep of one axis")
    at: dict[str, int] = Field(description="Index on every other axis")
    values: list[list[float | None]] = Field(description="values[y][x]; null where nothing is feasible, or not yet")
    ended: list[list[bool]] = Field(description="Whether the cell has ended")
