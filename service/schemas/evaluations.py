"""Answers of evaluations, for the specification: the explorer makes them, nothing is checked twice."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class EvaluatedDesign(BaseModel):
    """One of many designs on a workload."""

    design: dict[str, Any] = Field(description="Every design parameter (SI units), codes by name")
    operating_point: dict[str, Any] = Field(description="Plan, batch, formats and chunk at which it is judged")
    metrics: dict[str, Any] = Field(description="Metrics with their unit in the name; of several scenarios also each")
    serves: bool = Field(description="Whether it does the work inside the limits of the work itself")
    feasible: bool = Field(description="Whether it is inside the budget too")
    excess_fractions: dict[str, float] = Field(description="By which share each limit is missed (above 0) or kept [1]")


class EvaluationRead(EvaluatedDesign):
    """A chip or a design on a workload."""

    intervals: dict[str, dict[str, Any]] = Field(
        description="Metric -> low and high of the range in which nine of ten measured values lie, and how it was made"
    )
    figures: dict[str, dict[str, Any]] = Field(
        description="Area, power, cost and energy by part, with low_90 and high_90"
    )
    idle: dict[str, Any] = Field(description="Busy shares of each unit, idle shares of area and power [1]")
    warnings: list[str] = Field(description="What to know before the figures are used")
    technology: dict[str, Any] = Field(description="Digest of the technology values, and those replaced")
    model_version: str = Field(description="Version of the analytical model")
    profile: dict[str, Any] | None = Field(description="Calibration profile it was judged under, null without one")
    from_history: bool = Field(description="Whether the same had been asked before under this version of the model")
    chip: dict[str, Any] | None = Field(None, description="Of a chip: name, sources and inferred fields")
    percentiles: dict[str, Any] | None = Field(None, description="Of a replay: percentiles, load and goodput")
    scaling: dict[str, Any] | None = Field(None, description="Of other system sizes: rate, efficiency, what binds")
    sizes: dict[str, Any] | None = Field(
        None, description="Where asked for: task, compute and data sizes side by side; of many scenarios, by name"
    )
    reshape_cost: dict[str, Any] | None = Field(
        None, description="With the sizes: bytes and time of moving without computing, by layer and when it is paid"
    )
    unrolling: dict[str, Any] | None = Field(None, description="Where asked for: the same peak in other arrays")
    against: dict[str, Any] | None = Field(None, description="The other chip or design, and where cost of moving went")
    explanation: dict[str, Any] | None = Field(
        None, description="Where asked for: summary, time_shares, bottleneck_chain, resource_return, questions, ..."
    )


class EvaluationBatch(BaseModel):
    """Many designs on a workload."""

    items: list[EvaluatedDesign] = Field(description="Designs in the order asked for")
    technology: dict[str, Any] = Field(description="Digest of the technology values, and those replaced")
    model_version: str = Field(description="Version of the analytical model")
    profile: dict[str, Any] | None = Field(description="Calibration profile they were judged under, null without one")
