"""Calibration profiles: named sets of ratios with what they were fitted to, as TOML and as plain data."""

from __future__ import annotations

import fnmatch
import functools
import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from models.checks import require_known
from models.operators.calibration import Calibration, calibrated_constants
from models.tables import DATA

PROFILES = DATA / "profiles"
FIELDS = ("name", "device", "tables", "constants", "fit", "note")


@dataclass(frozen=True)
class FamilyFit:
    """How well one family of a profile fits: rows and mean absolute errors, fractions."""

    rows: int
    mape_before: float
    mape_after: float
    mape_held_out: float | None
    """Of shapes that a fit to the other half of them did not see; None where there are too few."""


@dataclass(frozen=True)
class Profile:
    """Ratios by family and name, the device they belong to, and the tables whose rows they were fitted to."""

    name: str
    device: str
    constants: Mapping[str, Mapping[str, float]]
    tables: tuple[str, ...] = ()
    """Globs of the file names of the tables that it describes."""
    fit: Mapping[str, FamilyFit] = field(default_factory=dict)
    note: str = ""

    @functools.cached_property
    def calibration(self) -> Calibration:
        """Constants of the operator model under this profile."""
        return Calibration(self.constants)


def profile_from_document(document: Any) -> Profile:
    """
    Return the profile in plain data: {name, device, constants: {family: {name: ratio}}} and what it was fitted to.

    Raises
    ------
    ValueError, LookupError
        With the field at fault, if one is missing or unknown, or a ratio is not positive and in its range.
    """
    if not isinstance(document, Mapping):
        raise ValueError(f"a profile must be a mapping, got {type(document).__name__}")
    for name in document:
        require_known("field of a profile", str(name), FIELDS)
    name, device = (_text(document, key) for key in ("name", "device"))
    constants = document.get("constants")
    if not isinstance(constants, Mapping) or not constants:
        raise ValueError("constants must map a family to its ratios")
    profile = Profile(
        name=name,
        device=device,
        constants={str(family): _ratios(str(family), values) for family, values in constants.items()},
        tables=tuple(str(each) for each in document.get("tables", ())),
        fit={str(family): FamilyFit(**values) for family, values in document.get("fit", {}).items()},
        note=str(document.get("note", "")),
    )
    profile.calibration  # noqa: B018  refuses unknown names and ratios out of range
    return profile


def profile_document(profile: Profile) -> dict[str, Any]:
    """The profile as plain data, in the form that `profile_from_document` reads."""
    fits = {family: {key: value for key, value in vars(fit).items() if value is not None} for family, fit in
            profile.fit.items()}  # fmt: skip
    for values in fits.values():
        values.setdefault("mape_held_out", None)
    return {
        "name": profile.name,
        "device": profile.device,
        "tables": list(profile.tables),
        "note": profile.note,
        "constants": {family: dict(values) for family, values in profile.constants.items()},
        "fit": fits,
    }


def read_profile(path: Path) -> Profile:
    """
    Read a profile file (TOML).

    Raises
    ------
    ValueError, LookupError
        If it is no profile; the message names the file.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path.name}: a profile must be TOML: {error}") from None
    document["fit"] = {
        family: {"mape_held_out": None, **values} for family, values in dict(document.get("fit", {})).items()
    }
    try:
        return profile_from_document(document)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path.name}: {error}") from None


def profile_text(profile: Profile) -> str:
    """Return the profile as TOML; each constant with what it scales."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in (
        ("name", profile.name), ("device", profile.device), ("tables", list(profile.tables)), ("note", profile.note),
    )]  # fmt: skip
    for family, values in profile.constants.items():
        lines += ["", f"[constants.{family}]"]
        for name, ratio in values.items():
            lines.append(f"{name} = {ratio:.4g}  # {calibrated_constants()[family][name].meaning}")
    for family, fit in profile.fit.items():
        lines += ["", f"[fit.{family}]"]
        lines += [
            f"{key} = {value if isinstance(value, int) else f'{value:.4f}'}"
            for key, value in vars(fit).items()
            if value is not None
        ]
    return "\n".join(lines) + "\n"


@functools.cache
def shipped_profiles() -> Mapping[str, Profile]:
    """Return the profiles of the devices of the measured tables, by name."""
    return {path.stem: read_profile(path) for path in sorted(PROFILES.glob("*.toml"))}


def shipped_profile(name: str) -> Profile:
    """
    Return a shipped profile.

    Raises
    ------
    UnknownNameError
        If there is none of that name.
    """
    return shipped_profiles()[require_known("profile", name, shipped_profiles())]


def profile_of_rows(table: str, chip_id: str) -> Profile | None:
    """Return the shipped profile of a device as a table measured it, or None."""
    for profile in shipped_profiles().values():
        if profile.device == chip_id and any(fnmatch.fnmatch(table, glob) for glob in profile.tables):
            return profile
    return None


def _text(document: Mapping[str, Any], key: str) -> str:
    value = document.get(key)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{key} must be a name, got {value!r}")
    return value


def _ratios(family: str, values: Any) -> dict[str, float]:
    if not isinstance(values, Mapping):
        raise ValueError(f"constants of {family} must map a name to its ratio")
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"{family}.{name} must be a positive number, got {value!r}")
    return {str(name): float(value) for name, value in values.items()}
