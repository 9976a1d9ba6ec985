"""Fits a calibration profile to measured rows: few ratios per family, checked on shapes that the fit did not see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from models.checks import FloatArray, IntArray
from models.fidelity.calibration_rows import FamilyRows, calibration_rows
from models.fidelity.profiles import FamilyFit, Profile
from models.fidelity.report import TableError
from models.hardware.catalog import chip_of_device
from models.operators.calibration import MOST_CONSTANTS, UNCALIBRATED, Calibration, calibrated_constants

LEAST_ROWS = 10
"""Rows of a family below which nothing is fitted."""
LEAST_SHAPES = 4
"""Different shapes below which nothing is fitted."""
ROWS_PER_CONSTANT = 3
"""Rows that each fitted constant needs."""
NARROW_RATIO = 4.0
"""Largest over smallest predicted time below which rows are too narrow to tell constants apart."""
MOST_ROWS = 800
"""Rows of one group that a fit takes, drawn at random."""
LOSS_SCALE = 0.05
"""Log ratio beyond which a row counts linearly."""
PRIOR_WEIGHT = 0.02
"""Weight of one log ratio of a constant against the mean loss: what no row tells stays at the global value."""
STEPS = (0.1, 0.02)
"""Relative steps of the derivatives, coarse first: waves and tiles make the loss uneven."""
IMPOSSIBLE_FRACTION = 0.98
"""Of the physical bound, under which a time is impossible; clocks above their rating reach a little below it."""
OTHER_UNIT_RATIO = 300.0
"""Measured over predicted beyond which a row must be in another unit."""
SEED = 20250101


@dataclass(frozen=True)
class Finding:
    """Something a reader of the report must know, with the line of the file where there is one."""

    rule: str
    line: int | None = None
    refused: bool = False
    """Whether the rows it names were left out of the fit."""


@dataclass(frozen=True)
class CalibrationReport:
    """A fitted profile, how far each constant moved, and what was wrong with the rows."""

    profile: Profile
    findings: tuple[Finding, ...]
    rows: Mapping[str, int] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """The report as plain data."""
        return {
            "profile": self.profile.name,
            "device": self.profile.device,
            "families": {
                family: {
                    **vars(fit),
                    "constants": {
                        name: {"ratio": ratio, "moved_fraction": ratio - 1.0}
                        for name, ratio in self.profile.constants.get(family, {}).items()
                    },
                }
                for family, fit in self.profile.fit.items()
            },
            "constants": {family: dict(values) for family, values in self.profile.constants.items()},
            "findings": [vars(each) for each in self.findings],
        }


def calibrate(path: Path, device: str | None = None, name: str | None = None) -> CalibrationReport:
    """
    Return the profile that fits the rows of one measured file.

    Parameters
    ----------
    path : Path
        CSV in the column form of a measured table; the columns tell which.
    device : str, optional
        Chip of the catalogue, or a device string of the tables; needed where the file holds several.
    name : str, optional
        Name of the profile; device and file where left out.

    Raises
    ------
    TableError
        If rows are of several devices and none is named, of none that is named, or nothing can be fitted.

    Examples
    --------
    `chipfit calibrate measured.csv --device h100_sxm --out h100.toml`
    """
    parts = _of_one_device(path, calibration_rows(path), device)
    chip_id = parts[0].chip_id
    fitted, findings = fit_families(parts)
    if not fitted:
        first = next((each for each in findings if each.refused), Finding("no row can be fitted"))
        raise TableError(first.rule, path.name, first.line)
    profile = Profile(
        name=name or f"{chip_id}-{path.name.removesuffix('.gz').removesuffix('.csv')}",
        device=chip_id,
        constants={family: ratios for each in fitted for family, ratios in each.ratios.items() if ratios},
        tables=tuple(sorted({each.table for each in parts})),
        fit={each.family: each.fit for each in fitted},
    )
    return CalibrationReport(profile, tuple(findings))


@dataclass(frozen=True)
class FittedFamily:
    """Ratios that rows of one operator family give."""

    family: str
    ratios: Mapping[str, Mapping[str, float]]
    fit: FamilyFit


def fit_families(parts: Sequence[FamilyRows]) -> tuple[list[FittedFamily], list[Finding]]:
    """Return the fit of every family that has rows enough, and what was found on the way."""
    fitted, findings = [], []
    for family in dict.fromkeys(part.families[0] for part in parts):
        own = [part for part in parts if part.families[0] == family]
        kept, found = usable_rows(own)
        findings += found
        if not kept:
            continue
        found_family = fit_family(kept)
        fit = found_family.fit
        if max(fit.mape_after, fit.mape_held_out or 0.0) < fit.mape_before:
            fitted.append(found_family)
            continue
        rule = (
            f"{family}: no constants bring the rows nearer ({fit.mape_before:.1%} before, {fit.mape_after:.1%} after, "
            f"{fit.mape_held_out or fit.mape_after:.1%} on shapes left out): the global ones stay"
        )
        findings.append(Finding(rule))
    return fitted, findings


def usable_rows(parts: Sequence[FamilyRows]) -> tuple[list[FamilyRows], list[Finding]]:
    """Rows of one family that can be fitted: impossible ones and those of another unit are named and left out."""
    findings: list[Finding] = []
    kept = []
    for part in parts:
        ratio = part.measured_s / part.predictor(UNCALIBRATED)
        impossible = part.measured_s < IMPOSSIBLE_FRACTION * part.bound_s
        other_unit = (ratio > OTHER_UNIT_RATIO) | (ratio < 1.0 / OTHER_UNIT_RATIO)
        findings += _named(part, impossible & ~other_unit, "{} times faster than the hardware can be: left out",
                           part.bound_s / part.measured_s)  # fmt: skip
        findings += _named(part, other_unit, "{} times the prediction, as a time in another unit is: left out", ratio)
        kept.append(part.take(~(impossible | other_unit)))
    family, n_rows = parts[0].families[0], sum(len(part) for part in kept)
    n_shapes = len(np.unique(np.concatenate([part.shapes for part in kept]), axis=0)) if n_rows else 0
    if n_rows < LEAST_ROWS:
        rule = f"{family} needs at least {LEAST_ROWS} usable rows to be fitted, got {n_rows}"
        return [], [*findings, Finding(rule, refused=True)]
    if n_shapes < LEAST_SHAPES:
        rule = f"{family} needs at least {LEAST_SHAPES} different shapes to be fitted, got {n_shapes}"
        return [], [*findings, Finding(rule, int(kept[0].lines[0]), refused=True)]
    spread = np.concatenate([part.predictor(UNCALIBRATED) for part in kept])
    if spread.max() < NARROW_RATIO * spread.min():
        findings.append(Finding(f"{family}: predicted times span a factor of {spread.max() / spread.min():.1f} only: "
                                "constants of other sizes are not told apart"))  # fmt: skip
    if n_rows < ROWS_PER_CONSTANT * MOST_CONSTANTS:
        findings.append(Finding(f"{family}: {n_rows} rows allow {n_rows // ROWS_PER_CONSTANT} constants at most"))
    return kept, findings


def _named(part: FamilyRows, where: np.ndarray, rule: str, ratio: FloatArray) -> list[Finding]:
    return [
        Finding(f"{part.families[0]}: a time is " + rule.format(f"{ratio[i]:.3g}"), int(part.lines[i]), refused=True)
        for i in np.flatnonzero(where)
    ]


def fit_family(parts: Sequence[FamilyRows]) -> FittedFamily:
    """Return the ratios of one family, with the errors before and after, and on the half of the shapes left out."""
    drawn = [_drawn(part) for part in parts]
    names = _candidates(drawn)
    ratios = _fit(drawn, names)
    calibrated = Calibration(ratios)
    halves = [_halves(part) for part in drawn]
    held_out = None
    if all(len(seen) and len(unseen) for seen, unseen in halves):
        chosen = [(family, name) for family, values in ratios.items() for name in values]
        half = Calibration(_fit([seen for seen, _ in halves], chosen, chosen_already=True))
        held_out = _mape([unseen for _, unseen in halves], half)
    fit = FamilyFit(sum(map(len, parts)), _mape(drawn, UNCALIBRATED), _mape(drawn, calibrated), held_out)
    return FittedFamily(parts[0].families[0], ratios, fit)


def _candidates(parts: Sequence[FamilyRows]) -> list[tuple[str, str]]:
    families = dict.fromkeys(family for part in parts for family in part.families)
    return [(family, name) for family in families for name in calibrated_constants()[family]]


def _fit(
    parts: Sequence[FamilyRows], names: Sequence[tuple[str, str]], *, chosen_already: bool = False
) -> dict[str, dict[str, float]]:
    """Ratios of the constants that matter most, at most `MOST_CONSTANTS` of a family and one for three rows."""
    loss = _Loss(parts)
    point = loss.best(names)
    if not chosen_already:
        allowed = max(sum(map(len, parts)) // ROWS_PER_CONSTANT, 1)
        names = _most_telling(loss, names, point, min(MOST_CONSTANTS, allowed))
        point = loss.best(names)
    return _ratios(names, point)


def _most_telling(
    loss: _Loss, names: Sequence[tuple[str, str]], point: FloatArray, n_kept: int
) -> list[tuple[str, str]]:
    """The constants of each family whose return to the global value costs most."""
    base = loss.cost(names, point)
    cost = {
        each: loss.cost(names, np.where(np.arange(len(names)) == i, 0.0, point)) - base for i, each in enumerate(names)
    }
    kept: list[tuple[str, str]] = []
    for family in dict.fromkeys(family for family, _ in names):
        own = sorted((each for each in names if each[0] == family), key=lambda each: -cost[each])
        kept += [each for each in own[:n_kept] if cost[each] > 0]
    return [each for each in names if each in kept]


def _ratios(names: Sequence[tuple[str, str]], point: FloatArray) -> dict[str, dict[str, float]]:
    """Ratios as a profile states them: four digits, inside their range."""
    limits = [calibrated_constants()[family][name] for family, name in names]
    rounded = [
        min(max(float(f"{ratio:.4g}"), each.low), each.high) for ratio, each in zip(np.exp(point), limits, strict=True)
    ]
    return _nested(names, np.array(rounded))


def _nested(names: Sequence[tuple[str, str]], values: FloatArray) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for (family, name), value in zip(names, values, strict=True):
        found.setdefault(family, {})[name] = float(value)
    return found


class _Loss:
    """Soft-L1 loss of log(predicted / measured), groups by the root of their rows, pulled weakly to 1."""

    def __init__(self, parts: Sequence[FamilyRows]) -> None:
        self._predictors = [part.predictor for part in parts]
        self._log_measured = np.log(np.concatenate([part.measured_s for part in parts]))
        groups = np.concatenate([np.char.add(f"{part.table} ", part.group.astype(str)) for part in parts])
        _, index, count = np.unique(groups, return_inverse=True, return_counts=True)
        self._weight = 1.0 / np.sqrt(np.sqrt(count[index.reshape(-1)]) * np.sqrt(count).sum())

    def residuals(self, names: Sequence[tuple[str, str]], point: FloatArray) -> FloatArray:
        """Weighted residuals of all rows, then of all constants."""
        calibration = Calibration(_nested(names, np.exp(point)), most_constants=len(names))
        predicted = np.concatenate([predict(calibration) for predict in self._predictors])
        scaled = (np.log(predicted) - self._log_measured) / LOSS_SCALE
        soft = np.sign(scaled) * np.sqrt(2.0 * (np.sqrt(1.0 + scaled**2) - 1.0))
        return np.concatenate([soft * self._weight, PRIOR_WEIGHT * point])

    def cost(self, names: Sequence[tuple[str, str]], point: FloatArray) -> float:
        """Half the sum of squares of the residuals."""
        return float(0.5 * np.sum(self.residuals(names, point) ** 2))

    def best(self, names: Sequence[tuple[str, str]]) -> FloatArray:
        """Log ratios of the least loss, shape (n_names,)."""
        limits = [calibrated_constants()[family][name] for family, name in names]
        low, high = np.log([each.low for each in limits]), np.log([each.high for each in limits])
        point = np.clip(np.zeros(len(names)), low + 1e-6, high - 1e-6)
        for step in STEPS:
            point = least_squares(
                lambda x: self.residuals(names, x), point, bounds=(low, high), diff_step=step, max_nfev=25
            ).x
        return np.asarray(point)


def _drawn(part: FamilyRows) -> FamilyRows:
    """At most `MOST_ROWS` of each group, of typical rows where there are enough of them."""
    if part.typical.sum() >= LEAST_ROWS:
        part = part.take(part.typical)
    rng = np.random.default_rng(SEED)
    chosen: list[IntArray] = []
    for group in np.unique(part.group):
        own = np.flatnonzero(part.group == group)
        chosen.append(own if len(own) <= MOST_ROWS else rng.choice(own, MOST_ROWS, replace=False))
    return part.take(np.sort(np.concatenate(chosen)))


def _halves(part: FamilyRows) -> tuple[FamilyRows, FamilyRows]:
    """Rows of a random half of the shapes, and the others."""
    _, shape = np.unique(part.shapes, axis=0, return_inverse=True)
    seen = np.random.default_rng(SEED).permutation(shape.max() + 1)[shape.reshape(-1)] % 2 == 0
    return part.take(seen), part.take(~seen)


def _mape(parts: Sequence[FamilyRows], calibration: Calibration) -> float:
    """Mean absolute error over all rows [1]."""
    predicted = np.concatenate([part.predictor(calibration) for part in parts])
    return float(np.mean(np.abs(predicted / np.concatenate([part.measured_s for part in parts]) - 1.0)))


def _of_one_device(path: Path, parts: Sequence[FamilyRows], device: str | None) -> list[FamilyRows]:
    """Rows of the named device; without a name all must be of one."""
    present = sorted({part.chip_id for part in parts})
    if device is None:
        if len(present) > 1:
            first = min(int(part.lines[0]) for part in parts if part.chip_id != parts[0].chip_id)
            rule = f"rows must be of one device, got {', '.join(present)}: name one with --device"
            raise TableError(rule, path.name, first, "device")
        return list(parts)
    chip_id = chip_of_device().get(device, device)
    own = [part for part in parts if part.chip_id == chip_id]
    if not own:
        raise TableError(f"no row is of device {device}, got {', '.join(present)}", path.name, None, "device")
    return own
