"""Technology by node and the fitted constants of area, energy, power and cost, with a private overlay on top."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from models.checks import BoolArray, FloatArray, UnknownNameError, require_known, require_positive
from models.tables import DATA, constants, read_rows

GROUPS = ("area", "energy", "power", "cost")
"""Tables of `models/data/constants` that an overlay may change."""

MEMORY = "memory"
MEMORY_UNITS: Mapping[str, str] = {
    "device_energy_j_per_bit": "J/bit", "edge_mm": "mm", "phy_area_mm2": "mm2", "controller_area_mm2": "mm2",
    "price_usd_per_byte": "USD/B", "embodied_kgco2e_per_byte": "kg/B",
}  # fmt: skip
"""Columns of `memory_kinds.csv` that an overlay may change, by kind; each is a constant `column:kind` of `memory`."""

FAB_GAS_VARIANT = "95% abatement"
COLUMNS = ("quantity", "node_nm", "variant", "value", "unit", "source")


@dataclass(frozen=True)
class Curve:
    """One quantity over the process node: nodes rising [nm], values of one unit, all positive."""

    node_nm: FloatArray
    value: FloatArray
    unit: str

    def at(self, node_nm: ArrayLike) -> FloatArray:
        """Return the value at each node inside the table, in the curve's unit."""
        return np.exp(np.interp(np.log(node_nm), np.log(self.node_nm), np.log(self.value)))


@dataclass(frozen=True)
class Technology:
    """
    Everything that area, energy, power and cost take as given.

    `digest` is a hash of all values, so that a result can say which technology it used; `overlay` echoes the rows
    that replaced shipped ones.
    """

    curves: Mapping[str, Curve]
    constants: Mapping[str, Mapping[str, float]]
    overlay: tuple[Mapping[str, str], ...]

    @functools.cached_property
    def digest(self) -> str:
        """Hash of all values."""
        content = {
            "curves": {name: [curve.node_nm.tolist(), curve.value.tolist()] for name, curve in self.curves.items()},
            "constants": {group: dict(values) for group, values in self.constants.items()},
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def at_node(self, quantity: str, node_nm: ArrayLike) -> FloatArray:
        """
        Return a quantity at each node, interpolated in the logarithms between the rows of its table.

        Raises
        ------
        UnknownNameError
            If no table has the quantity.
        ValueError
            If a node lies outside the table.
        """
        curve = self.curves[require_known("technology quantity", quantity, self.curves)]
        nodes = require_positive("node_nm", node_nm, "nm")
        low, high = curve.node_nm[0], curve.node_nm[-1]
        outside = (nodes < low) | (nodes > high)
        if outside.any():
            worst = np.atleast_1d(nodes)[np.flatnonzero(np.atleast_1d(outside))[0]]
            raise ValueError(f"node_nm must be between {low:g} and {high:g} nm for {quantity}, got {worst:g}")
        if nodes.size > 1 and (nodes == nodes.flat[0]).all():
            return np.full(nodes.shape, curve.at(nodes.flat[0]))
        return np.asarray(curve.at(nodes))

    def is_interpolated(self, node_nm: ArrayLike) -> BoolArray:
        """Return whether any quantity of the model lacks a row of its own at each node, shape of `node_nm`."""
        nodes = np.asarray(node_nm, dtype=np.float64)
        return np.asarray(np.stack([~np.isin(nodes, curve.node_nm) for curve in self.curves.values()]).any(axis=0))

    def interpolated_quantities(self, node_nm: float) -> list[str]:
        """Return the quantities that have no row of their own at a node, by name."""
        return sorted(name for name, curve in self.curves.items() if node_nm not in curve.node_nm)

    def with_constant(self, group: str, name: str, value: float) -> Technology:
        """Return the same technology with one constant exchanged, as a flip distance or a sensitivity needs."""
        group_values = self.constants[require_known("group of constants", group, self.constants)]
        require_known(f"constant of {group}", name, group_values)
        changed = dict(self.constants) | {group: MappingProxyType(dict(group_values) | {name: value})}
        return _technology(self.curves, changed, self.overlay)

    def with_constants_of_each(self, group: str, changed: Mapping[str, FloatArray]) -> Technology:
        """
        Return the same technology with constants that each design has its own values of, shape (n_designs,).

        It holds for one batch of designs, whose formulas must use these constants element by element.
        """
        values: dict[str, float] = dict(self.constants[require_known("group of constants", group, self.constants)])
        for name in changed:
            require_known(f"constant of {group}", name, values)
        groups = dict(self.constants) | {group: values | cast(dict[str, float], changed)}
        return _technology(self.curves, groups, self.overlay)

    def with_scaled_curve(self, quantity: str, factor: float) -> Technology:
        """Return the same technology with one quantity times a factor at every node."""
        curve = self.curves[require_known("technology quantity", quantity, self.curves)]
        scaled = Curve(curve.node_nm, curve.value * factor, curve.unit)
        return _technology(MappingProxyType(dict(self.curves) | {quantity: scaled}), self.constants, self.overlay)


@functools.cache
def default_technology() -> Technology:
    """
    Return the shipped technology.

    Examples
    --------
    >>> float(default_technology().at_node("energy_scale_used", 7.0))
    1.0
    """
    return _technology(_curves(()), _shipped_constants(), ())


def load_technology(overlay: Path | None = None) -> Technology:
    """
    Return the shipped technology with the rows of an overlay file before its own.

    Parameters
    ----------
    overlay : Path, optional
        CSV with the columns of `technology.csv`; see `technology_with`.

    Raises
    ------
    UnknownNameError, ValueError
        If a row is bad, with file and row.
    """
    return default_technology() if overlay is None else technology_with(read_rows(overlay), overlay.name)


def technology_with(rows: Sequence[Mapping[str, str]], name: str = "overlay") -> Technology:
    """
    Return the shipped technology with some rows replaced.

    Parameters
    ----------
    rows : sequence of mappings
        Each with quantity, value, unit and source as text. With a node it replaces that node of its quantity; with a
        `variant` that names a kind of memory it replaces that kind's column of `memory_kinds.csv`; otherwise it
        replaces the constant of that name.
    name : str
        What messages call the rows; the first one is row 2, as in a file with a header.

    Raises
    ------
    UnknownNameError
        If a row names no quantity or constant of the model.
    ValueError
        If a column is missing, a value is no positive number, a unit is another one, or a row lacks its source.

    Examples
    --------
    >>> row = {"quantity": "utilization", "value": "0.9", "unit": "1", "source": "own fleet"}
    >>> technology_with([row]).constants["cost"]["utilization"]
    0.9
    """
    changed = {group: dict(values) for group, values in _shipped_constants().items()}
    curve_rows = []
    for line, row in enumerate(rows, start=2):
        try:
            _check_row(row)
            if (row.get("node_nm") or "").strip():
                _positive("node_nm", row["node_nm"])
                curve = default_technology().curves[_known_curve(row["quantity"])]
                _same_unit(row["unit"], curve.unit)
                curve_rows.append(row)
            else:
                group, constant = _constant_of(row)
                changed[group][constant] = float(row["value"])
        except UnknownNameError as error:
            raise UnknownNameError(f"{name} row {line}: {error}") from None
        except ValueError as error:
            raise ValueError(f"{name} row {line}: {error}") from None
    echo = tuple(MappingProxyType({c: str(row.get(c) or "") for c in COLUMNS}) for row in rows)
    return _technology(_curves(curve_rows), changed, echo)


def _known_curve(quantity: str) -> str:
    return require_known("technology quantity", quantity, default_technology().curves)


def _constant_of(row: Mapping[str, str]) -> tuple[str, str]:
    """Group and name of the constant that a row without a node replaces."""
    quantity, variant = row["quantity"], (row.get("variant") or "").strip().lower()
    shipped = _shipped_constants()
    if quantity in MEMORY_UNITS:
        kinds = [key.split(":")[1] for key in shipped[MEMORY] if key.startswith(f"{quantity}:")]
        _same_unit(row["unit"], MEMORY_UNITS[quantity])
        return MEMORY, f"{quantity}:{require_known('variant (kind of memory)', variant, kinds)}"
    if quantity in default_technology().curves:
        raise ValueError("node_nm must not be empty for a quantity by node")
    groups = {name: group for group in GROUPS for name in shipped[group]}
    group = groups[require_known("technology constant", quantity, groups)]
    _same_unit(row["unit"], _constant_units()[group, quantity])
    return group, quantity


def _check_row(row: Mapping[str, str]) -> None:
    for column in ("quantity", "value", "unit", "source"):
        if not (row.get(column) or "").strip():
            raise ValueError(f"{column} must not be empty")
    _positive("value", row["value"])


def _positive(name: str, text: str) -> None:
    try:
        valid = 0 < float(text) < float("inf")
    except ValueError:
        valid = False
    if not valid:
        raise ValueError(f"{name} must be a positive number, got '{text}'")


def _same_unit(got: str, unit: str) -> None:
    if got.strip() != unit:
        raise ValueError(f"unit must be {unit}, got '{got.strip()}'")


@functools.cache
def _shipped_constants() -> Mapping[str, Mapping[str, float]]:
    memory = {
        f"{column}:{row['kind']}": float(row[column])
        for row in read_rows(DATA / "memory_kinds.csv") if row["kind"] != "none" for column in MEMORY_UNITS
    }  # fmt: skip
    return {group: constants(group) for group in GROUPS} | {MEMORY: MappingProxyType(memory)}


@functools.cache
def _constant_units() -> Mapping[tuple[str, str], str]:
    return {(g, row["name"]): row["unit"] for g in GROUPS for row in read_rows(DATA / "constants" / f"{g}.csv")}


def _curves(first: Iterable[Mapping[str, str]]) -> Mapping[str, Curve]:
    """The quantities the model reads; of several rows at one node the first counts."""
    used = {"area_model_logic_density", "sram_bitcell", "energy_scale_used",
            "wafer_price_used", "defect_density_used", "fab_energy", "fab_gas"}  # fmt: skip
    points: dict[str, dict[float, float]] = {}
    units: dict[str, str] = {}
    rows = [*first, *read_rows(DATA / "technology.csv"), *read_rows(DATA / "cost.csv")]
    for row in rows:
        name = row["quantity"]
        if name not in used or not row["node_nm"] or (name == "fab_gas" and row["variant"] != FAB_GAS_VARIANT):
            continue
        points.setdefault(name, {}).setdefault(float(row["node_nm"]), float(row["value"]))
        units.setdefault(name, row["unit"])
    return MappingProxyType({
        name: Curve(np.array(sorted(by_node)), np.array([by_node[node] for node in sorted(by_node)]), units[name])
        for name, by_node in points.items()
    })  # fmt: skip


def _technology(
    curves: Mapping[str, Curve],
    groups: Mapping[str, Mapping[str, float]],
    overlay: tuple[Mapping[str, str], ...],
) -> Technology:
    frozen = MappingProxyType({group: MappingProxyType(dict(values)) for group, values in groups.items()})
    return Technology(curves, frozen, overlay)
