"""Takes measured times in the form of a measured table and puts the prediction of this version of the model beside."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from models.fidelity.calibrate import OTHER_UNIT_RATIO
from models.fidelity.calibration_rows import FamilyRows, calibration_rows
from models.fidelity.report import TableError
from models.fidelity.rows import read_measured
from models.operators.calibration import UNCALIBRATED
from service.db import profiles as queries
from service.db.session import Database, writing
from service.engine import Document
from service.errors import InvalidRequestError, TooLargeError

IMPOSSIBLE_FRACTION = 0.98
"""Of the physical bound, below which a time cannot be."""
MOST_ROWS = 50_000
"""Rows of one upload."""


@dataclass(frozen=True)
class Provenance:
    """What made the times, as their sender states it."""

    kernel: str = ""
    software_version: str = ""
    clock_hz: float | None = None


@dataclass(frozen=True)
class Taken:
    """What was stored of an upload, and the lines that were not."""

    batch: str
    stored: int
    refused: list[dict[str, Any]]
    mape: float | None


def take_measurements(
    database: Database, content: bytes, name: str, batch: str, model_version: str, provenance: Provenance
) -> Taken:
    """
    Store the rows of a measured table, each with the prediction of the time; impossible ones are refused by line.

    Raises
    ------
    InvalidRequestError
        If the file is no measured table or no row of it can be.
    """
    rows, refused = _judged(content, name, model_version, provenance)
    if not rows:
        reason = refused[0]["detail"] if refused else "no row can be read"
        raise InvalidRequestError("/file", f"no measured row can be stored: {reason}")
    with writing(database) as session:
        queries.add_measurements(session, [{**row, "batch": batch} for row in rows])
    errors = [abs(row["predicted_s"] / row["measured_s"] - 1.0) for row in rows]
    return Taken(batch, len(rows), refused, float(np.mean(errors)))


def _judged(
    content: bytes, name: str, model_version: str, provenance: Provenance
) -> tuple[list[Document], list[dict[str, Any]]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / Path(name).name
        path.write_bytes(content)
        try:
            table = read_measured(path, ())
            if len(table) > MOST_ROWS:
                raise TooLargeError(f"a table of measurements must have at most {MOST_ROWS} rows, got {len(table)}")
            parts = calibration_rows(path)
        except TableError as error:
            raise InvalidRequestError("/file", str(error)) from None
    texts = {int(line): {key: str(values[i]) for key, values in table.columns.items()}
             for i, line in enumerate(table.lines)}  # fmt: skip
    stored: list[Document] = []
    refused: list[dict[str, Any]] = []
    for part in parts:
        for row, reason in _rows(part, texts, model_version, provenance):
            if reason is None:
                stored.append(row)
            else:
                refused.append({"line": row["line"], "detail": reason})
    return stored, refused


def _rows(
    part: FamilyRows, texts: dict[int, dict[str, str]], model_version: str, provenance: Provenance
) -> list[tuple[Document, str | None]]:
    """Each row as columns of its table, with the reason why it cannot be where there is one."""
    predicted = part.predictor(UNCALIBRATED)
    found = []
    for i, line in enumerate(part.lines):
        columns = texts[int(line)]
        measured, bound, ratio = part.measured_s[i], part.bound_s[i], part.measured_s[i] / predicted[i]
        reason = None
        if ratio > OTHER_UNIT_RATIO or ratio < 1.0 / OTHER_UNIT_RATIO:
            reason = f"time must be in the unit of its column, got {ratio:.3g} times the prediction"
        elif measured < IMPOSSIBLE_FRACTION * bound:
            reason = f"time must be at least the {bound:.3g} s that the hardware needs, got {measured:.3g} s"
        row = {
            "device": part.chip_id, "family": part.families[0], "line": int(line), "columns": columns,
            "measured_s": float(measured), "predicted_s": float(predicted[i]), "bound_s": float(bound),
            "model_version": model_version, "profile": "",
            "kernel": columns.get("kernel", provenance.kernel)[:200],
            "software_version": columns.get("software_version", provenance.software_version)[:200],
            "clock_hz": provenance.clock_hz,
        }  # fmt: skip
        found.append((row, reason))
    return found
