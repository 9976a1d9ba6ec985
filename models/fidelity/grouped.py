"""From predictions of rows to one report per group, device and number format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.checks import FloatArray
from models.fidelity.interval_classes import stated_interval
from models.fidelity.profiles import profile_of_rows
from models.fidelity.report import GroupReport, error_statistics
from models.fidelity.rows import MeasuredRows, StringArray
from models.operators.calibration import Calibration


@dataclass(frozen=True)
class Labels:
    """What separates the rows of a table, each of shape (n_rows,)."""

    group: NDArray[np.str_]
    chip_id: StringArray
    dtype: NDArray[np.str_]


def left_out_prediction(
    predicted: FloatArray,
    chip_ids: StringArray,
    without: Callable[[str], Mapping[str, float] | None],
    predict: Callable[[Mapping[str, float]], FloatArray],
) -> FloatArray:
    """
    Return, for the rows of each chip, the prediction of the constants that never saw it, shape (n_rows,).

    Rows of chips that no fit has seen keep the prediction of the global constants.
    """
    left_out = predicted.copy()
    for chip_id in np.unique(chip_ids):
        values = without(str(chip_id))
        if values is not None:
            rows = chip_ids == chip_id
            left_out[rows] = predict(values)[rows]
    return left_out


def calibrated_prediction(
    table: str, chip_ids: StringArray, predict: Callable[[Calibration], FloatArray]
) -> FloatArray:
    """Return the prediction of each row under its device's profile, shape (n_rows,); not a number without one."""
    calibrated = np.full(len(chip_ids), np.nan)
    for chip_id in np.unique(chip_ids):
        profile = profile_of_rows(table, str(chip_id))
        if profile is not None:
            rows = chip_ids == chip_id
            calibrated[rows] = predict(profile.calibration)[rows]
    return calibrated


def grouped_reports(
    rows: MeasuredRows,
    labels: Labels,
    measured: FloatArray,
    predicted: FloatArray,
    roofline: FloatArray,
    left_out: FloatArray,
    *,
    calibrated: FloatArray | None = None,
    quantity: str = "latency",
    notes: Mapping[str, str] | None = None,
) -> list[GroupReport]:
    """
    Return one report per (group, device string, format), in sorted order.

    The 90 % interval about `left_out` is that of the class of operators, learned from other dies. `calibrated` is that
    of `calibrated_prediction`.
    """
    table = rows.table
    keys = np.array([labels.group, labels.chip_id, labels.dtype])
    reports = []
    for group, chip_id, dtype in sorted({(str(a), str(b), str(c)) for a, b, c in keys.T}):
        own = (labels.group == group) & (labels.chip_id == chip_id) & (labels.dtype == dtype)
        span = stated_interval(table, group, dtype, chip_id, left_out[own])
        profiled = None if calibrated is None or np.isnan(calibrated[own]).any() else calibrated[own]
        statistics = error_statistics(
            predicted[own], measured[own], roofline=roofline[own], left_out=left_out[own], calibrated=profiled,
            interval=span,
        )  # fmt: skip
        reports.append(
            GroupReport(
                table=table,
                group=group,
                device=chip_id,
                dtype=dtype,
                quantity=quantity,
                constants="global",
                rows=int(own.sum()),
                note=(notes or {}).get(group, ""),
                **statistics,  # type: ignore[arg-type]
            )
        )
    return with_skipped(reports, table, list(rows.skipped), quantity) if rows.skipped else reports


def with_skipped(
    reports: list[GroupReport], table: str, skipped: list[dict[str, Any]], quantity: str = "latency"
) -> list[GroupReport]:
    """Return the reports with skipped rows in the first; a table of which nothing is left gives a report of no rows."""
    first = reports[0] if reports else GroupReport(table, "", "", "", quantity, "global", rows=0)
    return [replace(first, skipped=[*first.skipped, *skipped]), *reports[1:]]
