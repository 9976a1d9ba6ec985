"""Closed-form cycles of systolic arrays against those of a public simulator."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from models.checks import BoolArray, FloatArray
from models.fidelity.report import GroupReport, TableError, TableReader, error_statistics
from models.fidelity.rows import read_measured
from models.hardware.design import Stationarity
from models.operators.systolic import systolic_cycles

DATAFLOWS = {"os": Stationarity.OUTPUT, "ws": Stationarity.WEIGHT, "is": Stationarity.INPUT}
STALL_FREE = "inf"
NUMBER_COLUMNS = ("array_rows", "array_cols", "m", "n", "k", "cycles")


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
    table = read_measured(path, ("dataflow", "bandwidth_words_per_cycle", *NUMBER_COLUMNS))
    values = np.stack([table.number(name) for name in NUMBER_COLUMNS])
    dataflow = table.text("dataflow")
    for line, name in zip(table.lines, dataflow, strict=True):
        if name not in DATAFLOWS:
            known = ", ".join(DATAFLOWS)
            raise TableError(f"dataflow must be one of {known}, got '{name}'", table.file, int(line), "dataflow")
    stall_free = table.text("bandwidth_words_per_cycle") == STALL_FREE
    present = [name for name in DATAFLOWS if (dataflow == name).any()]
    chosen = {name: dataflow == name for name in present}
    return [_dataflow_report(table.table, name, values[:, own], stall_free[own]) for name, own in chosen.items()]


def _dataflow_report(table: str, dataflow: str, values: FloatArray, stall_free: BoolArray) -> GroupReport:
    """Statistics of the stall-free rows of one dataflow; `values` are the rows of `NUMBER_COLUMNS`."""
    rows, columns, m, n, k, cycles = values[:, stall_free]
    predicted = systolic_cycles(rows, columns, m, n, k, float(DATAFLOWS[dataflow]))
    return GroupReport(
        table=table,
        group="stall_free",
        device=f"array_{dataflow}",
        dtype="one_word",
        quantity="cycles",
        constants="closed form",
        rows=int(stall_free.sum()),
        out_of_scope=int((~stall_free).sum()),
        **error_statistics(predicted, cycles),  # type: ignore[arg-type]
    )


TABLES: dict[str, TableReader] = {"systolic_cycles*.csv": systolic_reports}
