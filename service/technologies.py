"""Technology values as plain data: everything that rows of a study's `technology.overlay` may replace."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from models.tables import DATA, read_rows
from models.technology import FAB_GAS_VARIANT, GROUPS, MEMORY_UNITS, default_technology


@functools.cache
def technology_documents() -> dict[str, dict[str, Any]]:
    """Every quantity by node, constant and property of memory kinds by name, with unit and sources."""
    return {each["id"]: each for each in (*_by_node(), *_constants(), *_by_memory_kind())}


def _by_node() -> Iterator[dict[str, Any]]:
    rows = [*read_rows(DATA / "technology.csv"), *read_rows(DATA / "cost.csv")]
    for name, curve in default_technology().curves.items():
        own = [row for row in rows if row["quantity"] == name and row["node_nm"]]
        used = [row for row in own if name != "fab_gas" or row["variant"] == FAB_GAS_VARIANT]
        points = zip(curve.node_nm.tolist(), curve.value.tolist(), strict=True)
        values = [{"node_nm": node, "variant": None, "value": value} for node, value in points]
        yield _document(name, "by_node", curve.unit, values, {row["source"] for row in used})


def _constants() -> Iterator[dict[str, Any]]:
    for group in GROUPS:
        for row in read_rows(DATA / "constants" / f"{group}.csv"):
            value = {"node_nm": None, "variant": None, "value": float(row["value"])}
            yield _document(row["name"], group, row["unit"], [value], {row["source"]}, row["note"])


def _by_memory_kind() -> Iterator[dict[str, Any]]:
    rows = [row for row in read_rows(DATA / "memory_kinds.csv") if row["kind"] != "none"]
    for name, unit in MEMORY_UNITS.items():
        values = [{"node_nm": None, "variant": row["kind"], "value": float(row[name])} for row in rows]
        yield _document(name, "by_memory_kind", unit, values, {row["source"] for row in rows})


def _document(
    name: str, group: str, unit: str, values: list[dict[str, Any]], sources: set[str], note: str = ""
) -> dict[str, Any]:
    return {"id": name, "group": group, "unit": unit, "values": values, "sources": sorted(sources), "note": note}
