"""Writes the residuals of devices left out, by class: `python -m models.fidelity.fit_intervals DIR`."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable
from pathlib import Path

from models.fidelity.interval_classes import interval_class
from models.fidelity.report import GroupReport
from models.fidelity.validate import validate
from models.tables import DATA, read_rows

OPERATOR_TABLES = (
    "aic_*",
    "vidur_*",
    "llmcompass_gemm",
    "llmcompass_elementwise",
    "llmcompass_allreduce",
    "infersim_*",
)
HEADER = """# log(measured / predicted) of groups of rows by constants that never saw the device: median, and
# half of the span from 5 to 95 %. Written by models/fidelity/fit_intervals.py from the complete tables.
"""
LEAST_ROWS = 10
"""Rows of a group whose quantiles say something."""


def residual_rows(reports: Iterable[GroupReport]) -> list[list[str]]:
    """Return class, device, table, group, format, rows, bias and half width of every group that a class learns from."""
    systems = {row["system"]: row["chip_id"] for row in read_rows(DATA / "collective_systems.csv")}
    rows = []
    for each in reports:
        found = interval_class(each.table, each.group, each.device, each.dtype)
        if found is None or not found[1] or each.rows < LEAST_ROWS or each.left_out_log_bias is None:
            continue
        rows.append([
            found[0], systems.get(each.device, each.device), each.table, each.group, each.dtype, str(each.rows),
            f"{each.left_out_log_bias:.4f}", f"{each.left_out_log_half_width:.4f}",
        ])  # fmt: skip
    return sorted(rows)


def main(directory: Path) -> None:
    """Validate all tables of operators below a folder and write `operator_residuals.csv`."""
    paths = sorted({path for glob in OPERATOR_TABLES for path in directory.rglob(f"{glob}.csv")})
    reports = [each.report for each in validate(paths).reports]
    with (DATA / "operator_residuals.csv").open("w", encoding="utf-8", newline="") as file:
        file.write(HEADER)
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["class", "device", "table", "group", "dtype", "rows", "log_bias", "log_half_width"])
        writer.writerows(residual_rows(reports))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
