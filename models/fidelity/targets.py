"""What the model promises, beside what a validation shows: one line per row of `accuracy_targets.csv`."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from models.fidelity.report import PER_CHIP, GroupReport
from models.tables import DATA, read_rows

SELECTORS = ("table", "group", "device", "dtype", "quantity")


@dataclass(frozen=True)
class ErrorFigure:
    """One statistic over the rows of several groups: all together, and of the worst device [1]."""

    mean: float
    worst: float
    worst_device: str


@dataclass(frozen=True)
class TargetLine:
    """One promise and the figures beside it, all fractions; `None` where there is none."""

    label: str
    rows: int
    fitted: ErrorFigure | None
    left_out: ErrorFigure | None
    roofline: ErrorFigure | None
    calibrated: ErrorFigure | None
    """With the shipped profiles of the devices, over the rows that have one."""
    fitted_limit: float | None
    left_out_limit: float | None
    calibrated_limit: float | None
    prototype: str

    @property
    def verdict(self) -> str:
        """Whether the limits hold: on every device, only over all rows together, or not."""
        pairs = [
            (figure, limit)
            for figure, limit in (
                (self.fitted, self.fitted_limit),
                (self.left_out, self.left_out_limit),
                (self.calibrated, self.calibrated_limit),
            )
            if figure is not None and limit is not None
        ]
        if not pairs:
            return "reported"
        if all(figure.worst <= limit for figure, limit in pairs):
            return "met"
        return "met on average" if all(figure.mean <= limit for figure, limit in pairs) else "missed"


def target_lines(reports: Sequence[GroupReport]) -> list[TargetLine]:
    """Return every promise for which the reports hold rows, in the order of the table."""
    lines = []
    for row in read_rows(DATA / "accuracy_targets.csv"):
        chosen = [report for report in reports if report.rows and report.group != PER_CHIP and _selected(report, row)]
        if not chosen:
            continue
        lines.append(
            TargetLine(
                label=row["label"],
                rows=sum(report.rows for report in chosen),
                fitted=error_figure(chosen, row["statistic"]),
                left_out=error_figure(chosen, row["left_out_statistic"]),
                roofline=error_figure(chosen, "roofline_mape" if row["statistic"] == "mape" else ""),
                calibrated=error_figure(chosen, "calibrated_mape" if row["statistic"] == "mape" else ""),
                fitted_limit=_limit(row["fitted"]),
                left_out_limit=_limit(row["left_out"]),
                calibrated_limit=_limit(row["calibrated"]),
                prototype=row["prototype"],
            )
        )
    return lines


def error_figure(reports: Sequence[GroupReport], statistic: str) -> ErrorFigure | None:
    """Return a statistic over all rows of the groups that have it, and over those of the worst device."""
    known = [report for report in reports if statistic and getattr(report, statistic) is not None]
    if not known:
        return None
    by_device = {
        device: _mean([report for report in known if report.device == device], statistic)
        for device in sorted({report.device for report in known})
    }
    worst = max(by_device, key=lambda device: by_device[device])
    return ErrorFigure(_mean(known, statistic), by_device[worst], worst)


def _mean(reports: Sequence[GroupReport], statistic: str) -> float:
    values = [getattr(report, statistic) for report in reports]
    return float(np.average(values, weights=[report.rows for report in reports]))


def _selected(report: GroupReport, row: Mapping[str, str]) -> bool:
    return all(
        any(fnmatch.fnmatchcase(getattr(report, name), pattern) for pattern in row[name].split(";"))
        for name in SELECTORS
    )


def _limit(text: str) -> float | None:
    return float(text) if text else None
