"""Closed-form cycles of systolic arrays against those of a public simulator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from models.fidelity.gemm_rows import checked_rows
from models.fidelity.report import GroupReport, TableError, TableReader, error_statistics
from models.hardware.design import Stationarity
from models.operators.systolic import systolic_cycles

DATAFLOWS = {"os": Stationarity.OUTPUT, "ws": Stationarity.WEIGHT, "is": Stationarity.INPUT}
STALL_FREE = "inf"


def systolic_reports(path: Path) -> Iterable[GroupReport]:
    """
    Return one report per dataflow over the stall-free rows of a table of simulated cycles.

    Rows with a finite bandwidth are end-to-end times of memory systems that the closed form does not describe;
    they are counted as out of scope.

    Raises
    ------
    TableError
        If the file is not such a table.
    """
    numbers = ("array_rows", "array_cols", "m", "n", "k", "cycles")
    rows = checked_rows(path, numbers, ("tool", "dataflow", "bandwidth_words_per_cycle"))
    for row in rows:
        if row["dataflow"] not in DATAFLOWS:
            raise TableError(f"{path.name}: dataflow must be one of {', '.join(DATAFLOWS)}, got '{row['dataflow']}'")
    finite = Counter(row["dataflow"] for row in rows if row["bandwidth_words_per_cycle"] != STALL_FREE)
    reports = []
    for dataflow, kind in DATAFLOWS.items():
        chosen = [row for row in rows if row["dataflow"] == dataflow and row["bandwidth_words_per_cycle"] == STALL_FREE]
        if not chosen and not finite[dataflow]:
            continue
        column = {name: np.array([row[name] for row in chosen]) for name in numbers}
        cycles = [column[name] for name in numbers[:5]]
        predicted = systolic_cycles(*cycles, float(kind)) if chosen else np.empty(0)
        statistics = error_statistics(predicted, column["cycles"])
        reports.append(
            GroupReport(
                path.stem,
                "stall_free",
                f"array_{dataflow}",
                "one_word",
                "cycles",
                "closed form",
                len(chosen),
                out_of_scope=finite[dataflow],
                **statistics,  # type: ignore[arg-type]
            )
        )
    return reports


TABLES: dict[str, TableReader] = {"systolic_cycles*.csv": systolic_reports}
