"""Predicts measured GEMM rows with one set of constants: the operator's time plus what the source adds."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass

import numpy as np

from models.checks import FloatArray
from models.fidelity.gemm_rows import FORMAT_OF_DTYPE, OPERAND_BYTES, GemmRows
from models.hardware.catalog import chip_designs
from models.hardware.design import DesignBatch, peak_flop_per_s
from models.operators.calibration import Calibration
from models.operators.gemm import (
    droop_slowdown,
    effective_l2_bytes,
    gemm_dram_bytes,
    gemm_time_s,
    issued_power_w,
    kernel_start_cycles,
    miss_fraction,
    onchip_cycles,
)
from models.operators.gemm_constants import GemmConstants, gemm_constants, gemm_constants_from
from models.operators.roofline import roofline_time_s
from models.tables import DATA, constants

OUTPUT_BYTES = 2.0
WIDE_BYTES = 2.0
"""Bytes of an activation before it is quantised."""


@dataclass(frozen=True)
class SourceConstants:
    """What the sources of data add to kernel time: start floors and activation quantisation."""

    graph_replay_start_s: float
    kernel_trace_start_s: float
    host_timer_start_s: float
    kernel_bench_start_s: float
    reused_memory_efficiency_fraction: float
    reused_memory_ramp_s: float
    quantisation_passes_ratio: float
    fp4_slice_ratio: float
    fp8_quantisation_start_s: float
    fp8_quantisation_cycles_per_element: float
    fp4_quantisation_start_s: float
    fp4_quantisation_cycles_per_element: float


@functools.cache
def source_constants(name: str = "gemm") -> SourceConstants:
    """Return the source's constants of `models/data/constants/<name>.csv`."""
    table = constants(name)
    return SourceConstants(**{field.name: table[field.name] for field in dataclasses.fields(SourceConstants)})


def constants_without(chip_id: str) -> str:
    """Name of the constants that never saw a chip: a set of its own, or the global one that did not use it either."""
    name = f"gemm_without_{chip_id}"
    return name if (DATA / "constants" / f"{name}.csv").exists() else "gemm"


def predicted_latency_s(rows: GemmRows, used: GemmConstants, added: SourceConstants) -> FloatArray:
    """Return the latency of each row, shape (n_rows,) [s]."""
    time_s = np.empty(len(rows.m))
    for chip_id in np.unique(rows.chip.astype(str)):
        for dtype in np.unique(rows.dtype[rows.chip == chip_id].astype(str)):
            here = (rows.chip == chip_id) & (rows.dtype == dtype)
            time_s[here] = _latency_s(rows.take(here), _design(chip_id, used), FORMAT_OF_DTYPE[dtype], used, added)
    return time_s


def gemm_prediction_under(rows: GemmRows, calibration: Calibration) -> FloatArray:
    """Latency of GEMM rows under a calibration, shape (n_rows,) [s]."""
    values = dict(calibration.constants("gemm"))
    added = calibration.constants("quantise")
    names = [each.name for each in dataclasses.fields(SourceConstants)]
    changed = {name: added[name] for name in names if "quantisation" in name or name == "fp4_slice_ratio"}
    source = SourceConstants(**{name: (values | changed)[name] for name in names})
    return predicted_latency_s(rows, gemm_constants_from(values), source)


def compute_bound_s(rows: GemmRows) -> FloatArray:
    """Return the time of each row's arithmetic at the data-sheet peak of its format, shape (n_rows,) [s]."""
    time_s = np.empty(len(rows.m))
    for chip_id, dtype in sorted(set(zip(rows.chip.astype(str), rows.dtype.astype(str), strict=True))):
        here = (rows.chip == chip_id) & (rows.dtype == dtype)
        design = _chip_design(chip_id)
        peak = peak_flop_per_s(design, _rate_ratio(design, FORMAT_OF_DTYPE[dtype]))
        time_s[here] = 2.0 * rows.m[here] * rows.n[here] * rows.k[here] / peak
    return time_s


def roofline_latency_s(rows: GemmRows) -> FloatArray:
    """Return the plain roofline of each row at data-sheet peaks, shape (n_rows,) [s]."""
    time_s = np.empty(len(rows.m))
    for chip_id in np.unique(rows.chip.astype(str)):
        for dtype in np.unique(rows.dtype[rows.chip == chip_id].astype(str)):
            here = (rows.chip == chip_id) & (rows.dtype == dtype)
            m, n, k = rows.m[here], rows.n[here], rows.k[here]
            number_format = FORMAT_OF_DTYPE[dtype]
            element = OPERAND_BYTES[number_format]
            design = chip_designs([chip_id])
            peak = peak_flop_per_s(design, _rate_ratio(design, number_format))
            moved = element * (n * k + m * k) + OUTPUT_BYTES * m * n
            time_s[here] = roofline_time_s(2 * m * n * k, moved, peak, design.memory_bandwidth_bytes_per_s)[0]
    return time_s


@functools.cache
def _chip_design(chip_id: str) -> DesignBatch:
    return chip_designs([chip_id])


def _design(chip_id: str, used: GemmConstants) -> DesignBatch:
    """The chip with its inferred port, which scales with the fitted operand path of the constants in use."""
    design = _chip_design(chip_id)
    scale = gemm_constants().operand_path_elements / used.operand_path_elements
    return dataclasses.replace(design, noc_bytes_per_cycle_per_core=design.noc_bytes_per_cycle_per_core * scale)


def _rate_ratio(design: DesignBatch, number_format: str) -> float:
    """Speed over bf16; a format without native rate is computed in bf16."""
    if number_format == "bf16":
        return 1.0
    return float(getattr(design, f"{number_format}_rate_ratio")[0]) or 1.0


def _latency_s(
    rows: GemmRows, design: DesignBatch, number_format: str, used: GemmConstants, added: SourceConstants
) -> FloatArray:
    """Latency of rows of one chip and format, shape (n_rows,) [s]."""
    m, n, k, one = rows.m, rows.n, rows.k, np.ones_like(rows.m)
    element, ratio = OPERAND_BYTES[number_format], _rate_ratio(design, number_format)
    if number_format in rows.source.unsplit_formats:
        slices = used.least_cycles_per_k * added.fp4_slice_ratio
        used = dataclasses.replace(used, least_cycles_per_k=slices)
    if rows.source.reuses_weights:
        used = dataclasses.replace(
            used,
            memory_efficiency_fraction=added.reused_memory_efficiency_fraction,
            memory_ramp_s=added.reused_memory_ramp_s,
        )
    kernels = design
    if not rows.source.recent_kernels:
        kernels = dataclasses.replace(design, bulk_async_copy=np.zeros(1))
    cycles = onchip_cycles(kernels, m, n, k, element * one, ratio * one, used, rows.source.splits(number_format))
    issued_flop_per_s = 2.0 * m * n * k * design.clock_hz[:, None] / cycles
    cycles = cycles * droop_slowdown(issued_power_w(design, issued_flop_per_s, ratio, used) / design.tdp_w[:, None])
    copies = np.clip(np.ceil(design.l2_bytes[:, None] / (n * k * element)), 1.0, rows.source.largest_rotation)
    moved = gemm_dram_bytes(
        effective_l2_bytes(design), m, n, k, element * one, element * one, OUTPUT_BYTES * one, copies, constants=used
    )
    start_s = getattr(added, rows.source.start) + _quantisation_s(rows, design, number_format, used, added)
    return np.asarray(gemm_time_s(
        cycles, moved, design.clock_hz, design.memory_bandwidth_bytes_per_s, start_s[None, :],
        kernel_start_cycles(kernels, used), used,
    )[0])  # fmt: skip


def _quantisation_s(
    rows: GemmRows, design: DesignBatch, number_format: str, used: GemmConstants, added: SourceConstants
) -> FloatArray:
    """Time of the dynamic quantisation of activations that a source includes, shape (n_rows,) [s]."""
    if number_format == "bf16" or not rows.source.quantises:
        return np.zeros_like(rows.m)
    start_s = getattr(added, f"{number_format}_quantisation_start_s")
    elements = rows.m * rows.k
    cores_s = getattr(added, f"{number_format}_quantisation_cycles_per_element") * elements
    cores_s = cores_s / (design.n_cores * design.clock_hz)
    moved = (WIDE_BYTES + OPERAND_BYTES[number_format]) * elements
    store = used.l2_effective_ratio * effective_l2_bytes(design)
    missed = added.quantisation_passes_ratio * moved * miss_fraction(moved, store, used.l2_hit_sharpness_exponent)
    bandwidth = used.memory_efficiency_fraction * design.memory_bandwidth_bytes_per_s
    return np.asarray(start_s + np.maximum(cores_s, missed / bandwidth))
