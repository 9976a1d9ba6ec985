"""Fits global constants to measured times: least squares on log ratios, groups of rows weighted alike."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from models.checks import FloatArray, IntArray
from models.tables import DATA, constants

RESIDUAL_SCALE = 0.1
"""Log ratio beyond which a residual counts linearly (soft L1)."""


@dataclass(frozen=True)
class Parameter:
    """One constant to fit: start, bounds and unit; equal bounds keep it fixed."""

    name: str
    start: float
    low: float
    high: float
    unit: str
    meaning: str


@dataclass(frozen=True)
class Sample:
    """Rows to fit: what predicts them from constants, the measured times [s] and the group of each row."""

    predictor: Callable[[IntArray], Callable[[Mapping[str, float]], FloatArray]]
    """Row numbers -> what turns constants into the times of those rows [s]."""
    measured_s: FloatArray
    groups: NDArray[np.str_]


def subsample(groups: NDArray[np.str_], rows_per_group: int, seed: int = 0) -> IntArray:
    """Return sorted row numbers, at most `rows_per_group` of each group."""
    rng = np.random.default_rng(seed)
    chosen = []
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        chosen.append(rows if len(rows) <= rows_per_group else rng.choice(rows, rows_per_group, replace=False))
    return np.sort(np.concatenate(chosen)).astype(np.int64)


def fit_constants(
    parameters: Sequence[Parameter],
    sample: Sample,
    rows: IntArray,
    *,
    rows_per_group: int = 300,
    evaluations: int = 60,
    seed: int = 0,
) -> dict[str, float]:
    """
    Return the constants that minimise the soft-L1 loss of log(predicted / measured) over `rows`.

    Free parameters are fitted on a log scale between their bounds; every group has the same weight.
    """
    free = [each for each in parameters if each.low < each.high]
    fixed = {each.name: each.start for each in parameters if each.low >= each.high}
    picked = rows[subsample(sample.groups[rows], rows_per_group, seed)]
    log_measured = np.log(sample.measured_s[picked])
    _, group, count = np.unique(sample.groups[picked], return_inverse=True, return_counts=True)
    weight = 1.0 / np.sqrt(count[group])

    predict = sample.predictor(picked)

    def unpacked(point: FloatArray) -> dict[str, float]:
        return fixed | {each.name: float(value) for each, value in zip(free, np.exp(point), strict=True)}

    def residuals(point: FloatArray) -> FloatArray:
        scaled = (np.log(predict(unpacked(point))) - log_measured) / RESIDUAL_SCALE
        return np.asarray(np.sign(scaled) * np.sqrt(2.0 * (np.sqrt(1.0 + scaled**2) - 1.0)) * weight)

    low, high = (np.log([getattr(each, side) for each in free]) for side in ("low", "high"))
    start = np.clip(np.log([each.start for each in free]), low + 1e-9, high - 1e-9)
    solution = least_squares(residuals, start, bounds=(low, high), max_nfev=evaluations)
    return unpacked(solution.x)


def left_out_ranges(by_chip: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    """Return for every constant the range it takes when one device after the other is left out, as a note."""
    names = {name for values in by_chip.values() for name in values}
    seen = {name: [values[name] for values in by_chip.values() if name in values] for name in names}
    return {
        name: f"{min(found):.3g} to {max(found):.3g} leaving one device out"
        for name, found in seen.items()
        if min(found) < max(found)
    }


def write_constants(
    name: str, parameters: Sequence[Parameter], values: Mapping[str, float], source: str, notes: Mapping[str, str]
) -> Path:
    """Write fitted constants to `models/data/constants/<name>.csv` and return its path."""
    rows = [
        [each.name, f"{values[each.name]:.4g}", each.unit, source if each.low < each.high else "fixed",
         "; ".join(filter(None, (each.meaning, notes.get(each.name, ""))))]
        for each in parameters
    ]  # fmt: skip
    return _write(name, rows)


def write_left_out(
    name: str, parameters: Sequence[Parameter], by_chip: Mapping[str, Mapping[str, float]], source: str
) -> Path:
    """Write the constants fitted without each chip as rows `<chip>.<constant>`, fixed ones left out."""
    rows = [
        [f"{chip}.{each.name}", f"{values[each.name]:.4g}", each.unit, source, f"fitted without {chip}"]
        for chip, values in by_chip.items()
        for each in parameters
        if each.low < each.high and each.name in values
    ]
    return _write(f"{name}_left_out", rows)


def merged_constants(families: Sequence[str]) -> dict[str, float]:
    """Return the constants of all `families` together."""
    return {name: value for family in families for name, value in constants(family).items()}


def constants_without(families: Sequence[str], chip_id: str) -> dict[str, float] | None:
    """
    Return the constants of all `families` that never saw this chip, or None where no fit has seen it.

    The left-out constants stand in the file of the first family.
    """
    stored = constants(f"{families[0]}_left_out")
    own = {key.split(".", 1)[1]: value for key, value in stored.items() if key.split(".", 1)[0] == chip_id}
    return merged_constants(families) | own if own else None


def _write(name: str, rows: list[list[str]]) -> Path:
    path = DATA / "constants" / f"{name}.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["name", "value", "unit", "source", "note"])
        writer.writerows(rows)
    return path
