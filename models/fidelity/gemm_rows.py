"""Reads measured GEMM tables; a bad file is refused with file, line, column and rule."""

from __future__ import annotations

import csv
import fnmatch
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from models.checks import BoolArray, FloatArray
from models.fidelity.report import TableError
from models.hardware.catalog import chip_of_device
from models.operators.tiling import SPLITS
from models.tables import DATA, read_rows

NUMBER_COLUMNS = ("m", "n", "k", "latency_us")
TEXT_COLUMNS = ("device", "dtype")
FORMAT_OF_DTYPE: Mapping[str, str] = {
    "bfloat16": "bf16", "bf16": "bf16", "fp16": "bf16", "float16": "bf16",
    "fp8": "fp8", "fp8_block": "fp8", "nvfp4": "fp4", "fp4": "fp4",
}  # fmt: skip
OPERAND_BYTES: Mapping[str, float] = {"bf16": 2.0, "fp8": 1.0, "fp4": 0.5 + 1.0 / 16.0}
"""Bytes per element as moved; fp4 carries one 8-bit scale for 16 elements."""


@dataclass(frozen=True)
class GemmSource:
    """How one kind of table was measured: the row of `gemm_sources.csv` whose glob fits the file name."""

    start: str
    largest_rotation: float
    quantises: bool
    recent_kernels: bool
    unsplit_formats: tuple[str, ...]

    @property
    def reuses_weights(self) -> bool:
        """Whether every call reads the same weights, so that addresses are translated and pages open."""
        return self.largest_rotation == 1.0

    def splits(self, number_format: str) -> tuple[int, ...]:
        """Parts into which the kernels of the source cut k."""
        return (1,) if number_format in self.unsplit_formats else SPLITS


@dataclass(frozen=True)
class GemmRows:
    """Measured GEMMs of one table: arrays of shape (n_rows,), sizes as numbers, names as text."""

    table: str
    source: GemmSource
    device: np.ndarray
    chip: np.ndarray
    dtype: np.ndarray
    m: FloatArray
    n: FloatArray
    k: FloatArray
    latency_s: FloatArray
    skipped: list[dict[str, Any]]
    """Rows that cannot be predicted, counted by device and reason."""

    def take(self, index: BoolArray) -> GemmRows:
        """The rows where `index` holds, or at its positions."""
        names = ("device", "chip", "dtype", "m", "n", "k", "latency_s")
        return GemmRows(self.table, self.source, *(getattr(self, name)[index] for name in names), self.skipped)


def gemm_source(file_name: str) -> GemmSource:
    """Return how the table was measured, from the first glob that fits its name."""
    for row in read_rows(DATA / "gemm_sources.csv"):
        if fnmatch.fnmatch(file_name, row["table"]):
            return GemmSource(
                start=row["start"],
                largest_rotation=float(row["largest_rotation"]),
                quantises=row["quantises"] == "1",
                recent_kernels=row["recent_kernels"] == "1",
                unsplit_formats=tuple(filter(None, row["unsplit_formats"].split(";"))),
            )
    raise TableError(f"{file_name}: no source of GEMM times has this name")


def read_gemm_rows(path: Path) -> GemmRows:
    """
    Return the rows of a measured GEMM table, unknown devices and formats counted in `skipped`.

    Raises
    ------
    TableError
        If a column is missing or in another unit, or a number is missing, not finite or not positive.
    """
    rows = checked_rows(path, NUMBER_COLUMNS, TEXT_COLUMNS)
    chips = chip_of_device()
    reasons: Counter[str] = Counter()
    kept = []
    for row in rows:
        if row["device"] not in chips:
            reasons[f"device '{row['device']}' is not in the catalogue"] += 1
        elif row["dtype"] not in FORMAT_OF_DTYPE:
            reasons[f"dtype '{row['dtype']}' is not known"] += 1
        else:
            kept.append(row)
    column = {name: np.array([row[name] for row in kept], dtype=np.float64) for name in NUMBER_COLUMNS}
    return GemmRows(
        table=path.stem,
        source=gemm_source(path.name),
        device=np.array([row["device"] for row in kept], dtype=object),
        chip=np.array([chips[row["device"]] for row in kept], dtype=object),
        dtype=np.array([row["dtype"] for row in kept], dtype=object),
        m=column["m"],
        n=column["n"],
        k=column["k"],
        latency_s=column["latency_us"] * 1e-6,
        skipped=[{"reason": reason, "rows": count} for reason, count in sorted(reasons.items())],
    )


def checked_rows(path: Path, numbers: tuple[str, ...], texts: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the rows of a CSV file whose `numbers` are positive and whose `texts` are not empty."""
    kept: list[dict[str, Any]] = []
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = ((number, line) for number, line in enumerate(file, start=1) if not line.startswith("#"))
        numbered = list(lines)
    reader = csv.reader(line for _, line in numbered)
    header = next(reader, [])
    header_line = numbered[0][0] if numbered else 1
    for column in (*texts, *numbers):
        if column not in header:
            raise TableError(f"{path.name} line {header_line}: column {column} is missing{_near(column, header)}")
    for (line, _), cells in zip(numbered[1:], reader, strict=False):
        if not cells:
            continue
        if len(cells) != len(header):
            raise TableError(f"{path.name} line {line}: {len(header)} columns expected, got {len(cells)}")
        row: dict[str, Any] = dict(zip(header, cells, strict=True))
        for column in numbers:
            row[column] = _positive(path.name, line, column, row[column])
        for column in texts:
            if not row[column].strip():
                raise TableError(f"{path.name} line {line}: {column} must not be empty")
        kept.append(row)
    if not kept:
        raise TableError(f"{path.name} line {header_line}: the table has no rows")
    return kept


def _near(column: str, header: list[str]) -> str:
    """Name a column of the same quantity in another unit, if there is one."""
    stem, _, unit = column.rpartition("_")
    same = [name for name in header if stem and name.rpartition("_")[0] == stem]
    return f", found {same[0]}: the unit must be {unit}" if same else f", found {', '.join(header)}"


def _positive(file: str, line: int, column: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise TableError(f"{file} line {line}: {column} must be a number, got '{text}'") from None
    if not (np.isfinite(value) and value > 0):
        raise TableError(f"{file} line {line}: {column} must be positive, got {text}")
    return value
