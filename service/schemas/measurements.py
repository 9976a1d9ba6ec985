"""Measurements as the API shows them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from service.db.tables import Measurement
from service.schemas.moments import moment


class RefusedRow(BaseModel):
    """A row that was not stored."""

    line: int = Field(description="Line of the file")
    detail: str = Field(description="The rule and what came instead")


class MeasurementsTaken(BaseModel):
    """What was stored of an upload."""

    batch: str = Field(description="Id of the upload")
    stored: int = Field(description="Rows that were stored")
    refused: list[RefusedRow] = Field(description="Rows that cannot be, by line")
    mape: float | None = Field(description="Mean of |predicted / measured - 1| of the stored rows [1]")
    model_version: str = Field(description="Version of the model that predicted them")


class MeasurementRead(BaseModel):
    """One measured time beside the prediction of the model that was there when it came."""

    id: int = Field(description="Number of the measurement, in order of arrival")
    batch: str = Field(description="Id of the upload")
    device: str = Field(description="Chip of the catalogue, or system")
    family: str = Field(description="Operator family")
    columns: dict[str, Any] = Field(description="The row as it was sent")
    measured_s: float = Field(description="Measured time [s]")
    predicted_s: float = Field(description="Predicted time [s]")
    bound_s: float = Field(description="Time that the hardware needs at least [s]")
    error_fraction: float = Field(description="Predicted over measured time, less one [1]")
    model_version: str = Field(description="Version of the model that predicted it")
    kernel: str = Field(description="Kernel, as the sender states it")
    software_version: str = Field(description="Software and its version, as the sender states it")
    clock_hz: float | None = Field(description="Clock during the measurement [Hz], null where not stated")
    created_at: datetime | None = Field(description="When it was sent (UTC)")


class MeasurementList(BaseModel):
    """One page of measurements."""

    items: list[MeasurementRead] = Field(description="Measurements in order of arrival")
    next_page_token: str | None = Field(description="Token of the next page, null on the last one")


class ErrorTrendEntry(BaseModel):
    """Errors of one version of the model on one device and operator family."""

    model_version: str = Field(description="Version of the model")
    device: str = Field(description="Chip of the catalogue, or system")
    family: str = Field(description="Operator family")
    rows: int = Field(description="Measurements")
    mape: float = Field(description="Mean of |predicted / measured - 1| [1]")
    mean_error: float = Field(description="Mean of predicted / measured - 1 [1]")
    first_at: datetime | None = Field(description="First measurement (UTC)")
    last_at: datetime | None = Field(description="Last measurement (UTC)")


class ErrorTrend(BaseModel):
    """How far the predictions of each version of the model were off."""

    items: list[ErrorTrendEntry] = Field(description="By version of the model, the oldest first")


def measurement_fields(row: Measurement) -> dict[str, Any]:
    """Fields of a measurement as the API shows them."""
    names = ("id", "batch", "device", "family", "columns", "measured_s", "predicted_s", "bound_s", "model_version",
             "kernel", "software_version", "clock_hz")  # fmt: skip
    error = row.predicted_s / row.measured_s - 1.0
    own = {name: getattr(row, name) for name in names}
    return own | {"error_fraction": error, "created_at": moment(row.created_at_s)}


def trend_fields(entry: dict[str, Any]) -> dict[str, Any]:
    """Fields of one entry of the trend as the API shows them."""
    times = {"first_at": moment(entry["first_at_s"]), "last_at": moment(entry["last_at_s"])}
    return {name: value for name, value in entry.items() if not name.endswith("_at_s")} | times
