"""Reads measured GEMM tables; a bad file is refused with file, line, column and rule."""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from models.checks import BoolArray, FloatArray, IntArray
from models.fidelity.report import TableError
from models.fidelity.rows import read_measured, unknown_devices
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
    lines: IntArray
    skipped: list[dict[str, Any]]
    """Rows that cannot be predicted, counted by device and reason."""

    def take(self, index: BoolArray | IntArray) -> GemmRows:
        """The rows where `index` holds, or at its positions."""
        names = ("device", "chip", "dtype", "m", "n", "k", "latency_s", "lines")
        return replace(self, **{name: getattr(self, name)[index] for name in names})


ANY_TABLE = "*"
"""Glob of the source of tables that users bring."""


def gemm_source(file_name: str, *, of_users: bool = False) -> GemmSource:
    """Return how the table was measured, from the first glob that fits its name; any name where it is a user's."""
    for row in read_rows(DATA / "gemm_sources.csv"):
        if row["table"] == ANY_TABLE and not of_users:
            continue
        if fnmatch.fnmatch(file_name, row["table"]):
            return GemmSource(
                start=row["start"],
                largest_rotation=float(row["largest_rotation"]),
                quantises=row["quantises"] == "1",
                recent_kernels=row["recent_kernels"] == "1",
                unsplit_formats=tuple(filter(None, row["unsplit_formats"].split(";"))),
            )
    raise TableError("no source of GEMM times has this name", file_name)


def read_gemm_rows(path: Path, *, of_users: bool = False) -> GemmRows:
    """
    Return the rows of a measured GEMM table, unknown devices and formats counted in `skipped`.

    The file name tells the source; with `of_users` a name of no known source is that of a user's own table.

    Raises
    ------
    TableError
        If a column is missing or in another unit, or a number is missing, not finite or not positive.
    """
    table = read_measured(path, (*TEXT_COLUMNS, *NUMBER_COLUMNS))
    number = {name: table.number(name) for name in NUMBER_COLUMNS}
    device, dtype = (table.text(name).astype(object) for name in TEXT_COLUMNS)
    chips = chip_of_device()
    unknown = ~np.isin(table.text("device"), list(chips))
    skipped = list(unknown_devices(table))
    unreadable = ~unknown & ~np.isin(table.text("dtype"), list(FORMAT_OF_DTYPE))
    reasons = Counter(f"dtype '{name}' is not known" for name in dtype[unreadable])
    skipped += [{"reason": reason, "rows": count} for reason, count in sorted(reasons.items())]
    kept = ~(unknown | unreadable)
    return GemmRows(
        table=table.table,
        source=gemm_source(path.name, of_users=of_users),
        device=device[kept],
        chip=np.array([chips[name] for name in device[kept]], dtype=object),
        dtype=dtype[kept],
        m=number["m"][kept],
        n=number["n"][kept],
        k=number["k"][kept],
        latency_s=number["latency_us"][kept] * 1e-6,
        lines=table.lines[kept],
        skipped=skipped,
    )
