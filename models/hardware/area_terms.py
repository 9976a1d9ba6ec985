"""Area of each component of a design, one term per fitted constant, linear in it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from models.checks import FloatArray
from models.hardware.design import CoreControl, DesignBatch, MemoryKind, macs_per_cycle_per_core
from models.hardware.memory import memory_column, second_tier_column
from models.tables import constants
from models.technology import Technology

MIB = 1024.0**2
Constants = Mapping[str, float]

EFFECT_NODES_NM = (5.0, 6.0, 7.0, 8.0, 12.0)
"""Nodes at which the fitted log effects apply, zero at 7 nm; between them linear, beyond them constant."""

EFFECTS: Mapping[str, float] = {
    "node_log_effect_5": 5.0, "node_log_effect_6": 6.0, "node_log_effect_8": 8.0, "node_log_effect_16": 12.0,
}  # fmt: skip
"""Fitted log effect -> its node [nm]."""

CORE_PARTS = ("matrix_arrays", "vector_lanes", "core_control", "register_files", "scratchpad", "shared_buffer")
"""Parts that pay the uncore share."""


def logic_scale(designs: DesignBatch, technology: Technology) -> FloatArray:
    """Area of a given amount of logic over that at 7 nm, shape (n_designs,) [1]."""
    nodes, c = designs.node_nm, technology.constants["area"]
    distinct = nodes[:1] if designs.n_designs > 1 and (nodes == nodes[0]).all() else nodes
    density = technology.at_node("area_model_logic_density", distinct)
    effect = np.exp(sum(c[name] * weight for name, weight in zip(EFFECTS, _effect_weights(distinct), strict=True)))
    return np.broadcast_to(c["reference_logic_density_mtr_per_mm2"] / density * effect, nodes.shape)


def _effect_weights(node_nm: FloatArray) -> list[FloatArray]:
    """Weight of each of `EFFECTS` at each node, shape (n_nodes,) [1]."""
    own = np.eye(len(EFFECT_NODES_NM))
    return [np.interp(node_nm, EFFECT_NODES_NM, own[EFFECT_NODES_NM.index(node)]) for node in EFFECTS.values()]


def sram_scale(designs: DesignBatch, technology: Technology) -> FloatArray:
    """Area of a given amount of SRAM over that at 7 nm, shape (n_designs,) [1]."""
    c = technology.constants["area"]
    return technology.at_node("sram_bitcell", designs.node_nm) / c["reference_bitcell_um2"]


def physical_cores(designs: DesignBatch) -> FloatArray:
    """Cores on the die, spares included, shape (n_designs,) [1]."""
    return designs.n_cores * (1.0 + designs.spare_core_fraction)


def core_terms(designs: DesignBatch, technology: Technology) -> dict[str, FloatArray]:
    """Area of the parts in `CORE_PARTS`, without uncore, each of shape (n_designs,) [mm2]."""
    c = technology.constants["area"]
    logic, sram, cores = logic_scale(designs, technology), sram_scale(designs, technology), physical_cores(designs)
    lanes = c["vector_lane_mm2"] * designs.vector_lanes_per_core + c["fp64_lane_mm2"] * designs.fp64_lanes_per_core
    scratchpad = c["scratchpad_mm2_per_mib"] * designs.scratchpad_bytes_per_core / MIB
    registers = c["register_file_mm2_per_mib"] * designs.register_file_bytes_per_core / MIB
    return {
        "matrix_arrays": logic * cores * matrix_mm2_per_core(designs, c),
        "vector_lanes": logic * cores * lanes,
        "core_control": logic * cores * control_mm2_per_core(designs, c),
        "register_files": sram * cores * registers,
        "scratchpad": sram * cores * scratchpad,
        "shared_buffer": sram * shared_buffer_mm2(designs, c),
    }


def matrix_mm2_per_core(designs: DesignBatch, c: Constants) -> FloatArray:
    """
    Return the arrays of one core at 7 nm: multipliers by element, accumulators by output.

    A dot product of depth k shares one accumulator among k elements, which is why inner-product arrays are denser
    than systolic ones. Formats widen the shared multipliers by their rate; an array whose bf16 rate is a quarter
    is an 8-bit one that computes 16 bit in passes. Groups inside an array each add operand registers and a
    reduction.

    Returns
    -------
    array of shape (n_designs,)
        Non-decreasing in m, n, k, arrays, groups and every rate. [mm2]
    """
    elements = macs_per_cycle_per_core(designs)
    outputs = elements / designs.array_k
    formats = 1.0 + sum(
        c[f"{name}_area_ratio"] * getattr(designs, f"{name}_rate_ratio")
        for name in ("fp8", "fp6", "fp4", "int8", "fp32", "tf32")
    )
    narrow = c["narrow_element_rate_ratio"]
    exponent = np.log(c["narrow_element_area_ratio"]) / np.log(narrow)
    width = np.clip(designs.bf16_rate_ratio, narrow, 1.0) ** exponent
    groups = 1.0 + c["array_group_area_ratio"] * (designs.array_groups - 1.0)
    multipliers = c["matrix_multiplier_mm2"] * formats * elements
    return np.asarray(width * (multipliers + c["matrix_accumulator_mm2"] * groups * outputs))


def control_mm2_per_core(designs: DesignBatch, c: Constants) -> FloatArray:
    """
    Return what issues the work of one core at 7 nm, by `CoreControl`.

    Lane-scaled and small cores: a sequencer plus the SIMT control in proportion to their lanes. SIMT cores: warp
    schedulers, scoreboards and operand collectors grow with the threads in flight, that is with the register
    file. Tensor cores: one sequencer with transpose and DMA, growing with the square root of its lanes; at their
    1000 to 3000 lanes the lane-scaled law gives the same size.

    Returns
    -------
    array of shape (n_designs,)
        Non-decreasing in lanes, registers and elements. [mm2]
    """
    share = np.minimum(1.0, macs_per_cycle_per_core(designs) / c["small_core_reference_macs"])
    lanes = designs.vector_lanes_per_core
    scaled = c["small_core_mm2"] * share + c["simt_core_mm2"] * lanes / c["simt_reference_lanes"]
    threads = designs.register_file_bytes_per_core / c["simt_reference_register_file_bytes"]
    simt = c["simt_core_mm2"] * np.maximum(threads, 1.0)
    tensor = c["tensor_core_mm2"] * np.sqrt(lanes / c["tensor_core_reference_lanes"])
    control = designs.core_control
    return np.where(control == CoreControl.SIMT, simt, np.where(control == CoreControl.TENSOR, tensor, scaled))


def shared_buffer_mm2(designs: DesignBatch, c: Constants) -> FloatArray:
    """Return the shared buffer at 7 nm, a cache unless the cores are dataflow ones, shape (n_designs,) [mm2]."""
    managed = (designs.core_control == CoreControl.TENSOR) | (designs.core_control == CoreControl.SMALL)
    density = np.where(managed, c["scratchpad_mm2_per_mib"], c["cache_mm2_per_mib"])
    return density * designs.l2_bytes * (1.0 + designs.spare_l2_fraction) / MIB


def outer_terms(designs: DesignBatch, technology: Technology) -> dict[str, FloatArray]:
    """Area of network, interfaces, fixed block and declared units, each of shape (n_designs,) [mm2]."""
    c = technology.constants["area"]
    logic = logic_scale(designs, technology)
    ports = np.maximum(physical_cores(designs) - 1.0, 0.0) * designs.noc_bytes_per_cycle_per_core
    fixed_logic = c["fixed_analogue_fraction"] + (1.0 - c["fixed_analogue_fraction"]) * logic
    return {
        "network_on_chip": c["router_mm2_per_port"] * logic * ports / reference_port_bytes_per_cycle(c),
        "memory_interface": memory_interface_mm2(designs, logic, technology),
        "second_tier_interface": second_tier_column("area_mm2", designs.second_tier),
        "links": link_mm2(designs, logic, c),
        "host_interface": host_mm2(designs, c),
        "fixed": c["fixed_mm2_per_die"] * fixed_logic * designs.n_dies,
        "other": designs.other_area_mm2,
    }


def reference_port_bytes_per_cycle(c: Constants) -> float:
    """
    Return the port of the core that `router_mm2_per_port` describes [B/cycle].

    Ports of real chips follow from the operand path of the GEMM model, so the reference does too: a new fit of
    that path leaves their areas as they are.
    """
    return 2.0 * c["router_reference_macs"] / constants("gemm")["operand_path_elements"]


def memory_interface_mm2(designs: DesignBatch, logic: FloatArray, technology: Technology) -> FloatArray:
    """Return PHY, which does not scale with the node, and controller of all stacks, shape (n_designs,) [mm2]."""
    c, kind = technology.constants["area"], designs.memory_kind
    hbm = memory_column("hbm", kind) > 0
    ratio = np.where(hbm, c["hbm_interface_ratio"], c["channel_interface_ratio"])
    one = memory_column("phy_area_mm2", kind, technology)
    one = one + memory_column("controller_area_mm2", kind, technology) * logic
    stacks = np.where(kind == MemoryKind.NONE, 0.0, designs.memory_stacks + designs.spare_memory_stacks)
    return np.asarray(ratio * one * stacks)


def link_mm2(designs: DesignBatch, logic: FloatArray, c: Constants) -> FloatArray:
    """
    Return chip-to-chip and die-to-die links, shape (n_designs,) [mm2].

    Several dies need links that carry the memory traffic between them, or those declared if more. Chip-to-chip
    bandwidth beyond the widest link sold off a package is counted as a link inside one.
    """
    analogue = c["long_reach_analogue_fraction"]
    chip_to_chip = designs.scale_up_bytes_per_s + designs.scale_out_bytes_per_s
    leaving = np.minimum(chip_to_chip, c["largest_long_reach_bytes_per_s"])
    between_dies = np.maximum(designs.short_reach_bytes_per_s, die_to_die_bytes_per_s(designs, c))
    inside = between_dies + chip_to_chip - leaving + _wide_host_bytes_per_s(designs, c)
    far, near = 2.0 * leaving / 100e9, 2.0 * inside / 100e9
    long_reach = c["long_reach_mm2_per_100_gb_per_s"] * (analogue + (1.0 - analogue) * logic) * far
    return np.asarray(long_reach + c["short_reach_mm2_per_100_gb_per_s"] * near)


def die_to_die_bytes_per_s(designs: DesignBatch, c: Constants) -> FloatArray:
    """Return what several dies of one chip exchange at least, one direction, shape (n_designs,) [B/s]."""
    crossing = 2.0 * (1.0 - 1.0 / designs.n_dies)
    return np.asarray(c["die_to_die_over_memory_ratio"] * crossing * designs.memory_bandwidth_bytes_per_s)


def host_mm2(designs: DesignBatch, c: Constants) -> FloatArray:
    """Return the host interface up to x16 Gen5, shape (n_designs,) [mm2]."""
    width = np.minimum(designs.host_bytes_per_s, c["largest_host_link_bytes_per_s"])
    return np.asarray(c["host_mm2_per_62_gb_per_s"] * width / c["host_link_bytes_per_s"])


def _wide_host_bytes_per_s(designs: DesignBatch, c: Constants) -> FloatArray:
    return np.maximum(designs.host_bytes_per_s - c["largest_host_link_bytes_per_s"], 0.0)
