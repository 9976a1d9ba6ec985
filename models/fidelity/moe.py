"""Tables of expert MLPs: whole routed layers (aiconfigurator) and single grouped GEMMs (InferSim)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from models.checks import BoolArray, FloatArray, IntArray
from models.fidelity.fitting import constants_without, merged_constants
from models.fidelity.grouped import Labels, calibrated_prediction, grouped_reports, left_out_prediction
from models.fidelity.moe_routing import routed_load
from models.fidelity.report import GroupReport, TableReader
from models.fidelity.rows import (
    ELEMENT_BYTES,
    MeasuredRows,
    StringArray,
    chip_id_of_rows,
    designs_of_chips,
    element_bytes,
    rate_ratio,
    read_measured,
    with_known,
    with_known_devices,
)
from models.hardware.design import DesignBatch, peak_flop_per_s, take
from models.operators.moe import grouped_gemm_time_s, local_expert_mlp_time_s
from models.tables import DATA, read_rows

FAMILIES = ("moe", "moe_sources")
LAYER_COLUMNS = (
    "device", "tokens", "hidden", "inter", "topk", "n_experts", "tp", "ep", "dtype", "routing", "latency_us",
)  # fmt: skip
GROUPED_COLUMNS = (
    "device", "op", "phase", "n_local_experts", "hidden", "inter", "tokens_per_expert", "latency_us",
)  # fmt: skip
FALLBACK_BOUND_S = 3e-5
FALLBACK_START_S = 3e-5
FALLBACK_ROWS_PER_EXPERT = 16.0
FALLBACK_RATIO = 3.0
FALLBACK_NOTE = (
    "series of one network, split, format and routing whose every weight-bound row takes, after 30 us, more than three "
    "times what reading its weights takes; such rows lie at 1.1 or at 5 to 7 times and hardly between: an untuned "
    "kernel. Kept apart by this rule on the data alone, and not fitted"
)


@dataclass(frozen=True)
class ExpertRows:
    """Sizes of measured calls with the design of each, of shape (n_rows,)."""

    rows: MeasuredRows
    designs: DesignBatch
    chip_id: StringArray
    dtype: StringArray
    active_experts: FloatArray
    routed_rows: FloatArray
    hidden: FloatArray
    inter: FloatArray
    local_experts: FloatArray
    routed_choices: FloatArray
    gated: BoolArray
    weight_bytes: FloatArray
    rate_ratio: FloatArray
    measured_s: FloatArray

    def take(self, index: BoolArray | IntArray) -> ExpertRows:
        """Return the rows at `index`."""
        arrays = {
            name: getattr(self, name)[index] for name in self.__dataclass_fields__ if name not in ("rows", "designs")
        }
        return replace(self, rows=self.rows.take(index), designs=take(self.designs, index), **arrays)

    @property
    def macs_per_row(self) -> FloatArray:
        """Multiply-accumulates of one routed row, shape (n_rows,) [1]."""
        return np.where(self.gated, 3.0, 2.0) * self.hidden * self.inter


def aiconfigurator_rows(path: Path) -> ExpertRows:
    """Read `aic_moe.csv`."""
    rows = with_known(with_known_devices(read_measured(path, LAYER_COLUMNS)), "dtype", ELEMENT_BYTES)
    chip_id = chip_id_of_rows(rows)
    designs = designs_of_chips(chip_id)
    active, routed = routed_load(rows)
    names = ("hidden", "inter", "n_experts", "topk")
    ungated = {
        tuple(float(row[name]) for name in ("hidden", "inter", "n_experts", "top_k"))
        for row in read_rows(DATA / "moe_ungated_networks.csv")
    }
    sizes = np.column_stack([rows.number(name) for name in names])
    weight_bytes = element_bytes(rows.text("dtype"))
    return ExpertRows(
        rows=rows,
        designs=designs,
        chip_id=chip_id,
        dtype=rows.text("dtype"),
        active_experts=active,
        routed_rows=routed,
        hidden=rows.number("hidden"),
        inter=rows.number("inter") / rows.number("tp"),
        local_experts=rows.number("n_experts") / rows.number("ep"),
        routed_choices=rows.number("tokens") * rows.number("topk"),
        gated=np.array([tuple(row) not in ungated for row in sizes]),
        weight_bytes=weight_bytes,
        rate_ratio=rate_ratio(designs, weight_bytes),
        measured_s=rows.number("latency_us") * 1e-6,
    )


def infersim_rows(path: Path) -> ExpertRows:
    """Read `infersim_grouped_gemm.csv`: fp8, one grouped GEMM a row, every local expert active."""
    rows = with_known_devices(read_measured(path, GROUPED_COLUMNS))
    chip_id = chip_id_of_rows(rows)
    designs = designs_of_chips(chip_id)
    local = rows.number("n_local_experts")
    routed = local * rows.number("tokens_per_expert")
    return ExpertRows(
        rows=rows,
        designs=designs,
        chip_id=chip_id,
        dtype=np.full(len(rows), "fp8"),
        active_experts=local,
        routed_rows=routed,
        hidden=rows.number("hidden"),
        inter=rows.number("inter"),
        local_experts=local,
        routed_choices=routed,
        gated=rows.text("op") == "grouped_gemm_up",
        weight_bytes=np.ones(len(rows)),
        rate_ratio=rate_ratio(designs, np.ones(len(rows))),
        measured_s=rows.number("latency_us") * 1e-6,
    )


def layer_time_s(rows: ExpertRows, values: Mapping[str, float]) -> FloatArray:
    """Predicted time of routed layers, shape (n_rows,) [s]."""
    column = _columns(rows)
    predicted = local_expert_mlp_time_s(
        rows.designs, column["active_experts"], column["routed_rows"], column["hidden"], column["inter"],
        column["local_experts"], column["routed_choices"], weight_bytes_per_element=column["weight_bytes"],
        matrix_rate_ratio=column["rate_ratio"], gated=column["gated"], constants=values,
    )  # fmt: skip
    return np.asarray(predicted[:, 0])


def grouped_gemm_rows_time_s(rows: ExpertRows, values: Mapping[str, float]) -> FloatArray:
    """Predicted time of single grouped GEMMs of the InferSim harness, shape (n_rows,) [s]."""
    column = _columns(rows)
    up = column["gated"]
    own = dict(values) | {
        name: values[f"infersim_{name}"] for name in ("matrix_efficiency_fraction", "padding_rows_per_expert")
    }
    predicted = grouped_gemm_time_s(
        rows.designs, column["active_experts"], column["routed_rows"],
        np.where(up, 2.0 * column["inter"], column["hidden"]), np.where(up, column["hidden"], column["inter"]),
        column["weight_bytes"], column["rate_ratio"], constants=own,
    )  # fmt: skip
    return np.asarray(values["infersim_start_s"] + predicted[:, 0])


def is_fallback(rows: ExpertRows) -> BoolArray:
    """Rows of series that ran an untuned kernel by the rule of `FALLBACK_NOTE`, shape (n_rows,)."""
    names = ("device", "hidden", "inter", "topk", "n_experts", "tp", "ep", "dtype", "routing")
    _, series = np.unique(np.column_stack([rows.rows.text(name) for name in names]), axis=0, return_inverse=True)
    weights_s, compute_s = _bounds(rows)
    few_rows = rows.routed_rows <= FALLBACK_ROWS_PER_EXPERT * rows.active_experts
    judged = few_rows & (weights_s > FALLBACK_BOUND_S) & (weights_s > compute_s)
    best = np.full(series.max() + 1, np.inf)
    np.minimum.at(best, series[judged], ((rows.measured_s - FALLBACK_START_S) / weights_s)[judged])
    return np.asarray(np.isfinite(best[series]) & (best[series] > FALLBACK_RATIO))


def layer_reports(path: Path) -> list[GroupReport]:
    """Reports of routed layers: `tuned` and `fallback` kernels."""
    rows = aiconfigurator_rows(path)
    group = np.where(is_fallback(rows), "fallback", "tuned")
    return _reports(rows, group, layer_time_s, {"fallback": FALLBACK_NOTE})


def grouped_gemm_reports(path: Path) -> list[GroupReport]:
    """Reports of single grouped GEMMs by phase."""
    rows = infersim_rows(path)
    return _reports(rows, rows.rows.text("phase"), grouped_gemm_rows_time_s, {})


def _reports(rows: ExpertRows, group: StringArray, model: Any, notes: Mapping[str, str]) -> list[GroupReport]:
    values = merged_constants(FAMILIES)
    predicted = model(rows, values)
    left_out = left_out_prediction(
        predicted, rows.chip_id, lambda chip: constants_without(FAMILIES, chip), lambda v: model(rows, v)
    )
    roofline = np.maximum(*_bounds(rows))
    labels = Labels(group, rows.chip_id, rows.dtype)
    return grouped_reports(
        rows.rows, labels, rows.measured_s, predicted, roofline, left_out, notes=notes,
        calibrated=calibrated_prediction(
            rows.rows.table, rows.chip_id, lambda used: model(rows, used.constants("experts"))
        ),
    )  # fmt: skip


def _bounds(rows: ExpertRows) -> tuple[FloatArray, FloatArray]:
    """Reading the active weights, and multiplying at peak, each of shape (n_rows,) [s]."""
    per_row = rows.macs_per_row
    if "op" in rows.rows.columns and np.char.startswith(rows.rows.text("op"), "grouped_gemm").all():
        per_row = np.where(rows.gated, 2.0, 1.0) * rows.hidden * rows.inter
    weights_s = rows.active_experts * per_row * rows.weight_bytes / rows.designs.memory_bandwidth_bytes_per_s
    return weights_s, 2.0 * rows.routed_rows * per_row / (peak_flop_per_s(rows.designs) * rows.rate_ratio)


def _columns(rows: ExpertRows) -> dict[str, FloatArray]:
    names = ("active_experts", "routed_rows", "hidden", "inter", "local_experts", "routed_choices", "gated",
             "weight_bytes", "rate_ratio")  # fmt: skip
    return {name: getattr(rows, name)[:, None] for name in names}


TABLES: dict[str, TableReader] = {
    "aic_moe*.csv": layer_reports,
    "infersim_grouped_gemm*.csv": grouped_gemm_reports,
}
