"""Fit the energies and the rating of products: `python -m models.fidelity.fit_power DIRECTORY`."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from models.checks import BoolArray, FloatArray
from models.fidelity.power_rows import (
    BestShapeRows,
    PowerRows,
    best_shape_share,
    gemm_power_w,
    read_best_shapes,
    read_power_rows,
)
from models.fidelity.tdp_rows import TdpRows, tdp_rows
from models.hardware.design import take
from models.hardware.power import tdp_estimate_w
from models.tables import DATA, read_rows
from models.technology import Technology, default_technology

CONSTANTS = DATA / "constants"
LEFT_OUT_FILE = CONSTANTS / "power_left_out.csv"
SHARE_LEFT_OUT_FILE = CONSTANTS / "best_shape_left_out.csv"
ROWS_PER_FORMAT = 500
POWER_SD, POWER_WEIGHT = 0.05, 10.0
"""Relative scatter of a steady row, and how many independent rows one device and format counts as."""
UNCLEAR_DTYPES = ("fp8_block",)
"""Formats whose measured latency has a floor of 50 to 90 us at full power: it is not that of the kernel."""
LONG_S = 60e-6
"""Shorter kernels show the power of others and of idle gaps."""
SHARE_SD = 0.05
TDP_SD = 0.15
SOFT_SD = 1.0
"""Residuals beyond this many standard deviations count linearly."""


@dataclass(frozen=True)
class Prior:
    """Constants to fit, each with its group, prior median and prior log standard deviation."""

    keys: tuple[tuple[str, str], ...]
    median: FloatArray
    log_sd: FloatArray


def priors(group: str, chosen: Callable[[str], bool]) -> Prior:
    """Return the priors of the constants of one group whose name is chosen."""
    rows = [r for r in read_rows(CONSTANTS / f"{group}.csv") if r["prior_factor"] and chosen(r["name"])]
    keys = tuple((group, row["name"]) for row in rows)
    return Prior(
        keys, np.array([float(row["prior"]) for row in rows]), np.log([float(row["prior_factor"]) for row in rows])
    )


def fit(prior: Prior, residuals: Callable[[Technology], FloatArray]) -> Technology:
    """Return the technology at the maximum a posteriori: robust residuals in standard deviations, log-normal priors."""

    def technology(log_ratio: FloatArray) -> Technology:
        changed = default_technology()
        for (group, name), value in zip(prior.keys, prior.median * np.exp(log_ratio), strict=True):
            changed = changed.with_constant(group, name, float(value))
        return changed

    def stacked(log_ratio: FloatArray) -> FloatArray:
        return np.concatenate([residuals(technology(log_ratio)), log_ratio / prior.log_sd])

    found = least_squares(stacked, np.zeros(len(prior.keys)), diff_step=1e-3)
    return technology(found.x)


def _softened(residual: FloatArray) -> FloatArray:
    """Soft L1: what grows with the square stays, beyond `SOFT_SD` it grows with the root."""
    return np.sign(residual) * SOFT_SD * np.sqrt(2.0 * (np.sqrt(1.0 + (residual / SOFT_SD) ** 2) - 1.0))


def energy_residuals(
    power: PowerRows, best: BestShapeRows, left_out: str | None = None
) -> Callable[[Technology], FloatArray]:
    """
    Return residuals of the power of long steady GEMMs, each device and format weighted alike, and of best-shape shares.

    Rows of the chip `left_out` are not used.
    """
    weight = np.zeros(len(power.m))
    kept = np.array([best.ids[i] != left_out for i in best.chip])
    for chip in (i for i, name in enumerate(power.ids) if name != left_out):
        for dtype in np.setdiff1d(power.dtype, UNCLEAR_DTYPES):
            own = (power.chip == chip) & (power.dtype == dtype)
            index = np.flatnonzero(own & power.steady & (power.latency_s >= LONG_S))
            index = index[:: max(1, len(index) // ROWS_PER_FORMAT)]
            weight[index] = POWER_WEIGHT / max(1, len(index))
    used = np.flatnonzero(weight)

    def residuals(technology: Technology) -> FloatArray:
        relative = gemm_power_w(power, technology)[used] / power.power_w[used] - 1.0
        share = (best_shape_share(best, technology) - best.share)[kept] / SHARE_SD
        return np.concatenate([np.sqrt(weight[used]) * _softened(relative / POWER_SD), _softened(share)])

    return residuals


def tdp_residuals(rows: TdpRows, chosen: BoolArray) -> Callable[[Technology], FloatArray]:
    """Return log residuals of the rated power of the chosen products, each die weighted alike."""
    index = np.flatnonzero(chosen)
    designs, envelope_w = take(rows.designs, index), rows.envelope_w[index]

    def residuals(technology: Technology) -> FloatArray:
        return _softened(np.log(tdp_estimate_w(designs, envelope_w, technology) / rows.tdp_w[index]) / TDP_SD)

    return residuals


def left_out_tdp_w(rows: TdpRows, prior: Prior) -> FloatArray:
    """Return the rating of each product by constants fitted without its die, shape (n_chips,) [W]."""
    estimate = np.empty(len(rows.ids))
    for die in sorted(set(rows.die)):
        here = np.array([other == die for other in rows.die])
        technology = fit(prior, tdp_residuals(rows, rows.rated & ~rows.circular & ~here))
        estimate[here] = tdp_estimate_w(take(rows.designs, here), rows.envelope_w[here], technology)
    return estimate


def write(technology: Technology, prior: Prior) -> None:
    """Write fitted values into their constants files."""
    for group in sorted({group for group, _ in prior.keys}):
        path = CONSTANTS / f"{group}.csv"
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        header = "".join(line for line in lines if line.startswith("#"))
        rows = read_rows(path)
        for row in rows:
            if (group, row["name"]) in prior.keys:
                row["value"] = f"{technology.constants[group][row['name']]:.4g}"
        _write_csv(path, header, rows)


def _write_csv(path: Path, header: str, rows: list[dict[str, str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(header)
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def fit_energies(directory: Path) -> None:
    """Fit and write the energies per access on measured power and best shapes, and what left-out chips would get."""
    power = read_power_rows(directory / "measured" / "aic_gemm_power.csv")
    best = read_best_shapes(directory / "published" / "gemm_throughput.csv")
    energy = priors("energy", lambda name: True)
    efficiency = priors("power", lambda name: name.startswith("best_shape"))
    both = Prior(
        energy.keys + efficiency.keys,
        np.concatenate([energy.median, efficiency.median]),
        np.concatenate([energy.log_sd, efficiency.log_sd]),
    )
    write(fit(both, energy_residuals(power, best)), both)
    share = np.empty(len(best.share))
    for i, name in enumerate(best.ids):
        technology = fit(both, energy_residuals(power, best, name))
        share[best.chip == i] = best_shape_share(best, technology)[best.chip == i]
    note = "# Share of peak at the best shape by constants that never saw the chip; written by fit_power.py.\n"
    keys = zip(best.device.tolist(), best.dtype.tolist(), share.tolist(), strict=True)
    lines = [{"device": device, "dtype": dtype, "left_out_share": f"{value:.4f}"} for device, dtype, value in keys]
    _write_csv(SHARE_LEFT_OUT_FILE, note, lines)


def fit_ratings(directory: Path) -> dict[str, float]:
    """Fit and write the rating of products, return its median errors fitted and left out."""
    rows = tdp_rows(directory / "chips.csv")
    prior = priors("power", lambda name: name.startswith("tdp_"))
    technology = fit(prior, tdp_residuals(rows, rows.rated & ~rows.circular))
    left_out = left_out_tdp_w(rows, prior)
    write(technology, prior)
    note = (
        "# Rated power by constants fitted without any product of the die; written by models/fidelity/fit_power.py.\n"
    )
    lines = [{"id": i, "left_out_w": f"{w:.1f}"} for i, w in zip(rows.ids, left_out, strict=True)]
    _write_csv(LEFT_OUT_FILE, note, lines)
    estimate = tdp_estimate_w(rows.designs, rows.envelope_w, technology)
    scored = rows.rated & ~rows.circular
    errors = [np.abs(w / rows.tdp_w - 1.0)[scored] for w in (estimate, left_out)]
    return {
        "rows": int(scored.sum()),
        "in_sample_median": float(np.median(errors[0])),
        "left_out_median": float(np.median(errors[1])),
        "left_out_log_sd": float(np.std(np.log(left_out / rows.tdp_w)[scored])),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="directory with chips.csv, measured and published")
    parser.add_argument("--only", choices=("energies", "ratings"), help="leave the other constants as they are")
    arguments = parser.parse_args()
    if arguments.only != "ratings":
        fit_energies(arguments.directory)
    if arguments.only != "energies":
        sys.stdout.write(json.dumps(fit_ratings(arguments.directory), indent=1) + "\n")
