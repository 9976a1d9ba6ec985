"""A data-sheet row to design parameters: what the sheet gives, converted; what it leaves out, inferred and said so."""

from __future__ import annotations

import re
from collections.abc import Mapping

from models.hardware.design import CoreControl, MemoryKind, Stationarity
from models.hardware.memory import memory_aliases, memory_table
from models.tables import constants

MIB = 1024.0**2
GIB = 1024.0**3

Row = Mapping[str, str]
Inferred = dict[str, str]


def design_parameters(row: Row) -> tuple[dict[str, float], Inferred]:
    """
    Return the design parameters of one row of `chips.csv` and, for each inferred one, how it was inferred.

    Parameters
    ----------
    row : mapping of column to text
        Columns of `chips.csv`; an empty or missing column is unknown.

    Returns
    -------
    parameters : dict
        Columns of `DesignBatch`, in its units.
    inferred : dict
        Parameter -> reason, for those the row does not state.
    """
    inferred: Inferred = {}
    parameters = _compute(row, inferred)
    parameters |= _on_chip(row, parameters, inferred)
    parameters |= _main_memory(row, parameters, inferred)
    parameters |= _links(row, inferred)
    parameters |= _silicon(row, parameters, inferred)
    parameters["tdp_w"] = _power_cap_w(row, parameters, inferred)
    return parameters, inferred


def number(row: Row, column: str) -> float | None:
    """Return the number in one column, None where it is empty; the first of a list such as '300-350' is refused."""
    text = (row.get(column) or "").strip()
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"chip {row.get('id', '?')}: {column} must be a number, got '{text}'") from None


def has_peak(row: Row) -> bool:
    """Return whether the row says how fast its arrays are: a peak rate, or arrays with a clock or a narrower rate."""
    arrays = matrix_geometry(row.get("matrix_geometry", "")) and number(row, "matrix_units")
    pace = number(row, "clock_mhz") or number(row, "tops_int8") or number(row, "tflops_fp8")
    return bool(number(row, "tflops_bf16") or (arrays and pace))


def matrix_geometry(text: str) -> tuple[float, float, float] | None:
    """
    Return (m, n, k) of a geometry such as '8x4x16', '256x256' or '8x16 x 16 per core'; None where there is none.

    Examples
    --------
    >>> matrix_geometry("128x128")
    (128.0, 128.0, 1.0)
    >>> matrix_geometry("4-wide fp16 SIMD per core")
    (4.0, 1.0, 1.0)
    """
    sides = re.match(r"\s*(\d+)\s*x\s*(\d+)(?:\s*x\s*(\d+))?", text)
    if sides:
        return float(sides[1]), float(sides[2]), float(sides[3] or 1)
    wide = re.match(r"\s*(\d+)-wide", text)
    return (float(wide[1]), 1.0, 1.0) if wide else None


def _compute(row: Row, inferred: Inferred) -> dict[str, float]:
    """Arrays, cores and clock, such that twice the multiply-accumulates times the clock is the quoted peak."""
    geometry = matrix_geometry(row.get("matrix_geometry", ""))
    elements, clock_hz = _elements_and_clock(row, geometry, inferred)
    n_cores = _core_count(row, geometry, elements, inferred)
    if geometry is None:
        geometry = _default_geometry(row, elements / (number(row, "matrix_units") or n_cores))
        inferred["array_m"] = "no matrix geometry: near-square array of the multiply-accumulates per unit"
    m, n, k = geometry
    per_core = elements / n_cores
    if m * n * k > 1.001 * per_core:
        inferred["array_n"] = "the geometry counts narrower operands: columns for 16-bit ones"
        n, k = per_core / (m * k) if per_core >= m * k else 1.0, k if per_core >= m * k else per_core / m
    systolic = re.search(r"systolic|weight-stationary", row.get("matrix_dataflow", "")) and k == 1
    return {
        "array_m": m,
        "array_n": n,
        "array_k": k,
        "arrays_per_core": max(1.0, elements / (m * n * k * n_cores)),
        "n_cores": n_cores,
        "clock_hz": clock_hz,
        "stationarity": float(Stationarity.WEIGHT if systolic else Stationarity.OUTPUT),
        **_rates(row, elements, clock_hz),
    }


def _elements_and_clock(
    row: Row, geometry: tuple[float, float, float] | None, inferred: Inferred
) -> tuple[float, float]:
    """Array elements [1/cycle] and clock [Hz] that reproduce the quoted peak."""
    c = constants("datasheet")
    clock_mhz, macs = number(row, "clock_mhz"), number(row, "bf16_macs_per_cycle")
    peak = (number(row, "tflops_bf16") or 0.0) * 1e12
    narrow = max(number(row, "tops_int8") or 0.0, number(row, "tflops_fp8") or 0.0) * 1e12
    clock_hz = clock_mhz * 1e6 if clock_mhz else None
    units = number(row, "matrix_units") or 0.0
    grid = units * geometry[0] * geometry[1] * geometry[2] if geometry and units else 0.0
    if macs and peak:
        exact_hz = peak / (2.0 * macs)
        clock_hz = exact_hz if clock_hz is None or abs(exact_hz / clock_hz - 1) < 0.03 else clock_hz
        passes = narrow / peak > constants("datasheet")["multi_pass_rate_ratio"] and grid > 1.5 * macs
        return (grid if passes else macs), clock_hz
    if not peak and narrow and grid:
        return grid, narrow / (2.0 * grid)
    if not peak:
        if not (grid and clock_hz):
            raise ValueError(f"chip {row.get('id', '?')} gives neither a peak rate nor arrays and clock")
        return grid, clock_hz
    if clock_hz is None and 0 < peak <= 2.0 * grid * c["highest_plausible_clock_hz"]:
        inferred["clock_hz"] = "quoted peak over twice the multiply-accumulates of the arrays"
        return grid, peak / (2.0 * grid)
    if clock_hz is None:
        inferred["clock_hz"] = "no clock: near the default clock, in whole arrays"
        clock_hz = c["default_clock_hz"]
    inferred["arrays_per_core"] = "quoted peak over twice the clock"
    elements = peak / (2.0 * clock_hz)
    if geometry and "clock_hz" in inferred:
        array = geometry[0] * geometry[1] * geometry[2]
        elements = array * max(1.0, round(elements / array))
        clock_hz = peak / (2.0 * elements)
    return elements, clock_hz


def _core_count(row: Row, geometry: tuple[float, float, float] | None, elements: float, inferred: Inferred) -> float:
    """Cores that hold matrix arrays; vector cores beside few large arrays count as their lanes."""
    cores, units = number(row, "cores"), number(row, "matrix_units")
    if cores and units and units < cores:
        inferred["n_cores"] = "fewer matrix units than cores: one core for each matrix unit"
        return units
    if cores:
        return cores
    inferred["n_cores"] = "no core count: one array in each core"
    array = geometry[0] * geometry[1] * geometry[2] if geometry else 16.0**3
    return max(1.0, round(elements / array))


def _default_geometry(row: Row, macs_per_unit: float) -> tuple[float, float, float]:
    c = constants("datasheet")
    dataflow = row.get("matrix_dataflow", "")
    k = c["default_dot_length"] if "inner" in dataflow or not dataflow else 1.0
    if "outer-product accumulate" in dataflow:
        k = c["outer_product_dot_length"]
    if "systolic" in dataflow and macs_per_unit >= c["default_systolic_side"] ** 2:
        return c["default_systolic_side"], c["default_systolic_side"], 1.0
    while k > 1 and macs_per_unit < k * k:
        k /= 2.0
    m = 2.0 ** max(0, round(0.5 * _log2(macs_per_unit / k)))
    return m, max(1.0, macs_per_unit / (k * m)), k


def _log2(value: float) -> int:
    return max(0, round(value).bit_length() - 1)


def _rates(row: Row, elements: float, clock_hz: float) -> dict[str, float]:
    """Rate of each number format over one multiply-accumulate per array element and cycle."""
    columns = {"bf16": "tflops_bf16", "tf32": "tflops_tf32", "int8": "tops_int8", "fp8": "tflops_fp8",
               "fp6": "tflops_fp6", "fp4": "tflops_fp4"}  # fmt: skip
    full = 2.0 * elements * clock_hz
    rates = {f"{name}_rate_ratio": (number(row, column) or 0.0) * 1e12 / full for name, column in columns.items()}
    rates = {name: round(ratio, 3) for name, ratio in rates.items()}
    if not number(row, "tflops_bf16") and not number(row, "tops_int8"):
        rates["bf16_rate_ratio"] = 1.0
    if number(row, "matrix_units") == 0:
        rates["fp32_rate_ratio"] = round((number(row, "tflops_fp32_vector") or 0.0) * 1e12 / full, 3)
    return rates


def _on_chip(row: Row, parameters: dict[str, float], inferred: Inferred) -> dict[str, float]:
    """Lanes, memories and the port of one core."""
    c = constants("datasheet")
    n_cores = parameters["n_cores"]
    macs_per_core = (
        parameters["array_m"] * parameters["array_n"] * parameters["array_k"] * parameters["arrays_per_core"]
    )
    wide = parameters["bf16_rate_ratio"] or 0.25
    lanes = number(row, "vector_fp32_fma_per_cycle")
    if lanes is None and number(row, "tflops_fp32_vector"):
        lanes = (number(row, "tflops_fp32_vector") or 0.0) * 1e12 / (2.0 * parameters["clock_hz"])
    if lanes is None:
        inferred["vector_lanes_per_core"] = "no vector rate: the usual share of the multiply-accumulates"
        lanes = macs_per_core * wide * n_cores / c["macs_per_vector_lane"]
    local, shared = number(row, "l1_or_local_mib"), number(row, "l2_or_shared_mib")
    last = number(row, "llc_mib") or 0.0
    total = number(row, "onchip_total_mib")
    if local is None and shared and total and total > shared:
        inferred["scratchpad_bytes_per_core"] = "memory on the chip less the shared part"
        local = total - shared
    if local is None:
        inferred["scratchpad_bytes_per_core"] = "no core-local memory listed: the shared memory is that of the cores"
        local, shared = shared or total, 0.0
    if local is None:
        inferred["scratchpad_bytes_per_core"] = "no memory on the chip listed: 256 KiB for 4096 multiply-accumulates"
        local = macs_per_core * n_cores * 64.0 / MIB
    port = 2.0 * max(wide, 0.5) * macs_per_core / constants("gemm")["operand_path_elements"]
    inferred["noc_bytes_per_cycle_per_core"] = "operand path of the GEMM model: port = multiply-accumulates / path"
    return {
        "vector_lanes_per_core": lanes / n_cores,
        "scratchpad_bytes_per_core": local * MIB / n_cores,
        "l2_bytes": ((shared or 0.0) + last) * MIB,
        "noc_bytes_per_cycle_per_core": port,
        "register_file_bytes_per_core": (number(row, "regfile_mib") or 0.0) * MIB / n_cores,
    }


def _main_memory(row: Row, parameters: dict[str, float], inferred: Inferred) -> dict[str, float]:
    word = re.split(r"[ (+]", row.get("mem_type", "").lower() or "none")[0]
    kind = memory_aliases().get(word, MemoryKind.NONE)
    if word != kind.name.lower():
        inferred["memory_kind"] = f"'{row.get('mem_type', '')}' read as {kind.name.lower()}"
    bandwidth = (number(row, "mem_gb_per_s") or 0.0) * 1e9
    stacks = number(row, "mem_stacks")
    bus_bits = number(row, "mem_bus_bits")
    if kind == MemoryKind.NONE:
        stacks = 0.0
    elif stacks is None and bus_bits and not memory_table()["hbm"][kind]:
        stacks = bus_bits / 64.0
    elif stacks is None:
        inferred["memory_stacks"] = "quoted bandwidth over that of one stack"
        stacks = max(1.0, round(bandwidth / memory_table()["bandwidth_bytes_per_s"][kind] + 0.25))
    return {
        "memory_kind": float(kind),
        "memory_stacks": stacks,
        "memory_bandwidth_bytes_per_s": bandwidth,
        "memory_capacity_bytes": (number(row, "mem_gb") or 0.0) * GIB,
    }


def _links(row: Row, inferred: Inferred) -> dict[str, float]:
    host = number(row, "host_gb_per_s_bidir")
    if host is None:
        inferred["host_bytes_per_s"] = "no host link listed: PCIe 5 x16"
    if number(row, "link_gb_per_s_bidir") is None:
        inferred["scale_up_bytes_per_s"] = "no link listed: none"
    return {
        "scale_up_bytes_per_s": (number(row, "link_gb_per_s_bidir") or 0.0) * 1e9 / 2.0,
        "host_bytes_per_s": host * 1e9 / 2.0
        if host is not None
        else constants("datasheet")["default_host_bytes_per_s"],
        "short_reach_bytes_per_s": (number(row, "short_reach_gb_per_s_bidir") or 0.0) * 1e9 / 2.0,
    }


def _silicon(row: Row, parameters: dict[str, float], inferred: Inferred) -> dict[str, float]:
    """Node, dies, control, spares: what only area, power and generation-dependent overheads see."""
    c = constants("datasheet")
    node_nm, cores, phys_cores = number(row, "node_nm"), number(row, "cores"), number(row, "phys_cores")
    if node_nm is None:
        inferred["node_nm"] = "no node listed: the default"
    control = _core_control(row, parameters, inferred)
    n_dies = number(row, "n_dies") or number(row, "n_compute_dies") or 1.0
    physical_stacks, stacks = number(row, "phys_mem_stacks"), number(row, "mem_stacks")
    l2, physical_l2 = number(row, "l2_or_shared_mib"), number(row, "phys_l2_mib")
    return {
        "node_nm": node_nm or c["default_node_nm"],
        "core_control": float(control),
        "fp64_lanes_per_core": _fp64_lanes(row, parameters, control, inferred),
        "bulk_async_copy": _flag(row, "bulk_async_copy", float(control != CoreControl.SIMT), inferred),
        "l2_halves": _flag(row, "l2_halves", 2.0 if n_dies > 1 else 1.0, inferred),
        "n_dies": n_dies,
        "spare_core_fraction": max(0.0, phys_cores / cores - 1.0) if phys_cores and cores else 0.0,
        "spare_l2_fraction": max(0.0, physical_l2 / l2 - 1.0) if physical_l2 and l2 else 0.0,
        "spare_memory_stacks": max(0.0, physical_stacks - stacks) if physical_stacks and stacks else 0.0,
        "other_area_mm2": number(row, "other_area_mm2") or 0.0,
    }


def _core_control(row: Row, parameters: dict[str, float], inferred: Inferred) -> CoreControl:
    stated = (row.get("core_control") or "").strip()
    if stated:
        return CoreControl[stated.upper()]
    if number(row, "regfile_mib"):
        inferred["core_control"] = "register files listed: SIMT cores"
        return CoreControl.SIMT
    macs = parameters["array_m"] * parameters["array_n"] * parameters["array_k"] * parameters["arrays_per_core"]
    big = macs >= constants("datasheet")["big_core_macs"]
    inferred["core_control"] = "large cores without register files" if big else "small cores without register files"
    return CoreControl.TENSOR if big else CoreControl.SMALL


def _fp64_lanes(row: Row, parameters: dict[str, float], control: CoreControl, inferred: Inferred) -> float:
    stated = number(row, "fp64_lanes_per_core")
    if stated is not None or control != CoreControl.SIMT:
        return stated or 0.0
    c = constants("datasheet")
    hbm = row.get("mem_type", "").upper().startswith("HBM")
    inferred["fp64_lanes_per_core"] = "SIMT chip with HBM: as many as fp32 lanes" if hbm else "SIMT chip without HBM"
    if hbm:
        return c["fp64_lanes_per_fp32_lane_hbm"] * parameters["vector_lanes_per_core"]
    return c["fp64_lanes_per_core_other"]


def _flag(row: Row, column: str, otherwise: float, inferred: Inferred) -> float:
    stated = number(row, column)
    if stated is None:
        inferred[column] = "inferred from the kind of core and the number of dies"
        return otherwise
    return stated


def _power_cap_w(row: Row, parameters: dict[str, float], inferred: Inferred) -> float:
    tdp_w, die_mm2 = number(row, "tdp_w"), number(row, "compute_die_mm2")
    if tdp_w:
        return tdp_w
    c = constants("datasheet")
    inferred["tdp_w"] = "no power listed: the usual density"
    if die_mm2:
        return c["default_tdp_w_per_mm2"] * die_mm2 * (number(row, "n_compute_dies") or 1.0)
    elements = parameters["array_m"] * parameters["array_n"] * parameters["array_k"] * parameters["arrays_per_core"]
    return c["default_tdp_w_per_flop_per_s"] * 2.0 * elements * parameters["n_cores"] * parameters["clock_hz"]
