"""Technology by node and the fitted constants of area, energy, power and cost, with a private overlay on top."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike

from models.checks import BoolArray, FloatArray, require_known, require_positive
from models.tables import DATA, constants, read_rows

GROUPS = ("area", "energy", "power", "cost")
"""Tables of `models/data/constants` that an overlay may change."""

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
    digest: str

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

    def with_constant(self, group: str, name: str, value: float) -> Technology:
        """Return the same technology with one constant exchanged, as a flip distance or a sensitivity needs."""
        group_values = self.constants[require_known("group of constants", group, self.constants)]
        require_known(f"constant of {group}", name, group_values)
        changed = dict(self.constants) | {group: MappingProxyType(dict(group_values) | {name: value})}
        return _technology(self.curves, changed, self.overlay)


@functools.cache
def default_technology() -> Technology:
    """
    Return the shipped technology.

    Examples
    --------
    >>> float(default_technology().at_node("energy_scale_used", 7.0))
    1.0
    """
    return _technology(_curves(()), {group: constants(group) for group in GROUPS}, ())


def load_technology(overlay: Path | None = None) -> Technology:
    """
    Return the shipped technology with the rows of an overlay file before its own.

    Parameters
    ----------
    overlay : Path, optional
        CSV with the columns of `technology.csv`. A row with a node replaces that node of its quantity; a row
        without a node replaces the constant of that name.

    Raises
    ------
    UnknownNameError
        If a row names no quantity or constant of the model.
    ValueError
        If a column is missing, a value is no positive number, or a row lacks its unit or source.
    """
    if overlay is None:
        return default_technology()
    rows = _checked_overlay(overlay)
    changed = {group: dict(constants(group)) for group in GROUPS}
    curve_rows = []
    for row in rows:
        if row["node_nm"]:
            require_known("technology quantity", row["quantity"], default_technology().curves)
            curve_rows.append(row)
            continue
        names = {name for values in changed.values() for name in values}
        require_known("technology constant", row["quantity"], names)
        for values in changed.values():
            if row["quantity"] in values:
                values[row["quantity"]] = float(row["value"])
    return _technology(_curves(curve_rows), changed, tuple(MappingProxyType(row) for row in rows))


def _checked_overlay(path: Path) -> list[dict[str, str]]:
    rows = read_rows(path)
    for line, row in enumerate(rows, start=2):
        for column in COLUMNS:
            if row.get(column) is None or (column not in ("node_nm", "variant") and not row[column].strip()):
                raise ValueError(f"{path.name} row {line}: {column} must not be empty")
        try:
            positive = float(row["value"]) > 0
        except ValueError:
            positive = False
        if not positive:
            raise ValueError(f"{path.name} row {line}: value must be a positive number, got '{row['value']}'")
    return rows


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
    content = {
        "curves": {name: [curve.node_nm.tolist(), curve.value.tolist()] for name, curve in curves.items()},
        "constants": {group: dict(values) for group, values in groups.items()},
    }
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    frozen = MappingProxyType({group: MappingProxyType(dict(values)) for group, values in groups.items()})
    return Technology(curves, frozen, overlay, digest)
