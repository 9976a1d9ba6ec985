"""Reads a measured table: required columns, checked numbers, devices as designs, with errors that name the line."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from models.checks import FloatArray, IntArray
from models.fidelity.report import TableError
from models.hardware.catalog import chip_designs, chip_of_device
from models.hardware.design import DesignBatch, take

StringArray = NDArray[np.str_]


@dataclass(frozen=True)
class MeasuredRows:
    """Some rows of one file: text by column, and the line each row stands on."""

    file: str
    lines: IntArray
    columns: dict[str, StringArray]

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.lines)

    def text(self, column: str) -> StringArray:
        """One column as text, shape (n_rows,)."""
        if column not in self.columns:
            raise TableError(_missing(self.file, column, list(self.columns)))
        return self.columns[column]

    def number(self, column: str) -> FloatArray:
        """One column of positive numbers, shape (n_rows,), in the unit of its suffix."""
        texts = self.text(column)
        values = np.array([_parsed(text) for text in texts], dtype=np.float64)
        bad = np.flatnonzero(~(np.isfinite(values) & (values > 0)))
        if bad.size:
            where = f"{self.file} line {self.lines[bad[0]]}"
            raise TableError(f"{where}: {column} must be a positive number, got '{texts[bad[0]]}' ({bad.size} rows)")
        return values

    def take(self, index: ArrayLike) -> MeasuredRows:
        """Return the rows at `index` (integers or a mask)."""
        chosen = np.asarray(index)
        return MeasuredRows(self.file, self.lines[chosen], {name: v[chosen] for name, v in self.columns.items()})


def read_measured(path: Path, required: Sequence[str]) -> MeasuredRows:
    """
    Return all rows of a measured CSV file; lines that begin with '#' are provenance.

    Raises
    ------
    TableError
        If a required column is missing (a column of another unit is named), or there are no rows.
    """
    numbered = [
        (number, line)
        for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), start=1)
        if line.strip() and not line.startswith("#")
    ]
    reader = csv.DictReader(line for _, line in numbered)
    names = list(reader.fieldnames or [])
    for column in required:
        if column not in names:
            raise TableError(_missing(path.name, column, names))
    rows = list(reader)
    if not rows:
        raise TableError(f"{path.name}: no rows below the header")
    columns = {name: np.array([row[name] or "" for row in rows], dtype=np.str_) for name in names}
    return MeasuredRows(path.name, np.array([number for number, _ in numbered[1:]], dtype=np.int64), columns)


def chip_id_of_rows(rows: MeasuredRows, column: str = "device") -> StringArray:
    """
    Return the catalogue id of the device of every row, shape (n_rows,).

    Raises
    ------
    TableError
        If a device is in no alias table.
    """
    devices = rows.text(column)
    known = chip_of_device()
    for device in np.unique(devices):
        if str(device) not in known:
            line = rows.lines[np.flatnonzero(devices == device)[0]]
            raise TableError(f"{rows.file} line {line}: {column} '{device}' is no known chip")
    return np.array([known[str(device)] for device in devices], dtype=np.str_)


def designs_of_chips(chip_ids: StringArray) -> DesignBatch:
    """Return one design per entry of `chip_ids`, so that row i of sizes (n_rows, 1) meets design i."""
    names, index = np.unique(chip_ids, return_inverse=True)
    return take(chip_designs([str(name) for name in names]), index)


def _parsed(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _missing(file: str, column: str, names: list[str]) -> str:
    stem = column.rsplit("_", 1)[0]
    near = [name for name in names if name != column and name.rsplit("_", 1)[0] == stem]
    other = f", got '{near[0]}' in another unit" if near else ""
    return f"{file} line 1: column {column} is missing{other}; columns: {', '.join(names)}"
