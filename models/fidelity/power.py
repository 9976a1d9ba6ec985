"""Predicted against real power: ratings of products, measured GEMMs, and the clock that best shapes reveal."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from models.checks import BoolArray, FloatArray
from models.fidelity.chip_table import check_chip_table
from models.fidelity.power_rows import best_shape_share, gemm_power_w, read_best_shapes, read_power_rows
from models.fidelity.report import PER_CHIP, UNSEEN, GroupReport, TableReader, error_statistics
from models.fidelity.rows import table_name
from models.fidelity.tdp_rows import TdpRows, tdp_rows
from models.hardware.power import tdp_estimate_w
from models.tables import DATA, read_rows
from models.technology import default_technology

LONG_S = 60e-6
"""Kernels shorter than this show the power of others: two libraries with equal times differ up to fivefold."""
NORMAL_90 = 1.645
CIRCULAR = "rated, envelope equal to the rating"


def rating_reports(path: Path) -> Iterable[GroupReport]:
    """
    Report the rated power of a table with the columns of `chips.csv`: vendors' ratings, and other figures.

    Products whose listed envelope equals their rating are reported apart: cut to it, the estimate knows the answer.
    """
    check_chip_table(path)
    rows = tdp_rows(path)
    skipped = [{"reason": reason, "rows": count} for reason, count in Counter(r for _, r in rows.skipped).items()]
    table = table_name(path.name)
    seen = np.array([chip_id in left_out_w() for chip_id in rows.ids], dtype=np.bool_)
    groups = (
        ("rated", rows.rated & seen & ~rows.circular),
        (f"rated{UNSEEN}", rows.rated & ~seen & ~rows.circular),
        (CIRCULAR, rows.rated & rows.circular),
        ("estimated or measured", ~rows.rated),
    )
    for group, chosen in groups:
        if chosen.any() or group == "rated":
            yield _rating_report(table, group, rows, chosen, skipped)
            skipped = []
    predicted, left_out = _ratings_w(rows)
    for i, chip_id in enumerate(rows.ids):
        own = np.arange(len(rows.ids)) == i
        yield replace(
            _rating_report(table, PER_CHIP, rows, own, []), device=chip_id, measured=float(rows.tdp_w[i]),
            predicted=float(predicted[i]), leave_one_device_out_predicted=float(left_out[i]),
        )  # fmt: skip


def gemm_power_reports(path: Path) -> Iterator[GroupReport]:
    """
    Report mean board power of measured GEMMs by device, format, duration and steadiness.

    `steady` rows agree with a neighbour in m; the others, and most short ones, carry power of other kernels.
    """
    rows = read_power_rows(path)
    predicted = gemm_power_w(rows)
    skipped = rows.skipped
    if not len(rows.m):
        yield GroupReport(rows.table, "", "", "", "power", "global", rows=0, skipped=skipped)
    long = rows.latency_s >= LONG_S
    for chip, name in enumerate(rows.ids):
        for dtype in np.unique(rows.dtype):
            for group, chosen in _groups(rows.steady, long):
                here = (rows.chip == chip) & (rows.dtype == dtype) & chosen
                if not here.any():
                    continue
                yield GroupReport(
                    rows.table, group, name, str(dtype), "power", "global", rows=int(here.sum()), skipped=skipped,
                    **error_statistics(
                        predicted[here], rows.power_w[here], roofline=rows.limit_w[here]
                    ),  # type: ignore[arg-type]
                    note="roofline: power equal to the limit",
                )  # fmt: skip
                skipped = []


def best_shape_reports(path: Path) -> Iterable[GroupReport]:
    """Report the share of peak at the best shape of each format, which shows the sustained clock."""
    rows = read_best_shapes(path)
    skipped = rows.skipped
    if not len(rows.share):
        yield GroupReport(rows.table, "best shape", "", "", "share_of_peak", "global", rows=0, skipped=skipped)
        return
    predicted = best_shape_share(rows, default_technology())
    known = left_out_share()
    keys = zip(rows.device.tolist(), rows.dtype.tolist(), predicted.tolist(), strict=True)
    left_out = np.array([known.get((device, dtype), share) for device, dtype, share in keys])
    points, left_out_points = (float(np.abs(share - rows.share).mean()) for share in (predicted, left_out))
    yield GroupReport(
        rows.table, "best shape", "all", "", "share_of_peak", "global", rows=len(rows.share), skipped=skipped,
        mean_absolute_difference=points, leave_one_device_out_mean_absolute_difference=left_out_points,
        **error_statistics(
            predicted, rows.share, left_out=left_out, roofline=np.ones(len(rows.share))
        ),  # type: ignore[arg-type]
    )  # fmt: skip


@functools.cache
def left_out_w() -> Mapping[str, float]:
    """Return chip id -> rating by constants fitted without its die [W]."""
    return {row["id"]: float(row["left_out_w"]) for row in read_rows(DATA / "constants" / "power_left_out.csv")}


@functools.cache
def left_out_share() -> Mapping[tuple[str, str], float]:
    """Return device and format -> share of peak by constants that never saw the chip [1]."""
    rows = read_rows(DATA / "constants" / "best_shape_left_out.csv")
    return {(row["device"], row["dtype"]): float(row["left_out_share"]) for row in rows}


def _ratings_w(rows: TdpRows) -> tuple[FloatArray, FloatArray]:
    """Estimate of each chip, and by constants that never saw its die, each of shape (n_chips,) [W]."""
    estimate = tdp_estimate_w(rows.designs, rows.envelope_w)
    known = left_out_w()
    return estimate, np.array([known.get(i, w) for i, w in zip(rows.ids, estimate, strict=True)], dtype=np.float64)


def _rating_report(
    table: str, group: str, rows: TdpRows, chosen: BoolArray, skipped: list[dict[str, object]]
) -> GroupReport:
    estimate, left_out = _ratings_w(rows)
    factor = np.exp(NORMAL_90 * default_technology().constants["power"]["tdp_residual_log_sd"])
    return GroupReport(
        table, group, "all", "", "tdp", "global", rows=int(chosen.sum()), skipped=skipped,
        **error_statistics(
            estimate[chosen], rows.tdp_w[chosen], left_out=left_out[chosen],
            interval=(left_out[chosen] / factor, left_out[chosen] * factor),
        ),  # type: ignore[arg-type]
    )  # fmt: skip


def _groups(steady: BoolArray, long: BoolArray) -> Iterable[tuple[str, BoolArray]]:
    return (
        ("steady, long", steady & long),
        ("steady, short", steady & ~long),
        ("unsteady, long", ~steady & long),
        ("unsteady, short", ~steady & ~long),
    )


TABLES: dict[str, TableReader] = {
    "chips.csv": rating_reports,
    "aic_gemm_power*.csv": gemm_power_reports,
    "gemm_throughput*.csv": best_shape_reports,
}
