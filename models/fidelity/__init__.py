"""Predicted against measured: every reader of a measured table, by the names of the files it reads."""

from __future__ import annotations

from models.fidelity import area, attention, collective, elementwise, gemm, moe, power, quality, reference
from models.fidelity.report import TableReader

MODULES = (area, power, gemm, attention, elementwise, moe, collective, reference, quality)

READERS: tuple[tuple[str, TableReader], ...] = tuple(
    (glob, reader) for module in MODULES for glob, reader in module.TABLES.items()
)
"""Glob of file names -> reader, in the order of reports; a file may have several readers."""
