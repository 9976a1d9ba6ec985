"""Plain lists of GEMMs, from a CSV file or from a request."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from models.checks import FloatArray, require_known
from models.precision.formats import FORMATS

SIZE_LIMIT = 2**31
"""Largest m, n, k, batch or count of one row."""

ROW_LIMIT = 200_000
"""Most rows of one list."""

DEFAULTS = {"batch": 1, "count": 1}
SIZES = ("m", "n", "k", "batch", "count")
COLUMNS = (*SIZES, "format")


@dataclass(frozen=True)
class GemmShapes:
    """
    GEMMs of m x k with k x n, arrays of shape (n_shapes,).

    `batch` independent GEMMs of this size run together (heads, groups of a convolution), and the whole occurs
    `count` times.
    """

    m: FloatArray
    n: FloatArray
    k: FloatArray
    batch: FloatArray
    count: FloatArray
    formats: tuple[str, ...]

    @property
    def flop(self) -> FloatArray:
        """Multiplications and additions of each row, batch and count included, shape (n_shapes,) [FLOP]."""
        return 2.0 * self.m * self.n * self.k * self.batch * self.count


def gemm_list(rows: Iterable[Mapping[str, Any]], where: str = "gemms", default_format: str = "bf16") -> GemmShapes:
    """
    Return the GEMMs of a list of rows with keys m, n, k and optionally batch, count and format.

    Parameters
    ----------
    rows : iterable of mappings
        Sizes are whole numbers, or strings of them as CSV has; `format` is a name of `formats.csv`.
    where : str
        What errors call the list.
    default_format : str
        Format of rows that name none.

    Raises
    ------
    ValueError
        If a column is missing, unknown or out of bounds; the message names row and column.
    UnknownNameError
        If a format is not known.

    Examples
    --------
    >>> gemm_list([{"m": 128, "n": 4096, "k": 4096, "count": 32}]).flop.tolist()
    [137438953472.0]
    """
    sizes: list[list[int]] = []
    formats: list[str] = []
    for number, row in enumerate(rows):
        if number >= ROW_LIMIT:
            raise ValueError(f"{where} must have at most {ROW_LIMIT} rows")
        place = f"{where}[{number}]"
        if not isinstance(row, Mapping):
            raise ValueError(f"{place} must be an object with m, n and k, got {row!r}")
        read, name = _row(row, place, default_format)
        sizes.append(read)
        formats.append(name)
    return _shapes(sizes, formats, where)


def read_gemm_list(source: Path | bytes, default_format: str = "bf16", name: str = "") -> GemmShapes:
    """
    Return the GEMMs of a CSV file, or of its content, with a header row; lines that begin with '#' are comments.

    Raises
    ------
    ValueError
        As `gemm_list`; the message names the line of the file and the column.
    """
    sizes: list[list[int]] = []
    formats: list[str] = []
    name = table_name(source, name)
    for line, row in numbered_rows(source, name):
        if len(sizes) >= ROW_LIMIT:
            raise ValueError(f"{name} must have at most {ROW_LIMIT} rows")
        read, number_format = _row(row, f"{name} line {line}", default_format)
        sizes.append(read)
        formats.append(number_format)
    return _shapes(sizes, formats, name)


def table_name(source: Path | bytes, name: str = "") -> str:
    """What messages call a table: `name`, or that of its file."""
    return name or (source.name if isinstance(source, Path) else "table")


def numbered_rows(source: Path | bytes, name: str) -> list[tuple[int, dict[str, str]]]:
    """Return line number and cells of each row of a CSV table, refusing rows longer or shorter than the header."""
    content = source if isinstance(source, bytes) else source.read_bytes()
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} must be UTF-8 text, byte {error.start} is not") from None
    header: list[str] = []
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        cells = [cell.strip() for cell in next(csv.reader([line]))]
        if not header:
            header = cells
            if len(set(header)) < len(header):
                raise ValueError(f"{name} line {number}: a column is named twice")
            continue
        if len(cells) != len(header):
            raise ValueError(f"{name} line {number} must have {len(header)} cells as the header, got {len(cells)}")
        rows.append((number, dict(zip(header, cells, strict=True))))
    if not rows:
        raise ValueError(f"{name} must have a header and at least one row")
    return rows


def whole_number(value: Any, place: str, minimum: int = 1, maximum: int = SIZE_LIMIT) -> int:
    """Return a whole number within its bounds, given as such or as a string."""
    text = value.strip() if isinstance(value, str) else value
    digits = isinstance(text, str) and text.isascii() and text.removeprefix("-").isdigit() and len(text) <= 20
    if isinstance(text, bool) or not (isinstance(text, int) or digits):
        raise ValueError(f"{place} must be a whole number, got {value!r}")
    if not minimum <= int(text) <= maximum:
        raise ValueError(f"{place} must be between {minimum} and {maximum}, got {value}")
    return int(text)


def _row(row: Mapping[str, Any], place: str, default_format: str) -> tuple[list[int], str]:
    for column in row:
        if column not in COLUMNS:
            raise ValueError(f"{place}: unknown column {column!r}, known: {', '.join(COLUMNS)}")
    for column in ("m", "n", "k"):
        if row.get(column) in (None, ""):
            raise ValueError(f"{place}: column {column} is missing")
    filled = {name: DEFAULTS.get(name) if row.get(name) in (None, "") else row[name] for name in SIZES}
    sizes = [whole_number(filled[name], f"{place}: column {name}") for name in SIZES]
    stated = row.get("format")
    return sizes, require_known(f"format in {place}", stated, FORMATS) if stated else default_format


def _shapes(sizes: list[list[int]], formats: list[str], where: str) -> GemmShapes:
    if not sizes:
        raise ValueError(f"{where} must have at least one row")
    m, n, k, batch, count = np.asarray(sizes, dtype=np.float64).T
    return GemmShapes(m, n, k, batch, count, tuple(formats))
