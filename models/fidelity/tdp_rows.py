"""Rated power of real products as targets of the rating model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from models.checks import BoolArray, FloatArray
from models.fidelity.area_rows import outside_technology
from models.hardware.catalog import chip_designs, chip_rows
from models.hardware.datasheet import has_peak, number
from models.hardware.design import DesignBatch
from models.tables import constants

NO_RATING = re.compile(r"estimate|derived|measured|provisioned|wafer|epoch", re.IGNORECASE)
"""Words of `tdp_term` that say the number is no rating by the vendor."""
SAME_RATING_FRACTION = 0.02


@dataclass(frozen=True)
class TdpRows:
    """Chips with a power number, arrays of shape (n_chips,)."""

    ids: tuple[str, ...]
    die: tuple[str, ...]
    """Same silicon, same text."""
    designs: DesignBatch
    tdp_w: FloatArray
    envelope_w: FloatArray
    """Limit of the form factor, infinite for modules."""
    rated: BoolArray
    """True where the number is a rating by the vendor and the sheet gives the arrays."""
    circular: BoolArray
    """True where the listed envelope is the rating itself, so that a prediction cut to it predicts nothing."""
    skipped: tuple[tuple[str, str], ...]


def tdp_rows(path: Path | None = None) -> TdpRows:
    """Return the chips of a table whose power is given."""
    rows = chip_rows(path)
    powered = {i: row for i, row in rows.items() if number(row, "tdp_w")}
    reasons = {i: outside_technology(row) if has_peak(row) else "no dense peak" for i, row in powered.items()}
    kept = [i for i, reason in reasons.items() if reason is None]
    skipped = [(i, "no power") for i in rows if i not in powered]
    skipped += [(i, reason) for i, reason in reasons.items() if reason]
    chosen = [rows[i] for i in kept]
    listed_w, rating_w = (
        np.array([number(row, name) or np.nan for row in chosen], dtype=np.float64) for name in ("envelope_w", "tdp_w")
    )
    units = [bool(number(row, "bf16_macs_per_cycle") or number(row, "tops_int8")) for row in chosen]
    return TdpRows(
        ids=tuple(kept),
        die=tuple(f"{row['vendor']} {row['node_nm']} {row['compute_die_mm2'] or row['id']}" for row in chosen),
        designs=chip_designs(kept, path),
        tdp_w=rating_w,
        envelope_w=np.array([envelope_w(row) for row in chosen], dtype=np.float64),
        rated=np.array(
            [not NO_RATING.search(row["tdp_term"] or "") and known for row, known in zip(chosen, units, strict=True)],
            dtype=np.bool_,
        ),
        circular=np.isclose(listed_w, rating_w, rtol=SAME_RATING_FRACTION),
        skipped=tuple(skipped),
    )


def envelope_w(row: Mapping[str, str]) -> float:
    """
    Return the power limit of the form factor: as listed, else inferred from links and memory [W].

    A chip without links of its own is a card; one with a narrow memory beside is a slot-powered card. A bridge
    between two cards says card as well. Everything else counts as a module without limit.
    """
    listed = number(row, "envelope_w")
    if listed:
        return listed
    c = constants("datasheet")
    link = (row.get("link_name") or "none").lower()
    bandwidth = number(row, "mem_gb_per_s") or 0.0
    if not number(row, "link_gb_per_s_bidir") and "none" in link and bandwidth:
        narrow = bandwidth * 1e9 < c["slot_powered_memory_bytes_per_s"]
        return c["slot_powered_card_w"] if narrow else c["dual_slot_card_w"]
    return c["dual_slot_card_w"] if "bridge" in link else float("inf")
