"""Reads a measured table: required columns, checked numbers, devices as designs, with errors that name the line."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from models.checks import FloatArray, IntArray
from models.fidelity.report import TableError
from models.hardware.catalog import chip_designs, chip_of_device
from models.hardware.design import DesignBatch, take

StringArray = NDArray[np.str_]

ELEMENT_BYTES: Mapping[str, float] = {
    "fp32": 4.0, "fp32_model_in_repo": 4.0, "bfloat16": 2.0, "bf16": 2.0, "float16": 2.0, "fp16": 2.0, "fp8": 1.0,
    "fp8_block": 1.0,
}  # fmt: skip
"""Format names of measured tables -> bytes of an element."""


@dataclass(frozen=True)
class MeasuredRows:
    """Some rows of one file: text by column, and the line each row stands on."""

    file: str
    lines: IntArray
    columns: dict[str, StringArray]
    skipped: tuple[dict[str, Any], ...] = ()
    """Rows set aside on reading, in the form of `GroupReport.skipped`."""

    @property
    def table(self) -> str:
        """Name of the table: the file name without its ending."""
        return table_name(self.file)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.lines)

    def text(self, column: str) -> StringArray:
        """One column as text, shape (n_rows,)."""
        if column not in self.columns:
            raise _missing(self.file, 1, column, list(self.columns))
        return self.columns[column]

    def number(self, column: str, *, or_zero: bool = False, or_empty: bool = False) -> FloatArray:
        """One column of positive numbers, shape (n_rows,), in the unit of its suffix; NaN where empty is allowed."""
        texts = self.text(column)
        values = np.array([_parsed(text) for text in texts], dtype=np.float64)
        good = np.isfinite(values) & ((values > 0) | (or_zero & (values == 0))) | (or_empty & (texts == ""))
        if not good.all():
            bad = np.flatnonzero(~good)
            kind = "zero or a positive number" if or_zero else "a positive number"
            rule = f"{column} must be {kind}, got '{texts[bad[0]]}' ({bad.size} rows)"
            raise TableError(rule, self.file, int(self.lines[bad[0]]), column)
        return values

    def take(self, index: ArrayLike) -> MeasuredRows:
        """Return the rows at `index` (integers or a mask)."""
        chosen = np.asarray(index)
        columns = {name: values[chosen] for name, values in self.columns.items()}
        return replace(self, lines=self.lines[chosen], columns=columns)


def table_name(file: str) -> str:
    """Return the name of the table in a file, without `.csv` or `.csv.gz`."""
    return file.removesuffix(".gz").removesuffix(".csv")


def measured_text(path: Path) -> str:
    """
    Return the text of a measured file, packed by gzip or not.

    Raises
    ------
    TableError
        If it is not UTF-8, or its compressed form is damaged.
    """
    try:
        content = path.read_bytes()
        return (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise TableError(f"text must be UTF-8, got byte 0x{error.object[error.start]:02x}", path.name, line) from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TableError(f"gzip data must be whole: {str(error).lower()}", path.name) from None


def read_measured(path: Path, required: Sequence[str]) -> MeasuredRows:
    """
    Return all rows of a measured CSV file; lines that begin with '#' are provenance.

    Raises
    ------
    TableError
        If the file is no table, a required column is missing (a column of another unit is named), a row has more or
        fewer cells than the header, or there are no rows.
    """
    cells = list(_cells(path))
    if not cells:
        raise TableError("no header", path.name, 1)
    (header_line, header), *body = cells
    names = [name.strip() for name in header]
    for column in required:
        if column not in names:
            raise _missing(path.name, header_line, column, names)
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise TableError(f"column {repeated[0]} is given twice", path.name, header_line, repeated[0])
    if not body:
        raise TableError("no rows below the header", path.name, header_line)
    for line, row in body:
        if len(row) < len(names) or any(row[len(names) :]):
            raise TableError(f"a row must have {len(names)} cells as the header, got {len(row)}", path.name, line)
    texts = np.array([row[: len(names)] for _, row in body], dtype=object).T
    columns = {name: values.astype(np.str_) for name, values in zip(names, texts, strict=True)}
    return MeasuredRows(path.name, np.array([line for line, _ in body], dtype=np.int64), columns)


def with_known_devices(rows: MeasuredRows, column: str = "device") -> MeasuredRows:
    """
    Return the rows whose device is a known chip; the others are counted in `skipped`, each name with its first line.

    Raises
    ------
    TableError
        If no device is known.
    """
    devices = rows.text(column)
    known = np.isin(devices, list(chip_of_device()))
    if not known.any() and len(rows):
        raise TableError(f"{column} '{devices[0]}' is no known chip", rows.file, int(rows.lines[0]), column)
    return replace(rows.take(known), skipped=rows.skipped + unknown_devices(rows, column))


def with_known(rows: MeasuredRows, column: str, names: Container[str]) -> MeasuredRows:
    """Return the rows whose `column` is one of `names`; the others are counted in `skipped`."""
    texts = rows.text(column)
    found, counts = np.unique(texts, return_counts=True)
    unknown = {str(name): int(count) for name, count in zip(found, counts, strict=True) if str(name) not in names}
    if not unknown:
        return rows
    skipped = tuple({"reason": f"{column} '{name}' is not known", "rows": count} for name, count in unknown.items())
    return replace(rows.take(~np.isin(texts, list(unknown))), skipped=rows.skipped + skipped)


def unknown_devices(rows: MeasuredRows, column: str = "device") -> tuple[dict[str, Any], ...]:
    """Return one entry of `GroupReport.skipped` for each device that is no known chip."""
    devices = rows.text(column)
    names, first, counts = np.unique(devices, return_index=True, return_counts=True)
    return tuple(
        {
            "reason": f"{column} '{name}' is no known chip", "rows": int(count), "line": int(rows.lines[index]),
            "column": column,
        }
        for name, index, count in zip(names, first, counts, strict=True)
        if str(name) not in chip_of_device()
    )  # fmt: skip


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
            line = int(rows.lines[np.flatnonzero(devices == device)[0]])
            raise TableError(f"{column} '{device}' is no known chip", rows.file, line, column)
    return np.array([known[str(device)] for device in devices], dtype=np.str_)


def designs_of_chips(chip_ids: StringArray) -> DesignBatch:
    """Return one design per entry of `chip_ids`, so that row i of sizes (n_rows, 1) meets design i."""
    names, index = np.unique(chip_ids, return_inverse=True)
    return take(chip_designs([str(name) for name in names]), index)


def element_bytes(dtypes: StringArray) -> FloatArray:
    """Return the bytes of one element of each format, shape (n_rows,)."""
    return np.array([ELEMENT_BYTES[str(name)] for name in dtypes], dtype=np.float64)


def rate_ratio(designs: DesignBatch, bytes_per_element: FloatArray) -> FloatArray:
    """Return the speed over bf16 of each row's format, shape (n_rows,) [1]; without a native rate bf16 computes it."""
    native = np.where(designs.fp8_rate_ratio > 0, designs.fp8_rate_ratio, 1.0)
    return np.where(bytes_per_element < 2, native, 1.0)


def _parsed(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Header and rows as cells, each with the line of the file on which it ends."""
    text = io.StringIO(measured_text(path), newline=None)
    numbered = [(n, line) for n, line in enumerate(text, start=1) if line.strip() and not line.startswith("#")]
    reader = csv.reader(line for _, line in numbered)
    try:
        for row in reader:
            yield numbered[reader.line_num - 1][0], row
    except csv.Error as error:
        line = numbered[reader.line_num - 1][0]
        raise TableError(f"a row must be comma separated: {error}", path.name, line) from None


def _missing(file: str, line: int, column: str, names: list[str]) -> TableError:
    stem = column.rsplit("_", 1)[0]
    near = [name for name in names if name != column and name.rsplit("_", 1)[0] == stem]
    other = f", got '{near[0]}' in another unit" if near else ""
    return TableError(f"column {column} is missing{other}; columns: {', '.join(names)}", file, line, column)
