"""Measured power: GEMMs with the board's mean power, and best shapes whose rate shows the sustained clock."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from models.checks import BoolArray, FloatArray, IntArray
from models.fidelity.gemm_rows import FORMAT_OF_DTYPE, OPERAND_BYTES
from models.fidelity.rows import (
    MeasuredRows,
    StringArray,
    chip_id_of_rows,
    designs_of_chips,
    rate_ratio,
    read_measured,
    with_known,
    with_known_devices,
)
from models.hardware.design import DesignBatch, peak_flop_per_s, take
from models.hardware.energy import energy_per_access
from models.hardware.power import sustained_slowdown
from models.operators.gemm import effective_l2_bytes, gemm_buffer_bytes, gemm_dram_bytes
from models.technology import Technology

OUTPUT_BYTES = 2.0
ROTATED_WEIGHTS = 5.0
"""Sets of weights that the harness uses in turn, at most (notes of the source)."""
WIDE_BYTES = 2.0
QUANTISED_READS = {"fp8": 2.0, "fp8_block": 1.0, "nvfp4": 1.0, "fp4": 1.0}
"""Passes over the wide activations that the measured run includes: one scale for all needs a pass of its own before
the conversion, a scale for each block does not."""
NEIGHBOUR_ROWS_RATIO = 2.0
NEIGHBOUR_POWER_RATIO = 1.08
"""A row is steady where another with the same n, k and up to twice the m shows the same power within this factor."""
BEST_SHAPE_PREFIX = "gemm-best"
BEST_SHAPE_FORMATS = ("BF16", "FP8")


@dataclass(frozen=True)
class PowerRows:
    """GEMMs with mean board power, arrays of shape (n_rows,); `chip` indexes `designs`."""

    ids: tuple[str, ...]
    designs: DesignBatch
    chip: IntArray
    dtype: StringArray
    number_format: StringArray
    m: FloatArray
    n: FloatArray
    k: FloatArray
    latency_s: FloatArray
    power_w: FloatArray
    limit_w: FloatArray
    steady: BoolArray
    dram_bytes: FloatArray
    l2_bytes: FloatArray
    """Bytes that the cores fetch from the shared buffer beyond those from main memory."""
    table: str
    skipped: list[dict[str, Any]]
    """Rows of unknown devices and formats."""


@dataclass(frozen=True)
class BestShapeRows:
    """Best GEMM shape of each device and format, arrays of shape (n_rows,); `chip` indexes `designs`."""

    ids: tuple[str, ...]
    designs: DesignBatch
    chip: IntArray
    device: StringArray
    dtype: StringArray
    number_format: StringArray
    m: FloatArray
    n: FloatArray
    k: FloatArray
    share: FloatArray
    """Measured rate over the quoted peak. [1]"""
    peak_flop_per_s: FloatArray
    table: str
    skipped: list[dict[str, Any]]
    """Rows of the file that are no best shapes, or of unknown devices."""


def read_power_rows(path: Path) -> PowerRows:
    """Return the rows of a table of measured GEMM power; formats without a rate class are counted, not kept."""
    columns = ["device", "m", "n", "k", "dtype", "latency_us", "power_w", "power_limit_w"]
    rows = with_known_devices(read_measured(path, columns))
    known = np.isin(rows.text("dtype"), list(FORMAT_OF_DTYPE))
    skipped = list(rows.skipped)
    if not known.all():
        skipped.append({"reason": "unknown dtype", "rows": int((~known).sum())})
    kept = rows.take(known)
    ids, chip = np.unique(chip_id_of_rows(kept), return_inverse=True)
    m, n, k = (kept.number(name) for name in ("m", "n", "k"))
    number_format = np.array([FORMAT_OF_DTYPE[dtype] for dtype in kept.text("dtype")])
    designs = designs_of_chips(ids)
    dram, hit = _traffic_bytes(designs, chip, number_format, m, n, k)
    dram = dram + m * k * _quantisation_bytes(kept.text("dtype"), number_format)
    return PowerRows(
        ids=tuple(str(i) for i in ids), designs=designs, chip=chip, dtype=kept.text("dtype"),
        number_format=number_format, m=m, n=n, k=k,
        latency_s=kept.number("latency_us") * 1e-6, power_w=kept.number("power_w"),
        limit_w=kept.number("power_limit_w"), steady=_steady(kept, chip, m), dram_bytes=dram, l2_bytes=hit,
        table=rows.table, skipped=skipped,
    )  # fmt: skip


def gemm_power_w(rows: PowerRows, technology: Technology | None = None) -> FloatArray:
    """
    Return the mean power of each measured GEMM over its measured time, cut at the board's limit.

    Static power, multiply-accumulates at their format, bytes from main memory and bytes found in the shared
    buffer.

    Returns
    -------
    array of shape (n_rows,)
        [W]
    """
    access = energy_per_access(rows.designs, technology)
    mac_j = np.empty(len(rows.m))
    for number_format in np.unique(rows.number_format):
        here = rows.number_format == number_format
        mac_j[here] = access.mac_j[str(number_format)][rows.chip[here]]
    energy_j = rows.m * rows.n * rows.k * mac_j + rows.dram_bytes * access.dram_j_per_byte[rows.chip]
    energy_j = energy_j + rows.l2_bytes * access.l2_j_per_byte[rows.chip]
    return np.minimum(access.static_w[rows.chip] + energy_j / rows.latency_s, rows.limit_w)


def read_best_shapes(path: Path) -> BestShapeRows:
    """Return the best-shape rows of a table of published GEMM throughput."""
    rows = read_measured(path, ["device", "model", "dtype", "m", "n", "k", "tflops", "peak_tflops"])
    best = np.char.startswith(rows.text("model"), BEST_SHAPE_PREFIX)
    rows.number("tflops", or_empty=True)
    kept = with_known(with_known_devices(rows.take(best)), "dtype", BEST_SHAPE_FORMATS)
    skipped = list(kept.skipped)
    if not best.all():
        skipped.append({"reason": "no best shape", "rows": int((~best).sum())})
    ids, chip = np.unique(chip_id_of_rows(kept), return_inverse=True)
    peak = kept.number("peak_tflops") * 1e12
    return BestShapeRows(
        ids=tuple(str(i) for i in ids), designs=designs_of_chips(ids),
        chip=chip, device=kept.text("device"), dtype=kept.text("dtype"),
        number_format=np.char.lower(kept.text("dtype")), m=kept.number("m"), n=kept.number("n"), k=kept.number("k"),
        share=kept.number("tflops") * 1e12 / peak, peak_flop_per_s=peak, table=rows.table,
        skipped=skipped,
    )  # fmt: skip


def best_shape_share(rows: BestShapeRows, technology: Technology) -> FloatArray:
    """
    Return the share of the quoted peak that a tuned library reaches at its best shape, at the sustained clock.

    A share of the arrays' peak that software always loses, divided by how much the full rate stretches under the
    cap; half the memory bandwidth is in use.

    Returns
    -------
    array of shape (n_rows,)
        [1]
    """
    c = technology.constants["power"]
    access, chip = energy_per_access(rows.designs, technology), rows.chip
    ratio, mac_j = np.ones(len(rows.m)), np.empty(len(rows.m))
    for number_format in np.unique(rows.number_format):
        here = rows.number_format == number_format
        mac_j[here] = access.mac_j[str(number_format)][chip[here]]
        if number_format == "fp8":
            ratio[here] = rate_ratio(rows.designs, np.ones(rows.designs.n_designs))[chip[here]]
    full_flop_per_s = peak_flop_per_s(rows.designs)[chip] * ratio
    time_s = 2.0 * rows.m * rows.n * rows.k / full_flop_per_s
    moved = c["best_shape_dram_fraction"] * rows.designs.memory_bandwidth_bytes_per_s[chip] * time_s
    element = np.array([OPERAND_BYTES[str(name)] for name in rows.number_format])
    crossing = gemm_buffer_bytes(rows.m, rows.n, rows.k, element, element, OUTPUT_BYTES)
    energy_j = rows.m * rows.n * rows.k * mac_j + moved * access.dram_j_per_byte[chip]
    energy_j = energy_j + np.maximum(crossing - moved, 0.0) * access.l2_j_per_byte[chip]
    slowdown = sustained_slowdown(energy_j, time_s, access.static_w[chip], rows.designs.tdp_w[chip])
    return c["best_shape_efficiency_fraction"] / slowdown * full_flop_per_s / rows.peak_flop_per_s


def _traffic_bytes(
    designs: DesignBatch, chip: IntArray, number_format: StringArray, m: FloatArray, n: FloatArray, k: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Bytes from main memory and from the shared buffer of each GEMM, each of shape (n_rows,) [B]."""
    element = np.array([OPERAND_BYTES[str(name)] for name in number_format])
    crossing = gemm_buffer_bytes(m, n, k, element, element, OUTPUT_BYTES)
    dram = np.empty(len(m))
    for i in range(designs.n_designs):
        here = chip == i
        one = take(designs, [i])
        copies = np.clip(np.ceil(one.l2_bytes / (n * k * element)[here]), 1.0, ROTATED_WEIGHTS)
        size = (m[here], n[here], k[here], element[here], element[here], np.full(here.sum(), OUTPUT_BYTES))
        dram[here] = gemm_dram_bytes(effective_l2_bytes(one), *size, copies)[0]
    return dram, np.maximum(crossing - dram, 0.0)


def _quantisation_bytes(dtype: StringArray, number_format: StringArray) -> FloatArray:
    """Bytes that the quantisation of one activation moves before the GEMM, shape (n_rows,) [B]."""
    reads = np.array([QUANTISED_READS.get(str(name), 0.0) for name in dtype])
    written = np.array([OPERAND_BYTES[str(name)] for name in number_format])
    return reads * WIDE_BYTES + np.where(reads > 0, written, 0.0)


def _steady(rows: MeasuredRows, chip: IntArray, m: FloatArray) -> BoolArray:
    """Rows that agree with a neighbour in m, shape (n_rows,)."""
    names = ("dtype", "source", "n", "k")
    keys = [chip.astype(str), *(rows.columns.get(name, np.full(len(m), "")) for name in names)]
    _, group = np.unique(np.stack(keys, axis=1), axis=0, return_inverse=True)
    order = np.lexsort((m, group.reshape(-1)))
    power, sizes, groups = rows.number("power_w")[order], m[order], group.reshape(-1)[order]
    near = (groups[1:] == groups[:-1]) & (sizes[1:] <= NEIGHBOUR_ROWS_RATIO * sizes[:-1])
    near &= np.abs(np.log(power[1:] / power[:-1])) <= np.log(NEIGHBOUR_POWER_RATIO)
    steady = np.zeros(len(m), dtype=bool)
    steady[order[1:][near]] = True
    steady[order[:-1][near]] = True
    return steady
