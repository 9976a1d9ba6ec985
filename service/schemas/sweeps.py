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


class FleetRead(BaseModel):
    """The smallest fleet of one chip that serves the demand."""

    chip: str = Field(description="Id of the chip")
    name: str = Field(description="Name of the chip")
    systems: int = Field(description="Systems that are bought")
    spare_systems: int = Field(description="Systems among them that stand by")
    chips: int = Field(description="Chips of all systems")
    system_requests_per_s: float = Field(description="Sustainable rate of one system [1/s]")
    peak_load: float = Field(description="Load of the running systems in the busiest hour [1]")
    mean_load: float = Field(description="Mean load of the running systems [1]")
    peak_site_power_w: float = Field(description="Power from the grid in the busiest hour [W]")
    mean_site_power_w: float = Field(description="Mean power from the grid [W]")
    fits_site: bool = Field(description="Whether the site's power is enough")
    usd_per_month: float = Field(description="Capital, site and electricity of a month [USD]")
    usd_per_million_requests: float = Field(description="The same for a million requests [USD]")


class UnableChip(BaseModel):
    """A chip that cannot serve one request within the limits."""

    chip: str = Field(description="Id of the chip")
    limit: str = Field(description="The limit it misses most")


class FleetPlan(BaseModel):
    """Fleets of every chip of the catalogue for one demand."""

    name: str = Field(description="Name given by the caller")
    peak_requests_per_s: float = Field(description="Demand of the busiest hour [1/s]")
    mean_requests_per_s: float = Field(description="Mean demand [1/s]")
    fleets: list[FleetRead] = Field(
        description="Fleets of chips that can serve: those that fit the site first, then by chips"
    )
    smallest: FleetRead | None = Field(description="The one of fewest chips that fits the site")
    cheapest: FleetRead | None = Field(description="The one of least cost a month that fits the site")
    cannot_serve: list[UnableChip] = Field(description="Chips that miss a limit of the work")
