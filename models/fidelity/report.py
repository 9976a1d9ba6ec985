"""Predicted against measured: the record of one group of rows and the statistics every table reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from models.checks import BoolArray, FloatArray


class TableError(ValueError):
    """A measured file that cannot be read; the message names file, line and rule, the fields each on its own."""

    def __init__(self, rule: str, file: str = "", line: int | None = None, column: str = "") -> None:
        where = file if line is None else f"{file} line {line}"
        super().__init__(f"{where}: {rule}" if where else rule)
        self.rule = rule
        self.file = file
        self.line = line
        self.column = column


@dataclass(frozen=True)
class GroupReport:
    """Errors of one group of rows of one table: fractions, `None` where not defined."""

    table: str
    group: str
    device: str
    dtype: str
    quantity: str
    constants: str
    rows: int
    out_of_scope: int = 0
    """Rows that the model does not claim to describe."""
    skipped: list[dict[str, Any]] = field(default_factory=list)
    """Other rows without a prediction, as reason and number of rows; with line and column where the row is at fault.
    Over all groups of a table but `per chip`, `rows`, `out_of_scope` and these add up to the rows of the file."""
    mape: float | None = None
    calibrated_mape: float | None = None
    leave_one_device_out_mape: float | None = None
    median_ape: float | None = None
    bias: float | None = None
    p90_ape: float | None = None
    kendall_tau: float | None = None
    spearman: float | None = None
    concordance: float | None = None
    """Share of the pairs whose measured values differ by more than their noise that the prediction orders alike."""
    roofline_mape: float | None = None
    leave_one_device_out_median_ape: float | None = None
    mean_absolute_difference: float | None = None
    """Of shares, where a difference says more than a ratio."""
    leave_one_device_out_mean_absolute_difference: float | None = None
    left_out_log_bias: float | None = None
    """Median of log(measured / left-out prediction)."""
    left_out_log_half_width: float | None = None
    """Half of the span of those logarithms between 5 and 95 %."""
    interval_coverage: float | None = None
    interval_width: float | None = None
    pairs: int | None = None
    """Pairs that `concordance` counts."""
    predicted: float | None = None
    """In the unit of the quantity, where the group is one chip; so are the measured and the left-out value."""
    measured: float | None = None
    leave_one_device_out_predicted: float | None = None
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        """The group as one JSON object; what is not finite is null."""
        return {name: value if _is_plain(value) else None for name, value in asdict(self).items()}


PER_CHIP = "per chip"
"""Group of the reports that repeat single rows of a group over all chips, one chip each."""

UNSEEN = ", unseen"
"""What the groups of chips that no fit has seen are called, after the name of the others."""

TableReader = Callable[[Path], Iterable[GroupReport]]
"""Reads one measured file and reports each of its groups. Every module of `fidelity` that knows a table offers
`TABLES: dict[str, TableReader]`, keyed by a glob of file names such as `aic_gemm_*.csv`."""


def absolute_percentage_errors(predicted: ArrayLike, measured: ArrayLike) -> FloatArray:
    """|predicted / measured - 1|, shape (n_rows,) [1]."""
    return np.abs(np.asarray(predicted, dtype=np.float64) / np.asarray(measured, dtype=np.float64) - 1.0)


def error_statistics(
    predicted: FloatArray,
    measured: FloatArray,
    *,
    roofline: FloatArray | None = None,
    left_out: FloatArray | None = None,
    calibrated: FloatArray | None = None,
    interval: tuple[FloatArray, FloatArray] | None = None,
) -> dict[str, float | None]:
    """
    Return the statistics of `GroupReport` for one group, as keyword arguments of it.

    Parameters
    ----------
    predicted, measured : arrays of shape (n_rows,)
        In any one unit, all positive.
    roofline, left_out, calibrated : arrays of shape (n_rows,), optional
        Predictions of the plain roofline, of constants that never saw this device, and of its profile.
    interval : pair of arrays of shape (n_rows,), optional
        Lower and upper end of the stated 90 % interval.
    """
    if len(measured) == 0:
        return {}
    errors = absolute_percentage_errors(predicted, measured)
    ratio = np.log(predicted / measured)
    ranked = len(measured) > 2 and np.ptp(measured) > 0 and np.ptp(predicted) > 0
    statistics: dict[str, float | None] = {
        "mape": float(errors.mean()),
        "median_ape": float(np.median(errors)),
        "bias": float(np.expm1(np.median(ratio))),
        "p90_ape": float(np.quantile(errors, 0.9)),
        "kendall_tau": float(stats.kendalltau(predicted, measured).statistic) if ranked else None,
        "spearman": float(stats.spearmanr(predicted, measured).statistic) if ranked else None,
    }
    others = {"roofline_mape": roofline, "leave_one_device_out_mape": left_out, "calibrated_mape": calibrated}
    for key, values in others.items():
        statistics[key] = None if values is None else float(absolute_percentage_errors(values, measured).mean())
    if left_out is not None:
        median = np.median(absolute_percentage_errors(left_out, measured))
        statistics["leave_one_device_out_median_ape"] = float(median)
        low, middle, high = np.quantile(np.log(measured / left_out), [0.05, 0.5, 0.95])
        statistics["left_out_log_bias"] = float(middle)
        statistics["left_out_log_half_width"] = float(high - low) / 2.0
    if interval is not None:
        lowest, highest = interval
        inside: BoolArray = (measured >= lowest) & (measured <= highest)
        statistics["interval_coverage"] = float(inside.mean())
        statistics["interval_width"] = float(np.median(np.sqrt(highest / lowest)) - 1.0)
    return statistics


def _is_plain(value: Any) -> bool:
    return not isinstance(value, float) or bool(np.isfinite(value))
