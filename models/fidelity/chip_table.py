"""Checks a table of chips before it is scored: columns, numbers, names; errors name file, line, column and rule."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from models.fidelity.report import TableError
from models.fidelity.rows import MeasuredRows, read_measured

REQUIRED = ("id", "name", "vendor", "node_nm", "compute_die_mm2", "tdp_w", "tdp_term", "tflops_bf16", "mem_type")
NUMBERS = (
    "node_nm", "n_compute_dies", "compute_die_mm2", "other_logic_mm2", "tdp_w", "clock_mhz", "cores", "matrix_units",
    "bf16_macs_per_cycle", "vector_fp32_fma_per_cycle", "tflops_fp32_vector", "tflops_tf32", "tflops_bf16",
    "tflops_fp8", "tops_int8", "tflops_fp6", "tflops_fp4", "regfile_mib", "l1_or_local_mib", "l2_or_shared_mib",
    "llc_mib", "onchip_total_mib", "mem_gb", "mem_gb_per_s", "mem_stacks", "mem_bus_bits", "link_gb_per_s_bidir",
    "host_gb_per_s_bidir", "phys_cores", "phys_l2_mib", "phys_mem_stacks",
)  # fmt: skip


def check_chip_table(path: Path) -> None:
    """
    Refuse a table of chips that cannot be read as designs.

    Raises
    ------
    TableError
        If a required column is missing, an id repeats, or a cell that should be one is no number of at least zero.
    """
    rows = read_measured(path, REQUIRED)
    names, counts = np.unique(rows.text("id"), return_counts=True)
    if (counts > 1).any():
        name = names[counts > 1][0]
        line = int(rows.lines[np.flatnonzero(rows.text("id") == name)[1]])
        raise TableError(f"id '{name}' is given {counts[names == name][0]} times", path.name, line, "id")
    for column in NUMBERS:
        if column in rows.columns:
            _check_numbers(path, rows, column)


def _check_numbers(path: Path, rows: MeasuredRows, column: str) -> None:
    for line, text in zip(rows.lines.tolist(), rows.text(column).tolist(), strict=True):
        if text.strip() and not _at_least_zero(text):
            raise TableError(f"{column} must be a number of at least 0, got '{text}'", path.name, line, column)


def _at_least_zero(text: str) -> bool:
    try:
        value = float(text)
    except ValueError:
        return False
    return bool(np.isfinite(value) and value >= 0)
