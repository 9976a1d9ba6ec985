"""Elementwise tables: predicted times of vidur's device kernels and LLMCompass's timed framework calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from models.checks import FloatArray
from models.fidelity.fitting import constants_without, merged_constants
from models.fidelity.grouped import Labels, calibrated_prediction, grouped_reports, left_out_prediction
from models.fidelity.report import GroupReport, TableError, TableReader
from models.fidelity.rows import (
    ELEMENT_BYTES,
    MeasuredRows,
    StringArray,
    chip_id_of_rows,
    designs_of_chips,
    element_bytes,
    read_measured,
    with_known,
    with_known_devices,
)
from models.hardware.design import DesignBatch, take
from models.operators.calibration import Calibration
from models.operators.elementwise import ELEMENTWISE, elementwise_time_s

COLUMNS = ("device", "op", "rows", "cols", "dtype", "latency_us", "source")
FAMILIES = ("elementwise", "elementwise_sources")

OPERATOR_OF = {
    "add": "residual",
    "emb": "embedding",
    "mlp_act": "activation",
    "attn_rope": "rope",
    "input_layernorm": "norm",
    "post_attention_layernorm": "norm",
    "softmax": "softmax",
    "layernorm": "layer_norm",
    "gelu": "activation",
}
"""Names of the tables -> key of `ELEMENTWISE`."""

UNGATED = ("phi-2", "llmcompass")
"""Sources whose activation reads one operand; in the others it multiplies two halves."""

PARALLEL_RESIDUAL = "phi-2"
"""Source whose network adds attention and MLP to the residual in two kernels, and normalises with a mean."""


@dataclass(frozen=True)
class ElementwiseRows:
    """Sizes of measured calls with the design of each; sizes of shape (n_rows,)."""

    rows: MeasuredRows
    designs: DesignBatch
    chip_id: StringArray
    operator: StringArray
    elements: FloatArray
    traffic_bytes: FloatArray
    n_rows: FloatArray
    n_kernels: FloatArray
    measured_s: FloatArray

    def take(self, index: np.ndarray) -> ElementwiseRows:
        """Return the rows at `index`."""
        return ElementwiseRows(
            self.rows.take(index), take(self.designs, index), self.chip_id[index], self.operator[index],
            self.elements[index], self.traffic_bytes[index], self.n_rows[index], self.n_kernels[index],
            self.measured_s[index],
        )  # fmt: skip


def elementwise_rows(path: Path) -> ElementwiseRows:
    """Read `vidur_elementwise.csv` or `llmcompass_elementwise.csv`."""
    rows = with_known_devices(read_measured(path, COLUMNS))
    rows = with_known(rows, "dtype", ELEMENT_BYTES)
    op = rows.text("op")
    unknown = np.flatnonzero(~np.isin(op, list(OPERATOR_OF)))
    if unknown.size:
        rule = f"op '{op[unknown[0]]}' must be one of {', '.join(OPERATOR_OF)}"
        raise TableError(rule, rows.file, int(rows.lines[unknown[0]]), "op")
    operator = np.array([OPERATOR_OF[str(name)] for name in op])
    parallel = np.char.find(rows.text("source"), PARALLEL_RESIDUAL) >= 0
    operator = np.where(parallel & (operator == "norm"), "layer_norm", operator)
    ungated = (operator == "activation") & np.any([np.char.find(rows.text("source"), s) >= 0 for s in UNGATED], axis=0)
    passes = np.array([ELEMENTWISE[str(name)].reads + ELEMENTWISE[str(name)].writes for name in operator]) - ungated
    elements = rows.number("rows") * rows.number("cols")
    chip_id = chip_id_of_rows(rows)
    moved = passes * element_bytes(rows.text("dtype")) * elements
    return ElementwiseRows(
        rows, designs_of_chips(chip_id), chip_id, operator, elements, moved,
        rows.number("rows"), np.where(parallel & (operator == "residual"), 2.0, 1.0), rows.number("latency_us") * 1e-6,
    )  # fmt: skip


def predicted_time_s(rows: ElementwiseRows, values: Mapping[str, float]) -> FloatArray:
    """
    Predicted time of every row, shape (n_rows,) [s].

    LLMCompass timed framework calls from the host: its rows start after a floor of their own per operator.
    """
    predicted = np.empty(len(rows.measured_s))
    host = np.char.startswith(rows.rows.text("source"), "llmcompass")
    for operator in np.unique(rows.operator):
        own = rows.operator == operator
        part = rows.take(own)
        start = np.full(len(part.measured_s), values[f"{operator}_start_s"])
        start[host[own]] = values.get(f"llmcompass_{operator}_start_s", 0.0)
        kernel_s = elementwise_time_s(
            part.designs, str(operator), part.elements[:, None], part.traffic_bytes[:, None],
            rows=part.n_rows[:, None], start_s=0.0, constants=values,
        )[:, 0]  # fmt: skip
        predicted[own] = part.n_kernels * (start + kernel_s)
    return predicted


def time_under_s(rows: ElementwiseRows, calibration: Calibration) -> FloatArray:
    """Predicted time of every row with the constants of its operator's family, shape (n_rows,) [s]."""
    predicted = np.empty(len(rows.measured_s))
    for operator in np.unique(rows.operator):
        own = np.flatnonzero(rows.operator == operator)
        predicted[own] = predicted_time_s(rows.take(own), calibration.vector(str(operator)))
    return predicted


def elementwise_reports(path: Path) -> list[GroupReport]:
    """Reports of one table, one group per operator of the table."""
    return elementwise_row_reports(elementwise_rows(path))


def elementwise_row_reports(rows: ElementwiseRows) -> list[GroupReport]:
    """Reports of rows, one group per operator as the table names it."""
    values = merged_constants(FAMILIES)
    predicted = predicted_time_s(rows, values)
    left_out = left_out_prediction(
        predicted, rows.chip_id, lambda chip: constants_without(FAMILIES, chip), lambda v: predicted_time_s(rows, v)
    )
    roofline = rows.traffic_bytes / rows.designs.memory_bandwidth_bytes_per_s
    labels = Labels(rows.rows.text("op"), rows.chip_id, rows.rows.text("dtype"))
    return grouped_reports(
        rows.rows,
        labels,
        rows.measured_s,
        predicted,
        roofline,
        left_out,
        calibrated=calibrated_prediction(rows.rows.table, rows.chip_id, lambda used: time_under_s(rows, used)),
    )


TABLES: dict[str, TableReader] = {
    "vidur_elementwise*.csv": elementwise_reports,
    "llmcompass_elementwise*.csv": elementwise_reports,
}
