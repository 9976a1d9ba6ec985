"""Reads the tables of `models/data`; a value without unit or source is refused."""

from __future__ import annotations

import csv
import functools
import gzip
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

DATA = Path(__file__).parent / "data"


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file with one header row; lines that begin with '#' are provenance."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8-sig", newline="") as file:
        return parse_rows(file)


def parse_rows(lines: Iterable[str] | str) -> list[dict[str, str]]:
    """Return the rows of CSV text with one header row; lines that begin with '#' are provenance."""
    each = io.StringIO(lines, newline="") if isinstance(lines, str) else lines
    return list(csv.DictReader(line for line in each if not line.startswith("#")))


def read_json(path: Path) -> Any:
    """Return the parsed JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


@functools.cache
def constants(name: str) -> Mapping[str, float]:
    """
    Return the constants of `models/data/constants/<name>.csv` as name -> value.

    The file has the columns name, value, unit, source, note. Units are those of
    STYLE section 3 or stated in the column.

    Raises
    ------
    ValueError
        If a row lacks a value, a unit or a source, or repeats a name.

    Examples
    --------
    >>> 0 < constants("gemm")["memory_efficiency_fraction"] <= 1
    True
    """
    path = DATA / "constants" / f"{name}.csv"
    values: dict[str, float] = {}
    for number, row in enumerate(read_rows(path), start=2):
        for column in ("name", "value", "unit", "source"):
            if not (row.get(column) or "").strip():
                raise ValueError(f"{path.name} row {number}: {column} must not be empty")
        if row["name"] in values:
            raise ValueError(f"{path.name} row {number}: {row['name']} is given twice")
        values[row["name"]] = float(row["value"])
    return MappingProxyType(values)
