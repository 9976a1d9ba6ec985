"""How far the time of an operator may lie from its prediction: spread between devices and within one, by class."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from models.checks import require_known
from models.hardware.catalog import die_of_chip
from models.tables import DATA, constants, read_rows

NORMAL_90 = 1.645
"""Two-sided 90 % quantile of the normal distribution."""
LEAST_DIES = 2
"""Dies that must have shown an operator for its interval to count as calibrated."""


@dataclass(frozen=True)
class OperatorSpread:
    """Half widths of the 90 % interval of log(measured / predicted), of a device that no constant has seen [1]."""

    between: float
    """Common to all operators of the class on one device."""
    within: float
    """Of one shape about the device's own level."""
    n_dies: int

    @property
    def half_width(self) -> float:
        """Both parts together."""
        return math.hypot(self.between, self.within)

    @property
    def calibrated(self) -> bool:
        """Whether devices enough have shown the operator."""
        return self.n_dies >= LEAST_DIES


@functools.cache
def _residuals() -> Mapping[str, tuple[tuple[str, float, float], ...]]:
    """Class -> die, bias and within half width of each left-out group, from `operator_residuals.csv`."""
    found: dict[str, list[tuple[str, float, float]]] = {}
    for row in read_rows(DATA / "operator_residuals.csv"):
        entry = (die_of_chip(row["device"]), float(row["log_bias"]), float(row["log_half_width"]))
        found.setdefault(row["class"], []).append(entry)
    return {name: tuple(entries) for name, entries in found.items()}


def spread_classes() -> list[str]:
    """Names of all classes of operators."""
    return sorted(_residuals())


@functools.cache
def operator_spread(name: str, without_die: str = "") -> OperatorSpread:
    """
    Return the spread of a class of operators.

    Every die counts once, whatever the number of its products and rows. The level of a device no constant has seen is
    zero give or take the root mean square of the dies' levels. Few dies have shown each class, and Student's factor for
    them would make intervals that hold far more than they state; what the plain one holds on dies left out is what
    `chipfit validate` reports. A class that fewer than two have shown is widened by `uncalibrated_widening_ratio`.

    Parameters
    ----------
    name : str
        A class of `interval_classes.csv`.
    without_die : str
        Die whose own residuals must not enter, for a check on it.

    Raises
    ------
    UnknownNameError
        If there is no such class.
    """
    known = _residuals()[require_known("interval class", name, _residuals())]
    entries = [each for each in known if each[0] != without_die]
    if not entries:
        return _unmeasured(name)
    dies = sorted({die for die, _, _ in entries})
    bias = [_mean_square([b for d, b, _ in entries if d == die]) for die in dies]
    within = [float(np.mean([w for d, _, w in entries if d == die])) for die in dies]
    between = NORMAL_90 * math.sqrt(float(np.mean(bias)))
    if len({die for die, _, _ in known}) < LEAST_DIES:
        ratio = constants("intervals")["uncalibrated_widening_ratio"]
        return OperatorSpread(between * ratio, float(np.mean(within)) * ratio, len(dies))
    return OperatorSpread(between, float(np.mean(within)), len(dies))


def _unmeasured(name: str) -> OperatorSpread:
    """Spread of a class that no other die has shown: its own width without the level, widened."""
    own = _residuals()[name]
    ratio = constants("intervals")["uncalibrated_widening_ratio"]
    level = constants("intervals")["unmeasured_log_half_width"]
    return OperatorSpread(level, ratio * float(np.mean([w for _, _, w in own])), 0)


def _mean_square(values: list[float]) -> float:
    return float(np.mean(np.square(values)))
