"""Predicted against real die areas: whole dies of a table of chips, and blocks read off annotated die photos."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from models.checks import FloatArray
from models.fidelity.area_rows import die_rows, nearest_target_mm2
from models.fidelity.chip_table import check_chip_table
from models.fidelity.report import PER_CHIP, UNSEEN, GroupReport, TableReader, error_statistics
from models.fidelity.rows import chip_id_of_rows, designs_of_chips, read_measured, table_name, with_known_devices
from models.hardware.area import area_breakdown_mm2, area_interval_mm2, die_area_mm2
from models.hardware.area_terms import physical_cores
from models.hardware.design import DesignBatch
from models.tables import DATA, read_rows

CORE_BLOCKS = ("matrix_arrays", "vector_lanes", "core_control", "register_files", "scratchpad")
Parts = Mapping[str, FloatArray]

BLOCKS: Mapping[str, Callable[[Parts, DesignBatch], FloatArray]] = {
    "cores": lambda parts, designs: _cores_mm2(parts) / designs.n_dies,
    "one_sm_core": lambda parts, designs: _cores_mm2(parts) / physical_cores(designs),
    "one_cu_core": lambda parts, designs: _cores_mm2(parts) / physical_cores(designs),
    "global_buffer": lambda parts, designs: parts["shared_buffer"] / designs.n_dies,
    "on_chip_interconnect": lambda parts, designs: parts["network_on_chip"] / designs.n_dies,
    "memory_phy_and_control": lambda parts, designs: parts["memory_interface"] / designs.n_dies,
    "offchip_link_phy": lambda parts, designs: parts["links"] / designs.n_dies,
    "other": lambda parts, designs: (parts["fixed"] + parts["host_interface"]) / designs.n_dies,
}
"""Block of a die photo -> the same silicon in the breakdown of one die [mm2]."""


def whole_die_reports(path: Path) -> Iterable[GroupReport]:
    """
    Report the die areas of a table with the columns of `chips.csv`: chips of the fit, others, and each on its own.

    An area known only within bounds is compared with the nearer bound, or counts as met inside them. The interval
    is judged around the area by constants that never saw the die.
    """
    check_chip_table(path)
    rows = die_rows(path)
    skipped = [{"reason": reason, "rows": count} for reason, count in Counter(r for _, r in rows.skipped).items()]
    if not rows.ids:
        yield GroupReport(table_name(path.name), "whole die", "", "", "area", "global", rows=0, skipped=skipped)
        return
    predicted = die_area_mm2(rows.designs)
    known = left_out_mm2()
    left_out = np.array([known.get(chip_id, area) for chip_id, area in zip(rows.ids, predicted, strict=True)])
    low, high = area_interval_mm2(rows.designs)
    factor = np.sqrt(high / low)
    target = nearest_target_mm2(predicted, rows)
    left_out_target = nearest_target_mm2(left_out, rows)
    around = _around(left_out, factor, target, left_out_target)
    left_out = left_out * target / left_out_target

    def report(group: str, device: str, chosen: np.ndarray, note: str = "") -> GroupReport:
        interval = (around[0][chosen], around[1][chosen])
        statistics = error_statistics(predicted[chosen], target[chosen], left_out=left_out[chosen], interval=interval)
        return GroupReport(
            table_name(path.name), group, device, "", "area", "global", rows=len(chosen), note=note,
            **statistics,  # type: ignore[arg-type]
        )  # fmt: skip

    seen = np.array([chip_id in known for chip_id in rows.ids])
    for group, chosen in (("whole die", seen), (f"whole die{UNSEEN}", ~seen)):
        if chosen.any():
            yield replace(report(group, "all", np.flatnonzero(chosen), "bounds scored one-sided"), skipped=skipped)
            skipped = []
    for i, chip_id in enumerate(rows.ids):
        yield replace(
            report(PER_CHIP, chip_id, np.array([i])), measured=float(target[i]), predicted=float(predicted[i]),
            leave_one_device_out_predicted=float(left_out[i]),
        )  # fmt: skip


def die_block_reports(path: Path) -> Iterable[GroupReport]:
    """Report the blocks of dissected dies, one group per device; the fit did not use them."""
    rows = with_known_devices(read_measured(path, ["device", "component", "area_mm2"]))
    components, chips, devices = rows.text("component"), chip_id_of_rows(rows), rows.text("device")
    area = rows.number("area_mm2", or_zero=True)
    unknown = list(rows.skipped)
    designs = designs_of_chips(chips)
    parts = area_breakdown_mm2(designs)
    for device in dict.fromkeys(devices.tolist()):
        measured, predicted, skipped, unknown = [], [], unknown, []
        here = devices == device
        blocks = list(_blocks(components[here], area[here], np.flatnonzero(here)))
        if len(blocks) < here.sum():
            skipped.append({"reason": "one block with the memory's PHY", "rows": int(here.sum()) - len(blocks)})
        for component, block_mm2, i in blocks:
            area_mm2 = float(BLOCKS[component](parts, designs)[i]) if component in BLOCKS else 0.0
            if area_mm2 <= 0 or block_mm2 <= 0:
                reason = "counted elsewhere" if block_mm2 <= 0 else f"no such block in the model: {component}"
                skipped.append({"reason": reason, "rows": 1})
                continue
            measured.append(block_mm2)
            predicted.append(area_mm2)
        statistics = error_statistics(np.array(predicted), np.array(measured))
        yield GroupReport(
            rows.table, "blocks", device, "", "area", "global", rows=len(measured), skipped=skipped,
            **statistics,  # type: ignore[arg-type]
        )  # fmt: skip


@functools.cache
def left_out_mm2() -> Mapping[str, float]:
    """Return chip id -> area by constants fitted without its die [mm2]."""
    rows = read_rows(DATA / "constants" / "area_left_out.csv")
    return {row["id"]: float(row["left_out_mm2"]) for row in rows}


def _around(
    centre: FloatArray, factor: FloatArray, target: FloatArray, centre_target: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Interval around the left-out area, moved so that it is judged against that area's own nearest bound."""
    moved = centre * target / centre_target
    return moved / factor, moved * factor


def _cores_mm2(parts: Parts) -> FloatArray:
    return np.asarray(sum((parts[name] for name in CORE_BLOCKS), np.zeros_like(parts["matrix_arrays"])))


def _blocks(components: np.ndarray, area_mm2: FloatArray, index: np.ndarray) -> Iterable[tuple[str, float, int]]:
    """Blocks of one die; PHY and controller of the memory are one block, since photos divide them differently."""
    memory_mm2 = 0.0
    for component, block_mm2, i in zip(components.tolist(), area_mm2.tolist(), index.tolist(), strict=True):
        if component in ("memory_phy", "memory_control"):
            memory_mm2 += block_mm2
        else:
            yield component, block_mm2, i
    if memory_mm2:
        yield "memory_phy_and_control", memory_mm2, int(index[0])


TABLES: dict[str, TableReader] = {
    "chips.csv": whole_die_reports,
    "llmcompass_die_area*.csv": die_block_reports,
}
