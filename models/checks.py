"""Checks at the edge of the model: each names the quantity, the rule with its unit, what came and where."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


class UnknownNameError(LookupError):
    """A name that is in no catalogue; the message suggests the nearest known ones."""


def require_finite(name: str, values: ArrayLike, unit: str) -> FloatArray:
    """Return `values` as float64, refusing NaN and infinities."""
    return _require(name, values, np.isfinite, f"a finite number of {unit}" if unit else "a finite number")


def require_positive(name: str, values: ArrayLike, unit: str) -> FloatArray:
    """Return `values` as float64, refusing anything not finite and above zero."""
    return _require(name, values, lambda v: np.isfinite(v) & (v > 0), _with_unit("positive", unit))


def require_non_negative(name: str, values: ArrayLike, unit: str) -> FloatArray:
    """Return `values` as float64, refusing anything not finite and at least zero."""
    return _require(name, values, lambda v: np.isfinite(v) & (v >= 0), _with_unit("zero or positive", unit))


def require_fraction(name: str, values: ArrayLike) -> FloatArray:
    """Return `values` as float64, refusing anything outside 0..1."""
    return _require(name, values, lambda v: (v >= 0) & (v <= 1), "between 0 and 1")


def require_at_least(name: str, values: ArrayLike, minimum: float, unit: str = "") -> FloatArray:
    """Return `values` as float64, refusing anything not finite or below `minimum`."""
    return _require(name, values, lambda v: np.isfinite(v) & (v >= minimum), _with_unit(f"at least {minimum:g}", unit))


def require_known(kind: str, name: str, known: Iterable[str]) -> str:
    """Return `name` if it is one of `known`, else raise with a suggestion and the whole list."""
    listed_once = known if isinstance(known, Collection) else list(known)
    if isinstance(name, str) and name in listed_once:
        return name
    names = sorted(listed_once)
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    suggestion = f", did you mean '{near[0]}'?" if near else ""
    listed = ", ".join(names[:40]) + (f", ... ({len(names)} in all)" if len(names) > 40 else "")
    raise UnknownNameError(f"unknown {kind} '{name}'{suggestion} known: {listed}")


def _with_unit(rule: str, unit: str) -> str:
    return f"{rule} [{unit}]" if unit else rule


def _require(name: str, values: ArrayLike, holds, rule: str) -> FloatArray:  # type: ignore[no-untyped-def]
    array = np.asarray(values, dtype=np.float64)
    good = holds(array)
    if good.all():
        return array
    flat = np.flatnonzero(~good.ravel())
    value = array.ravel()[flat[0]]
    where = "" if array.ndim == 0 else f" at index {flat[0]} ({flat.size} of {array.size} entries)"
    raise ValueError(f"{name} must be {rule}, got {value:g}{where}")
