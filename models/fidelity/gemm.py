"""Predicted against measured GEMM times, for every table of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from models.checks import FloatArray
from models.fidelity.gemm_prediction import (
    constants_without,
    gemm_prediction_under,
    predicted_latency_s,
    roofline_latency_s,
    source_constants,
)
from models.fidelity.gemm_rows import GemmRows, read_gemm_rows
from models.fidelity.interval_classes import stated_interval
from models.fidelity.profiles import profile_of_rows
from models.fidelity.report import GroupReport, TableReader, error_statistics
from models.operators.gemm_constants import gemm_constants

SIDES = ("large", "small")
LARGE_SIDE = 512
"""Rows with n and k of at least this are group `large`, the others `small`."""


def gemm_reports(path: Path) -> Iterable[GroupReport]:
    """
    Return one report per chip, dtype and group of a measured GEMM table.

    Parameters
    ----------
    path : Path
        CSV with the columns device, dtype, m, n, k, latency_us; its name tells the source.

    Returns
    -------
    list of GroupReport
        `mape` with the global constants, `leave_one_device_out_mape` with constants that never saw the chip.
        A table of which no row can be predicted gives one report with rows 0 and the reasons.

    Raises
    ------
    TableError
        If the file is not such a table.
    """
    rows = read_gemm_rows(path)
    return _reports(rows, SIDES) or [_empty_report(rows)]


def gemm_row_reports(rows: GemmRows, group: str) -> list[GroupReport]:
    """Reports of rows that are one group of this name, one for each chip and dtype."""
    return _reports(rows, (group,))


def _reports(rows: GemmRows, groups: tuple[str, ...]) -> list[GroupReport]:
    """One report per chip, dtype and group that has rows."""
    reports: list[GroupReport] = []
    for chip, dtype in sorted(set(zip(rows.chip, rows.dtype, strict=True))):
        for group in groups:
            large = np.minimum(rows.n, rows.k) >= LARGE_SIDE
            here = (rows.chip == chip) & (rows.dtype == dtype) & ((group not in SIDES) | (large == (group == "large")))
            if here.any():
                reports.append(_group_report(rows.take(here), group, rows.skipped if not reports else []))
    return reports


def _group_report(rows: GemmRows, group: str, skipped: list[dict[str, Any]]) -> GroupReport:
    """Statistics of rows of one device and dtype."""
    chip = str(rows.chip[0])
    predicted = predicted_latency_s(rows, gemm_constants(), source_constants())
    unseen = constants_without(chip)
    left_out = predicted_latency_s(rows, gemm_constants(unseen), source_constants(unseen))
    statistics = error_statistics(
        predicted,
        rows.latency_s,
        roofline=roofline_latency_s(rows),
        left_out=left_out,
        calibrated=_calibrated_s(rows),
        interval=stated_interval(rows.table, group, str(rows.dtype[0]), chip, left_out),
    )
    return GroupReport(
        table=rows.table,
        group=group,
        device=chip,
        dtype=str(rows.dtype[0]),
        quantity="latency",
        constants="global",
        rows=len(rows.m),
        skipped=skipped,
        note="" if unseen != "gemm" else "the global constants did not use this chip",
        **statistics,  # type: ignore[arg-type]
    )


def _calibrated_s(rows: GemmRows) -> FloatArray | None:
    """Prediction under the profile of the rows' device, where there is one [s]."""
    profile = profile_of_rows(rows.table, str(rows.chip[0]))
    return None if profile is None else gemm_prediction_under(rows, profile.calibration)


def _empty_report(rows: GemmRows) -> GroupReport:
    return GroupReport(rows.table, "large", "", "", "latency", "global", rows=0, skipped=rows.skipped)


TABLES: dict[str, TableReader] = {
    "aic_gemm_*.csv": gemm_reports,
    "vidur_linear_*.csv": gemm_reports,
    "llmcompass_gemm*.csv": gemm_reports,
    "infersim_gemm*.csv": gemm_reports,
}
