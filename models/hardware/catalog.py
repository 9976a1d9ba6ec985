"""Real chips: their data-sheet fields with source and confidence, and each as a design of the model."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np

from models.checks import require_known
from models.hardware.datasheet import design_parameters
from models.hardware.design import DesignBatch, design_batch, reference_design, take
from models.tables import DATA, read_rows

CHIPS = DATA / "chips.csv"
ADDED_COLUMNS = (
    "core_control", "fp64_lanes_per_core", "bulk_async_copy", "l2_halves", "n_dies", "short_reach_gb_per_s_bidir",
    "other_area_mm2", "envelope_w",
)  # fmt: skip
"""Columns of the shipped catalogue that other tables of chips may lack; theirs is then used for the same id."""


@dataclass(frozen=True)
class Chip:
    """One real, named product: the fields of its row, and the design parameters made of them."""

    id: str
    name: str
    vendor: str
    year: int | None
    fields: Mapping[str, str]
    design: Mapping[str, float]
    inferred_fields: Mapping[str, str]
    """Design parameters that the row does not state -> how each was inferred."""
    source: str
    confidence: str
    unverified_fields: tuple[str, ...]
    """Columns of the row that were filled from memory."""
    note: str


def chip_ids(path: Path | None = None) -> list[str]:
    """
    Return the ids of all chips of the catalogue, or of another table with the same columns.

    Examples
    --------
    >>> "h100_sxm" in chip_ids()
    True
    """
    return list(chip_rows(path))


def chip(chip_id: str, path: Path | None = None) -> Chip:
    """
    Return one chip of the catalogue.

    Raises
    ------
    UnknownNameError
        If no row has that id; the message suggests the nearest.

    Examples
    --------
    >>> round(chip("a100_sxm").design["clock_hz"] / 1e9, 2)
    1.41
    """
    rows = chip_rows(path)
    return _chip(rows[require_known("chip", chip_id, rows)])


FROM_MEMORY = "memory"
INFERRED = "inferred"
NO_FACTS = ("id", "name", "vendor", "source", "unverified_fields", "confidence", "note")


def field_provenance(entry: Chip) -> dict[str, dict[str, str]]:
    """
    Return where each field of a chip comes from: those of its row, and design parameters the row does not state.

    Returns
    -------
    dict of field to {value, confidence, source}
        Confidence is that of the row, `memory` where a value was filled in without a document, or `inferred`, whose
        source says how.

    Examples
    --------
    >>> field_provenance(chip("h100_sxm"))["mem_gb"]["confidence"]
    'verified'
    """
    documents = {}
    for column, text in entry.fields.items():
        if column in NO_FACTS:
            continue
        unverified = column in entry.unverified_fields or column in ADDED_COLUMNS
        documents[column] = {
            "value": text,
            "confidence": FROM_MEMORY if unverified else entry.confidence,
            "source": "from memory" if unverified else entry.source,
        }
    for name, how in entry.inferred_fields.items():
        documents[name] = {"value": f"{entry.design[name]:.6g}", "confidence": INFERRED, "source": how}
    return documents


def chip_designs(ids: Iterable[str], path: Path | None = None) -> DesignBatch:
    """
    Return the chips as designs, missing parameters inferred.

    Parameters
    ----------
    ids : iterable of str
        Chip ids, repeated ones allowed.
    path : Path, optional
        Another table with the columns of `chips.csv`; the shipped catalogue where left out.

    Returns
    -------
    DesignBatch
        Of n_designs = number of ids, in their order.
    """
    chips = [chip(chip_id, path) for chip_id in ids]
    if not chips:
        return take(reference_design(), np.empty(0, dtype=np.int64))
    return design_batch(**{name: [one.design[name] for one in chips] for name in chips[0].design})


@functools.cache
def chip_of_device() -> Mapping[str, str]:
    """Return device strings of measured tables -> chip id, ids themselves included."""
    aliases = {row["device"]: row["chip_id"] for row in read_rows(DATA / "device_aliases.csv") if row["chip_id"]}
    return MappingProxyType(aliases | {chip_id: chip_id for chip_id in chip_ids()})


@functools.cache
def die_of_chip(chip_id: str) -> str:
    """Return what products of one compute die have in common: vendor, node and area; the chip itself if not known."""
    row = _shipped_rows().get(chip_id, {})
    parts = [row.get(name, "") for name in ("vendor", "node_nm", "compute_die_mm2")]
    return "-".join(parts) if all(parts) else chip_id


def chip_rows(path: Path | None = None) -> dict[str, dict[str, str]]:
    """Return id -> row of a table of chips, the added columns filled from the shipped catalogue where it lacks them."""
    if path is None or path == CHIPS:
        return _shipped_rows()
    rows = {row["id"]: row for row in read_rows(path)}
    for chip_id, row in rows.items():
        known = _shipped_rows().get(chip_id, {})
        for column in ADDED_COLUMNS:
            if row.get(column) is None:
                row[column] = known.get(column, "")
    return rows


@functools.cache
def _shipped_rows() -> dict[str, dict[str, str]]:
    return {row["id"]: row for row in read_rows(CHIPS)}


def _chip(row: Mapping[str, str]) -> Chip:
    design, inferred = design_parameters(row)
    return Chip(
        id=row["id"],
        name=row["name"],
        vendor=row["vendor"],
        year=int(row["year"]) if row.get("year") else None,
        fields=MappingProxyType({column: text for column, text in row.items() if text}),
        design=MappingProxyType(design),
        inferred_fields=MappingProxyType(inferred),
        source=row.get("source", ""),
        confidence=row.get("confidence", ""),
        unverified_fields=tuple(filter(None, row.get("unverified_fields", "").split(";"))),
        note=row.get("note", ""),
    )
