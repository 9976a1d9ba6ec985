"""Real dies as targets of the area model: measured area or bounds of each chip of a table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from models.checks import FloatArray
from models.hardware.catalog import chip_designs, chip_rows
from models.hardware.datasheet import has_peak, number
from models.hardware.design import DesignBatch
from models.technology import default_technology

UPPER_BOUND_FRACTION = 0.85
"""An area known only as 'less than' is read as between this share of the number and the number."""


@dataclass(frozen=True)
class DieRows:
    """Chips with a known die area: one entry per chip, areas of all dies the model describes."""

    ids: tuple[str, ...]
    die: tuple[str, ...]
    """Same silicon, same text; products of one die are left out together."""
    vendor: tuple[str, ...]
    designs: DesignBatch
    low_mm2: FloatArray
    high_mm2: FloatArray
    unofficial: FloatArray
    """1 where area or counts come from memory or secondary pages."""
    skipped: tuple[tuple[str, str], ...]
    """Chip and why it is not scored."""

    @property
    def weight(self) -> FloatArray:
        """One die counts once, however many products are sold with it, shape (n_chips,) [1]."""
        return np.array([1.0 / self.die.count(die) for die in self.die])


def die_rows(path: Path | None = None) -> DieRows:
    """
    Return the chips of a table whose die area is known.

    A chiplet product counts all its logic dies; a separate input-output die beside one compute die is not part of
    the compute die and is left out, as its interfaces are.
    """
    kept, skipped = [], []
    rows = chip_rows(path)
    for chip_id, row in rows.items():
        reason = _unusable(row)
        if reason:
            skipped.append((chip_id, reason))
        else:
            kept.append(chip_id)
    bounds = np.array([_bounds_mm2(rows[chip_id]) for chip_id in kept]).reshape(-1, 2)
    return DieRows(
        ids=tuple(kept),
        die=tuple(_die(rows[chip_id]) for chip_id in kept),
        vendor=tuple(rows[chip_id]["vendor"] for chip_id in kept),
        designs=chip_designs(kept, path),
        low_mm2=bounds[:, 0],
        high_mm2=bounds[:, 1],
        unofficial=np.array([_unofficial(rows[i]) for i in kept]),
        skipped=tuple(skipped),
    )  # fmt: skip


def nearest_target_mm2(predicted_mm2: FloatArray, rows: DieRows) -> FloatArray:
    """Return the area to compare with: the prediction where it lies inside the bounds, else the nearer bound [mm2]."""
    return np.clip(predicted_mm2, rows.low_mm2, rows.high_mm2)


def outside_technology(row: Mapping[str, str]) -> str | None:
    """Why no figure can be given for the node of a chip, None where the tables of technology cover it."""
    node_nm = number(row, "node_nm")
    if not node_nm:
        return "no node"
    nodes = default_technology().curves["area_model_logic_density"].node_nm
    if nodes[0] <= node_nm <= nodes[-1]:
        return None
    return f"node {node_nm:g} nm is outside the tables of technology, {nodes[0]:g} to {nodes[-1]:g} nm"


def _unusable(row: Mapping[str, str]) -> str | None:
    if not number(row, "compute_die_mm2"):
        return "no die area"
    if row.get("die_bound", "") == "suspect":
        return "die area marked suspect"
    if not has_peak(row):
        return "no dense peak"
    outside = outside_technology(row)
    if outside:
        return outside
    missing = [name for name in ("onchip_total_mib", "l2_or_shared_mib", "l1_or_local_mib") if number(row, name)]
    return None if missing else "no memory on the chip listed"


def _bounds_mm2(row: Mapping[str, str]) -> tuple[float, float]:
    n_dies = number(row, "n_compute_dies") or 1.0
    other = (number(row, "other_logic_mm2") or 0.0) if n_dies > 1 else 0.0
    area = (number(row, "compute_die_mm2") or 0.0) * n_dies + other
    bound = (row.get("die_bound") or "").strip()
    span = re.match(r"(\d+(?:\.\d+)?)-(\d+(?:\.\d+)?)$", bound)
    if span:
        return float(span[1]) * n_dies + other, float(span[2]) * n_dies + other
    return (UPPER_BOUND_FRACTION * area, area) if bound.startswith("<") else (area, area)


def _die(row: Mapping[str, str]) -> str:
    return f"{row['vendor']} {row['node_nm']} nm {row['compute_die_mm2']} mm2"


def _unofficial(row: Mapping[str, str]) -> float:
    from_memory = (row.get("unverified_fields") or "").split(";")
    return float("compute_die_mm2" in from_memory or "NOT official" in (row.get("note") or ""))
