"""Fit the constants of the area model on whole dies: `python -m models.fidelity.fit_area DIRECTORY`."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from models.checks import FloatArray
from models.fidelity.area_rows import DieRows, die_rows, nearest_target_mm2
from models.hardware.area import area_log_sensitivity, die_area_mm2
from models.hardware.design import take
from models.tables import DATA, read_rows
from models.technology import Technology, default_technology

CONSTANTS_FILE = DATA / "constants" / "area.csv"
COVARIANCE_FILE = DATA / "constants" / "area_covariance.csv"
LEFT_OUT_FILE = DATA / "constants" / "area_left_out.csv"
UNOFFICIAL_SD_RATIO = 1.5
HUBER_SD = 2.0
STEPS = 25


@dataclass(frozen=True)
class AreaFit:
    """Posterior mode of the fitted constants in their own scale, and covariance of their logarithms."""

    names: tuple[str, ...]
    values: FloatArray
    covariance: FloatArray

    def technology(self) -> Technology:
        """Return the shipped technology with these constants."""
        changed = default_technology()
        for name, value in zip(self.names, self.values, strict=True):
            changed = changed.with_constant("area", name, float(value))
        return changed


def priors() -> tuple[tuple[str, ...], FloatArray, FloatArray]:
    """Return names, prior medians and prior log standard deviations of the fitted constants."""
    rows = [row for row in read_rows(CONSTANTS_FILE) if row["prior_factor"]]
    names = tuple(row["name"] for row in rows)
    medians = np.array([float(row["prior"]) for row in rows])
    return names, medians, np.log([float(row["prior_factor"]) for row in rows])


def fit(rows: DieRows, chosen: FloatArray) -> AreaFit:
    """
    Return the maximum a posteriori fit on the chosen dies.

    Residuals are in the logarithm of the area, priors are log-normal, outliers beyond two standard deviations
    count linearly (Huber); Gauss-Newton with step halving left out, since the terms are nearly linear.

    Parameters
    ----------
    rows : DieRows
        All dies.
    chosen : array of shape (n_chips,)
        1 for a die to fit, 0 for one left out.
    """
    names, medians, log_sd = priors()
    additive = np.array(["log_effect" in name for name in names])
    start = np.where(additive, medians, np.log(np.where(additive, 1.0, medians)))
    theta = start.copy()
    index = np.flatnonzero(chosen > 0)
    used = take(rows.designs, index)
    sd = (
        default_technology().constants["area"]["residual_log_sd"]
        * np.where(rows.unofficial, UNOFFICIAL_SD_RATIO, 1.0)[index]
    )
    for _ in range(STEPS):
        technology = AreaFit(names, np.where(additive, theta, np.exp(theta)), np.empty(0)).technology()
        area = die_area_mm2(used, technology)
        target = np.clip(area, rows.low_mm2[index], rows.high_mm2[index])
        residual = np.log(target / area)
        jacobian = area_log_sensitivity(used, names, technology)
        weight = rows.weight[index] * np.minimum(1.0, HUBER_SD * sd / np.maximum(np.abs(residual), 1e-12)) / sd**2
        precision = jacobian.T @ (weight[:, None] * jacobian) + np.diag(log_sd**-2)
        gradient = jacobian.T @ (weight * residual) - (theta - start) / log_sd**2
        step = np.linalg.solve(precision, gradient)
        theta = theta + np.clip(step, -0.3, 0.3)
        if np.abs(step).max() < 1e-5:
            break
    return AreaFit(
        names, np.where(additive, theta, np.exp(theta)), np.asarray(np.linalg.inv(precision), dtype=np.float64)
    )


def left_out_areas_mm2(rows: DieRows) -> FloatArray:
    """Return each die's area by constants fitted without any product of that die, shape (n_chips,) [mm2]."""
    area = np.empty(len(rows.ids))
    for die in sorted(set(rows.die)):
        index = np.flatnonzero([other == die for other in rows.die])
        chosen = np.ones(len(rows.ids))
        chosen[index] = 0.0
        area[index] = die_area_mm2(take(rows.designs, index), fit(rows, chosen).technology())
    return area


def summary(rows: DieRows, area_mm2: FloatArray) -> dict[str, float]:
    """Return mean and median error, each die counted once."""
    errors = np.abs(area_mm2 / nearest_target_mm2(area_mm2, rows) - 1.0)
    order = np.argsort(errors)
    share = np.cumsum(rows.weight[order]) / rows.weight.sum()
    return {
        "mean": float((rows.weight * errors).sum() / rows.weight.sum()),
        "median": float(errors[order][np.searchsorted(share, 0.5)]),
    }


def write(fitted: AreaFit) -> None:
    """Write values and posterior factors beside the priors, and the covariance."""
    text = CONSTANTS_FILE.read_text(encoding="utf-8")
    header = "".join(line + "\n" for line in text.splitlines() if line.startswith("#"))
    found = dict(zip(fitted.names, zip(fitted.values, np.sqrt(np.diag(fitted.covariance)), strict=True), strict=True))
    rows = read_rows(CONSTANTS_FILE)
    for row in rows:
        if row["name"] in found:
            value, log_sd = found[row["name"]]
            row["value"], row["posterior_factor"] = f"{value:.4g}", f"{np.exp(log_sd):.3f}"
    _write_csv(CONSTANTS_FILE, header, rows)
    covariance: list[Mapping[str, str]] = [
        {"name": name} | dict(zip(fitted.names, (f"{value:.4e}" for value in line), strict=True))
        for name, line in zip(fitted.names, fitted.covariance, strict=True)
    ]
    note = "# Posterior covariance of the logarithms of the fitted constants of area.csv (log effects as they are).\n"
    _write_csv(COVARIANCE_FILE, note, covariance)


def write_left_out(rows: DieRows, area_mm2: FloatArray) -> None:
    """Write the area of each chip by constants that never saw its die."""
    note = "# Area by constants fitted without any product of the die; written by models/fidelity/fit_area.py.\n"
    lines: list[Mapping[str, str]] = [
        {"id": chip_id, "left_out_mm2": f"{area:.1f}"} for chip_id, area in zip(rows.ids, area_mm2, strict=True)
    ]
    _write_csv(LEFT_OUT_FILE, note, lines)


def _write_csv(path: Path, header: str, rows: list[Mapping[str, str]] | list[dict[str, str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(header)
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> dict[str, dict[str, float]]:
    """Fit on the chips of a directory, write the constants, return in-sample and left-out errors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="directory with chips.csv")
    rows = die_rows(parser.parse_args().directory / "chips.csv")
    fitted = fit(rows, np.ones(len(rows.ids)))
    left_out = left_out_areas_mm2(rows)
    write(fitted)
    write_left_out(rows, left_out)
    in_sample = summary(rows, die_area_mm2(rows.designs, fitted.technology()))
    return {"in_sample": in_sample, "left_out": summary(rows, left_out)}


if __name__ == "__main__":
    import json
    import sys

    sys.stdout.write(json.dumps(main(), indent=1) + "\n")
