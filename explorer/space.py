"""The design space: parameters, their allowed values, and designs made of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from explorer.document import StudyError
from models.checks import FloatArray, IntArray, UnknownNameError, require_known
from models.hardware.design import DesignBatch, MemoryKind, SecondTier, Stationarity, checked_columns
from models.hardware.memory import memory_bandwidth_bytes_per_s, memory_capacity_bytes, memory_kind, memory_table

KIB, MIB = 1024.0, 1024.0**2
MEMORY_KINDS = [kind.name.lower() for kind in MemoryKind if kind is not MemoryKind.NONE]
"""Kinds that a searched design may have: without any main memory nothing has a bandwidth."""

RATE_DOUBLING = {"int8": 2.0, "fp8": 2.0, "fp4": 4.0}
"""Rate over bf16 of the formats a searched array may add: it doubles each time the width halves."""


MOST_VALUES = 256
"""Values of one parameter: local searches judge all pairs of some two."""

MOST_DESIGNS = 1e24
"""Designs of a space: the full one holds 1e13, and beyond this neither trials nor boxes say anything of it."""

JOINED = ("stationarity", "array_groups", "memory_kind")
"""Categories of which bounds take the best: for the cycles of each product, for bandwidth, capacity and each cost."""


@dataclass(frozen=True)
class Parameter:
    """
    One free choice: its allowed values as written in a study, and whether more of it is a larger resource.

    `ordered` parameters rise along `values`; the others are categories that a proof must enumerate, save the
    `joined` ones, of which a bound may take the best for every operator.
    """

    name: str
    unit: str
    values: tuple[Any, ...]
    ordered: bool

    @property
    def joined(self) -> bool:
        """Whether a box may hold several values of this category."""
        return self.name in JOINED


@dataclass(frozen=True)
class _Declaration:
    unit: str
    ordered: bool
    check: Callable[[Any], Any]
    order: Callable[[Any], Any] | None = None
    """By what the values of a category are sorted, so that neighbours are alike."""


def _number(minimum: float, maximum: float) -> Callable[[Any], float]:
    def check(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"must be a number, got {value!r}")
        if not minimum <= value <= maximum:
            raise ValueError(f"must lie between {minimum:g} and {maximum:g}, got {str(value)[:20]}")
        return value

    return check


def _integer(minimum: int, maximum: int) -> Callable[[Any], int]:
    number = _number(minimum, maximum)

    def check(value: Any) -> int:
        if number(value) != int(value):
            raise ValueError(f"must be a whole number, got {value:g}")
        return int(value)

    return check


def _array_shape(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or len(value) != 3:
        raise ValueError(f"must be three sizes [m, n, k], got {value!r}")
    return tuple(_integer(1, 1024)(size) for size in value)


def _formats(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or "bf16" not in value:
        raise ValueError(f"must be a list that holds bf16, got {value!r}")
    return tuple(require_known("native format", name, {"bf16", *RATE_DOUBLING}) for name in value)


def _name_of(kind: str, known: Sequence[str]) -> Callable[[Any], str]:
    return lambda value: require_known(kind, str(value), known)


def _family_and_speed(kind: str) -> tuple[bool, float]:
    """Stacked memories after the others, each by bandwidth."""
    code = memory_kind(kind)
    return bool(memory_table()["hbm"][code]), float(memory_table()["bandwidth_bytes_per_s"][code])


DECLARED: Mapping[str, _Declaration] = {
    "array_shape": _Declaration("m x n x k", False, _array_shape),
    "stationarity": _Declaration("", False, _name_of("stationarity", [s.name.lower() for s in Stationarity])),
    "array_groups": _Declaration("1", False, _integer(1, 64), order=int),
    "arrays_per_core": _Declaration("1", True, _integer(1, 64)),
    "n_cores": _Declaration("1", True, _integer(1, 4096)),
    "clock": _Declaration("GHz", True, _number(0.05, 5)),
    "vector_lanes_per_core": _Declaration("1", True, _integer(1, 65_536)),
    "scratchpad_per_core": _Declaration("KiB", True, _number(1, 2**20)),
    "l2": _Declaration("MiB", True, _number(0, 65_536)),
    "noc_per_core": _Declaration("B/cycle", True, _number(1, 65_536)),
    "memory_kind": _Declaration("", False, _name_of("memory kind", MEMORY_KINDS), order=_family_and_speed),
    "memory_stacks": _Declaration("1", True, _integer(1, 64)),
    "second_tier": _Declaration("", False, _name_of("second tier", [t.name.lower() for t in SecondTier])),
    "scale_up_link": _Declaration("GB/s", True, _number(0, 100_000)),
    "scale_out_link": _Declaration("GB/s", True, _number(0, 100_000)),
    "native_formats": _Declaration("", False, _formats),
}


@dataclass(frozen=True)
class Space:
    """All parameters in a fixed order; a point is one index into each parameter's values."""

    parameters: tuple[Parameter, ...]

    @property
    def n_designs(self) -> int:
        """Number of points."""
        return int(np.prod([float(len(p.values)) for p in self.parameters], dtype=object))

    @property
    def split_axes(self) -> IntArray:
        """Positions of the parameters of which a box may hold several values."""
        several = [(p.ordered or p.joined) and len(p.values) > 1 for p in self.parameters]
        return np.flatnonzero(several)

    @property
    def sizes(self) -> IntArray:
        """Number of values of each parameter, shape (n_parameters,)."""
        return np.array([len(p.values) for p in self.parameters])


@functools.cache
def full_space() -> Mapping[str, Any]:
    """The space that `space: full` names, as written in its file."""
    document: Mapping[str, Any] = yaml.safe_load((Path(__file__).parent / "data" / "space-full.yaml").read_text())
    return document


def read_space(document: Any) -> Space:
    """
    Return the space of a study: `full`, or a mapping that narrows or fixes rows of it.

    Raises
    ------
    StudyError
        With a pointer to every row that is unknown, empty, repeated, too long or outside its range, or if the space is
        larger than any search tells of.
    """
    stated = {} if document == "full" else dict(document)
    base = stated.pop("base", "full")
    if base != "full":
        raise StudyError([{"pointer": "/space/base", "detail": f"must be 'full', got {base!r}"}])
    faults: list[dict[str, str]] = []
    rows = dict(full_space())
    for name, values in stated.items():
        if name not in DECLARED:
            try:
                require_known("space parameter", str(name), DECLARED)
            except UnknownNameError as error:
                faults.append({"pointer": f"/space/{name}", "detail": str(error)})
        rows[name] = values
    parameters = [_parameter(name, rows[name], faults) for name in DECLARED]
    space = Space(tuple(parameters))
    if space.n_designs > MOST_DESIGNS:
        detail = f"must hold at most {MOST_DESIGNS:.0e} designs, got {float(space.n_designs):.1e}: {_largest(space)}"
        faults.insert(0, {"pointer": "/space", "detail": detail})
    if not faults:
        faults = _uneven_groups(space)
    if faults:
        raise StudyError(faults)
    return space


def _uneven_groups(space: Space) -> list[dict[str, str]]:
    """The first fault of groups that do not divide the outputs of an array of the space."""
    values = {p.name: p.values for p in space.parameters}
    return [
        {
            "pointer": "/space/array_groups",
            "detail": f"must divide array_m x array_n, got {groups} groups of {shape[0]} x {shape[1]}",
        }
        for groups in values["array_groups"]
        for shape in values["array_shape"]
        if shape[0] * shape[1] % groups
    ][:1]


def _largest(space: Space) -> str:
    """What to narrow: the three parameters with the most values."""
    most = sorted(space.parameters, key=lambda p: -len(p.values))[:3]
    return "narrow " + ", ".join(f"{p.name} ({len(p.values)} values)" for p in most)


def _parameter(name: str, values: Any, faults: list[dict[str, str]]) -> Parameter:
    """Check the values of one row; a single value fixes it."""
    declared = DECLARED[name]
    single = not isinstance(values, list) or (
        name in ("array_shape", "native_formats") and bool(values) and not isinstance(values[0], list)
    )
    listed = [values] if single else values
    if len(listed) > MOST_VALUES:
        detail = f"must hold at most {MOST_VALUES} values, got {len(listed)}"
        faults.append({"pointer": f"/space/{name}", "detail": detail})
    checked: list[Any] = []
    for i, value in enumerate(listed):
        try:
            checked.append(declared.check(value))
        except (ValueError, LookupError) as error:
            faults.append({"pointer": f"/space/{name}/{i}", "detail": str(error)})
    if not listed:
        faults.append({"pointer": f"/space/{name}", "detail": "must hold at least one value"})
    if len(set(checked)) != len(checked):
        faults.append({"pointer": f"/space/{name}", "detail": "must not repeat a value"})
    if declared.ordered or (declared.order and not faults):
        checked = sorted(checked, key=declared.order)
    return Parameter(name, declared.unit, tuple(checked), declared.ordered)


def designs_at(space: Space, points: IntArray, *, node_nm: float, tdp_w: float) -> DesignBatch:
    """
    Return the designs at `points`.

    Parameters
    ----------
    space : Space
    points : array of shape (n_designs, n_parameters)
        Index of the value of each parameter.
    node_nm, tdp_w : float
        Process of the die [nm] and power cap [W] of the study.
    """
    column = {p.name: _column(p, points[:, i]) for i, p in enumerate(space.parameters)}
    shape = column["array_shape"]
    kind, stacks = column["memory_kind"], column["memory_stacks"]
    rates = column["native_formats"]
    return checked_columns(
        len(points),
        node_nm=node_nm,
        tdp_w=tdp_w,
        array_m=shape[:, 0],
        array_n=shape[:, 1],
        array_k=shape[:, 2],
        stationarity=column["stationarity"],
        array_groups=column["array_groups"],
        arrays_per_core=column["arrays_per_core"],
        n_cores=column["n_cores"],
        clock_hz=column["clock"] * 1e9,
        vector_lanes_per_core=column["vector_lanes_per_core"],
        scratchpad_bytes_per_core=column["scratchpad_per_core"] * KIB,
        l2_bytes=column["l2"] * MIB,
        noc_bytes_per_cycle_per_core=column["noc_per_core"],
        memory_kind=kind,
        memory_stacks=stacks,
        memory_bandwidth_bytes_per_s=memory_bandwidth_bytes_per_s(kind, stacks),
        memory_capacity_bytes=memory_capacity_bytes(kind, stacks),
        second_tier=column["second_tier"],
        scale_up_bytes_per_s=column["scale_up_link"] * 1e9,
        scale_out_bytes_per_s=column["scale_out_link"] * 1e9,
        int8_rate_ratio=rates[:, 0],
        fp8_rate_ratio=rates[:, 1],
        fp4_rate_ratio=rates[:, 2],
    )


def _column(parameter: Parameter, index: IntArray) -> FloatArray:
    """Numbers of one parameter's values at `index`."""
    return _numeric_array(parameter)[index]


@functools.lru_cache(maxsize=256)
def _numeric_array(parameter: Parameter) -> FloatArray:
    """Values of one parameter as numbers, shape (n_values,) or (n_values, n_parts)."""
    return np.array(numeric_values(parameter), dtype=np.float64)


@functools.lru_cache(maxsize=256)
def numeric_values(parameter: Parameter) -> tuple[Any, ...]:
    """Values of one parameter as numbers: codes for names, rates for formats, sizes for shapes."""
    codes: Mapping[str, Callable[[Any], Any]] = {
        "stationarity": lambda v: int(Stationarity[v.upper()]),
        "second_tier": lambda v: int(SecondTier[v.upper()]),
        "memory_kind": lambda v: int(memory_kind(v)),
        "native_formats": lambda v: tuple(RATE_DOUBLING[f] if f in v else 0.0 for f in ("int8", "fp8", "fp4")),
    }
    return tuple(codes.get(parameter.name, lambda v: v)(value) for value in parameter.values)


def values_at(space: Space, point: IntArray) -> dict[str, Any]:
    """One point as parameter name -> value as written in a study (lists for shapes and formats)."""
    written = {p.name: p.values[int(i)] for p, i in zip(space.parameters, point, strict=True)}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in written.items()}


def point_of(space: Space, values: Mapping[str, Any]) -> IntArray:
    """The inverse of `values_at`; a value outside the space is an error that names it."""
    point = []
    for p in space.parameters:
        value = values[p.name]
        key = tuple(value) if isinstance(value, list) else value
        if key not in p.values:
            raise ValueError(f"{p.name} must be one of the space's values, got {value!r}")
        point.append(p.values.index(key))
    return np.array(point)
