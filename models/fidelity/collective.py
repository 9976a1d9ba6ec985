"""Collective tables: NCCL sweeps of whole systems, engines' own all-reduce, frameworks timed from the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from models.checks import BoolArray, FloatArray
from models.fidelity.fitting import constants_without, merged_constants
from models.fidelity.grouped import Labels, calibrated_prediction, grouped_reports, left_out_prediction, with_skipped
from models.fidelity.report import GroupReport, TableError, TableReader
from models.fidelity.rows import (
    MeasuredRows,
    StringArray,
    chip_id_of_rows,
    designs_of_chips,
    read_measured,
    with_known_devices,
)
from models.hardware.design import DesignBatch, take
from models.operators.collective import collective_latency_ratio, collective_time_s, wire_bytes
from models.operators.smooth import smooth_maximum
from models.tables import DATA, read_rows

FAMILIES = ("collective", "collective_sources")
KIND_OF = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "send_recv": "send_recv",
    "point-to-point KV cache transfer": "send_recv",
}
"""Names of the tables -> key of `COLLECTIVES`."""

NOTES = {
    "pcie": "how the host shares its links is an input, read off these same rows",
    "engine_sglang": "rows of one size and chip differ up to sixfold by a mode that the table does not record",
    "engine_vllm": "rows of one size and chip differ up to sixfold by a mode that the table does not record",
}
"""What a reader of a group's errors must know."""

AIC_COLUMNS = ("device", "op", "impl", "n_devices", "message_elements", "elem_bytes", "latency_us", "source")

IN_SWITCH_CHIPS = 8
"""Chips from which NCCL reduces in the switch, for elements of two bytes and more on links of the newer kind."""


@dataclass(frozen=True)
class CollectiveRows:
    """Sizes of measured calls with the design of each, of shape (n_rows,)."""

    rows: MeasuredRows
    designs: DesignBatch
    device: StringArray
    chip_id: StringArray
    kind: StringArray
    group: StringArray
    dtype: StringArray
    n_chips: FloatArray
    message_bytes: FloatArray
    link_bytes_per_s: FloatArray
    in_switch: BoolArray
    host_sharing_exponent: FloatArray
    """Stated for the host of a chip without links, else not a number."""
    floor: StringArray
    """Name of the constant under which a harness hides short calls, or empty."""
    engine: StringArray
    """Serving engine that runs its own all-reduce beside NCCL's, or empty."""
    measured_s: FloatArray

    def take(self, index: BoolArray | np.ndarray) -> CollectiveRows:
        """Return the rows at `index`."""
        arrays = {
            name: getattr(self, name)[index] for name in self.__dataclass_fields__ if name not in ("rows", "designs")
        }
        return replace(self, rows=self.rows.take(index), designs=take(self.designs, index), **arrays)


def _rows(
    rows: MeasuredRows,
    chip_id: StringArray,
    *,
    device: StringArray,
    group: StringArray,
    dtype: StringArray,
    n_chips: FloatArray,
    message_bytes: FloatArray,
    measured_s: FloatArray,
    in_switch: BoolArray | None = None,
    link_bytes_per_s: FloatArray | None = None,
    floor: StringArray | None = None,
    engine: StringArray | None = None,
) -> CollectiveRows:
    op = rows.text("op")
    unknown = np.flatnonzero(~np.isin(op, list(KIND_OF)))
    if unknown.size:
        rule = f"op '{op[unknown[0]]}' must be one of {', '.join(KIND_OF)}"
        raise TableError(rule, rows.file, int(rows.lines[unknown[0]]), "op")
    designs = designs_of_chips(chip_id)
    return CollectiveRows(
        rows=rows,
        designs=designs,
        device=device,
        chip_id=chip_id,
        kind=np.array([KIND_OF[str(name)] for name in op]),
        group=group,
        dtype=dtype,
        n_chips=n_chips,
        message_bytes=message_bytes,
        link_bytes_per_s=designs.scale_up_bytes_per_s if link_bytes_per_s is None else link_bytes_per_s,
        in_switch=np.zeros(len(rows), dtype=np.bool_) if in_switch is None else in_switch,
        host_sharing_exponent=_host_sharing_exponent(device),
        floor=np.full(len(rows), "", dtype="U40") if floor is None else floor,
        engine=np.full(len(rows), "", dtype="U40") if engine is None else engine,
        measured_s=measured_s,
    )


def _systems() -> dict[str, dict[str, str]]:
    return {row["system"]: row for row in read_rows(DATA / "collective_systems.csv")}


def _host_sharing_exponent(device: StringArray) -> FloatArray:
    stated = {name: row["host_sharing_exponent"] for name, row in _systems().items() if row["host_sharing_exponent"]}
    return np.array([float(stated.get(str(name), "nan")) for name in device])


def aiconfigurator_rows(path: Path) -> CollectiveRows:
    """Read `aic_collectives.csv`: group `nccl`, `pcie` without links, `engine_x` for x's own kernels."""
    rows = with_known_devices(read_measured(path, AIC_COLUMNS))
    chip_id = chip_id_of_rows(rows)
    element_bytes, n_chips = rows.number("elem_bytes"), rows.number("n_devices")
    designs = designs_of_chips(chip_id)
    custom = np.char.find(rows.text("source"), "custom") >= 0
    linked = designs.scale_up_bytes_per_s > 0
    engine = np.array([str(name).split("-", 1)[0] for name in rows.text("impl")])
    return _rows(
        rows,
        chip_id,
        device=chip_id,
        group=np.where(custom, np.char.add("engine_", engine), np.where(linked, "nccl", "pcie")),
        dtype=np.char.add(rows.text("elem_bytes"), "B"),
        n_chips=n_chips,
        message_bytes=rows.number("message_elements") * element_bytes,
        measured_s=rows.number("latency_us") * 1e-6,
        in_switch=(n_chips >= IN_SWITCH_CHIPS) & (element_bytes >= 2) & (designs.bulk_async_copy > 0) & linked,
        engine=np.where(custom, engine, "").astype("U40"),
    )


def llmcompass_rows(path: Path) -> CollectiveRows:
    """Read `llmcompass_allreduce.csv`."""
    rows = with_known_devices(read_measured(path, ("device", "op", "n_devices", "size_bytes", "latency_us")))
    chip_id = chip_id_of_rows(rows)
    return _rows(
        rows,
        chip_id,
        device=chip_id,
        group=np.full(len(rows), "all_reduce"),
        dtype=np.full(len(rows), "2B"),
        n_chips=rows.number("n_devices"),
        message_bytes=rows.number("size_bytes"),
        measured_s=rows.number("latency_us") * 1e-6,
    )


def vidur_rows(path: Path) -> tuple[CollectiveRows, int]:
    """Read `vidur_collectives.csv`; rows that leave the linked group of chips are counted and left out."""
    rows = read_measured(path, ("system", "op", "n_devices", "devices_per_node", "size_bytes", "latency_us"))
    known = _systems()
    systems = rows.text("system")
    unknown = np.flatnonzero(~np.isin(systems, list(known)))
    if unknown.size:
        rule = f"system '{systems[unknown[0]]}' must be one of {', '.join(known)}"
        raise TableError(rule, rows.file, int(rows.lines[unknown[0]]), "system")
    linked = np.array([float(known[str(system)]["linked_chips"]) for system in systems])
    n_chips = rows.number("n_devices")
    inside = (n_chips <= linked) & (rows.number("devices_per_node") == n_chips)
    kept, systems = rows.take(inside), systems[inside]
    chip_id = np.array([known[str(system)]["chip_id"] for system in systems])
    link = np.array([float(known[str(system)]["link_bytes_per_s"]) for system in systems])
    op = kept.text("op")
    return _rows(
        kept,
        chip_id,
        device=systems,
        group=op,
        dtype=np.full(len(kept), ""),
        n_chips=n_chips[inside],
        message_bytes=kept.number("size_bytes"),
        measured_s=kept.number("latency_us") * 1e-6,
        link_bytes_per_s=link,
        floor=np.where(op == "all_reduce", "vidur_all_reduce_floor_s", "").astype("U40"),
    ), int((~inside).sum())


def transfer_rows(path: Path) -> CollectiveRows:
    """Read `interconnect_throughput.csv`: cache transfers over a network whose line rate the row states."""
    rows = read_measured(path, ("device", "op", "n_devices", "message_bytes", "time_ms", "link_gb_per_s_per_direction"))
    reference = np.full(len(rows), "h100_sxm")
    return _rows(
        rows,
        reference,
        device=rows.text("device"),
        group=np.full(len(rows), "transfer"),
        dtype=np.full(len(rows), ""),
        n_chips=rows.number("n_devices"),
        message_bytes=rows.number("message_bytes"),
        measured_s=rows.number("time_ms") * 1e-3,
        link_bytes_per_s=rows.number("link_gb_per_s_per_direction") * 1e9,
        floor=np.full(len(rows), "transfer_start_s", dtype="U40"),
    )


def predicted_time_s(rows: CollectiveRows, values: Mapping[str, float]) -> FloatArray:
    """Predicted time of every row, shape (n_rows,) [s]; a harness floor hides what is shorter."""
    predicted = np.empty(len(rows.measured_s))
    for kind, engine in sorted(set(zip(rows.kind.tolist(), rows.engine.tolist(), strict=True))):
        own = (rows.kind == kind) & (rows.engine == engine)
        part = rows.take(own)
        sharing = np.where(
            np.isnan(part.host_sharing_exponent), values["host_sharing_exponent"], part.host_sharing_exponent
        )
        predicted[own] = collective_time_s(
            kind, part.n_chips[:, None], part.message_bytes[:, None], part.link_bytes_per_s,
            host_bytes_per_s=part.designs.host_bytes_per_s, host_sharing_exponent=sharing,
            latency_scale_ratio=collective_latency_ratio(part.designs, values),
            in_switch_reduction=part.in_switch[:, None],
            one_shot_start_s=values[f"{engine}_one_shot_start_s"] if engine else None, constants=values,
        )[:, 0]  # fmt: skip
        if engine:
            predicted[own] = np.maximum(predicted[own], values[f"{engine}_one_shot_start_s"])
    for name in np.unique(rows.floor[rows.floor != ""]):
        own = rows.floor == name
        exponent = 1.0 if str(name).endswith("_start_s") else 3.0
        predicted[own] = smooth_maximum(predicted[own], np.asarray(values[str(name)]), exponent)
    return predicted


def roofline_s(rows: CollectiveRows) -> FloatArray:
    """Wire bytes over the link's peak, shape (n_rows,) [s]."""
    rate = np.where(rows.link_bytes_per_s > 0, rows.link_bytes_per_s, rows.designs.host_bytes_per_s)
    moved = np.empty(len(rate))
    for kind in np.unique(rows.kind):
        own = rows.kind == kind
        moved[own] = wire_bytes(str(kind), rows.n_chips[own], rows.message_bytes[own])
    return moved / rate


def collective_reports(rows: CollectiveRows, n_skipped: int = 0, reason: str = "") -> list[GroupReport]:
    """Reports of one table; rows that cannot be predicted are counted in the first group with their reason."""
    values = merged_constants(FAMILIES)
    predicted = predicted_time_s(rows, values)
    left_out = left_out_prediction(
        predicted, rows.chip_id, lambda chip: constants_without(FAMILIES, chip), lambda v: predicted_time_s(rows, v)
    )
    labels = Labels(rows.group, rows.device, rows.dtype)
    reports = grouped_reports(
        rows.rows, labels, rows.measured_s, predicted, roofline_s(rows), left_out, notes=NOTES,
        calibrated=calibrated_prediction(
            rows.rows.table, rows.device, lambda used: predicted_time_s(rows, used.constants("collectives"))
        ),
    )  # fmt: skip
    if not n_skipped:
        return reports
    return with_skipped(reports, rows.rows.table, [{"reason": reason, "rows": n_skipped}])


TABLES: dict[str, TableReader] = {
    "aic_collectives*.csv": lambda path: collective_reports(aiconfigurator_rows(path)),
    "llmcompass_allreduce*.csv": lambda path: collective_reports(llmcompass_rows(path)),
    "vidur_collectives*.csv": lambda path: collective_reports(
        *vidur_rows(path), "chips beyond the linked group: the network between them is not recorded"
    ),
    "interconnect_throughput*.csv": lambda path: collective_reports(transfer_rows(path)),
}
