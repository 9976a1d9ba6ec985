"""Energy of one unit of activity on each design, and the power it draws doing nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from models.checks import FloatArray
from models.hardware.area import die_area_mm2
from models.hardware.area_terms import shared_buffer_mm2, sram_scale
from models.hardware.design import DesignBatch, MemoryKind
from models.hardware.memory import memory_column, second_tier_column
from models.hardware.rates import OPERAND_BYTES, RATE_CLASSES
from models.technology import Technology, default_technology

KIB = 1024.0
BITS = 8.0
ONCHIP_PATH_NODE_NM = 5.0
"""Node at which `onchip_path_j_per_byte` is stated."""


@dataclass(frozen=True)
class EnergyPerAccess:
    """
    Joules per unit of activity at the design's highest clock, arrays of shape (n_designs,).

    `mac_j` is keyed by rate class and holds arithmetic, registers and the operands' way from the scratchpad into
    the array. `dram_j_per_byte` is the whole way from a memory cell to the cores, so that bytes from main memory
    are not charged again as shared-buffer bytes; `l2_j_per_byte` is for re-reads that main memory does not see, from
    the scratchpads where there is no main memory.
    """

    mac_j: Mapping[str, FloatArray]
    scratchpad_j_per_byte: FloatArray
    l2_j_per_byte: FloatArray
    noc_j_per_byte: FloatArray
    dram_j_per_byte: FloatArray
    second_tier_j_per_byte: FloatArray
    link_j_per_byte: FloatArray
    network_link_j_per_byte: FloatArray
    vector_j_per_op: FloatArray
    static_w: FloatArray


def energy_per_access(
    designs: DesignBatch, technology: Technology | None = None, area_mm2: FloatArray | None = None
) -> EnergyPerAccess:
    """
    Return what each unit of activity costs.

    Pass the *cost* batch of the two-batch contract: every entry is non-decreasing in memory sizes, clock, area and
    rates at equal array shape (an array's operand sharing lowers its energy: enumerate shapes). `area_mm2` is the
    die area of the designs where the caller has it already.

    Returns
    -------
    EnergyPerAccess
        Arrays of shape (n_designs,). [J]

    References
    ----------
    .. [1] N. P. Jouppi et al., "Ten lessons from three generations shaped Google's TPUv4i", ISCA 2021, table 2.

    Examples
    --------
    >>> from models.hardware.design import reference_design
    >>> access = energy_per_access(reference_design())
    >>> bool(access.mac_j["fp8"][0] < access.mac_j["bf16"][0])
    True
    """
    used = technology or default_technology()
    c = used.constants["energy"]
    node = used.at_node("energy_scale_used", designs.node_nm)
    switching = node * clock_ratio(designs, c)
    scratchpad = scratchpad_j_per_byte_at_7nm(designs, c)
    area = die_area_mm2(designs, used) if area_mm2 is None else area_mm2
    noc = node * c["wire_j_per_bit_mm"] * BITS * _half_side_mm(area / designs.n_dies)
    return EnergyPerAccess(
        mac_j={name: switching * mac_j_at_7nm(designs, name, scratchpad, c) for name in RATE_CLASSES},
        scratchpad_j_per_byte=node * scratchpad,
        l2_j_per_byte=np.where(
            designs.memory_kind == MemoryKind.NONE, node * scratchpad, _l2_j_per_byte(designs, node, used) + noc
        ),
        noc_j_per_byte=noc,
        dram_j_per_byte=dram_j_per_byte(designs, area, node * scratchpad, used),
        second_tier_j_per_byte=_second_tier_j_per_byte(designs, area, used),
        link_j_per_byte=np.full(designs.n_designs, BITS * c["link_j_per_bit"]),
        network_link_j_per_byte=np.full(designs.n_designs, BITS * c["network_link_j_per_bit"]),
        vector_j_per_op=switching * (c["vector_op_j"] + c["vector_operand_j"]),
        static_w=static_power_w(designs, area, used),
    )


def mac_j_at_7nm(
    designs: DesignBatch, rate_class: str, scratchpad_j_per_byte: FloatArray, c: Mapping[str, float]
) -> FloatArray:
    """
    Return one multiply-accumulate at 7 nm and the reference clock: arithmetic, registers, operand delivery.

    An m x n x k array fetches (m + n) k operands for m n k products, so delivery costs b (1/m + 1/n) scratchpad
    bytes a product; an element's own registers are shared by the depth k of its dot product.

    Returns
    -------
    array of shape (n_designs,)
        [J]
    """
    operand_bytes = OPERAND_BYTES[RATE_CLASSES.index(rate_class)]
    delivery = c["operand_delivery_ratio"] * operand_bytes_per_mac(designs, rate_class) * scratchpad_j_per_byte
    registers = c["operand_register_j"] * operand_bytes / OPERAND_BYTES[RATE_CLASSES.index("bf16")] / designs.array_k
    return np.asarray(c["matrix_arithmetic_j"] * c[f"{rate_class}_arithmetic_ratio"] + registers + delivery)


def operand_bytes_per_mac(designs: DesignBatch, rate_class: str) -> FloatArray:
    """Return the operand bytes that enter an array for each product, b (1/m + 1/n), shape (n_designs,) [B]."""
    operand_bytes = OPERAND_BYTES[RATE_CLASSES.index(rate_class)]
    return np.asarray(operand_bytes * (1.0 / designs.array_m + 1.0 / designs.array_n))


def operand_delivery_j_per_byte(designs: DesignBatch, technology: Technology | None = None) -> FloatArray:
    """
    Return an operand byte on its way from the scratchpad into an array, shape (n_designs,) [J].

    The part of `EnergyPerAccess.mac_j` that depends on the shape of the array, at the highest clock.
    """
    used = technology or default_technology()
    c = used.constants["energy"]
    switching = used.at_node("energy_scale_used", designs.node_nm) * clock_ratio(designs, c)
    return np.asarray(switching * c["operand_delivery_ratio"] * scratchpad_j_per_byte_at_7nm(designs, c))


def scratchpad_j_per_byte_at_7nm(designs: DesignBatch, c: Mapping[str, float]) -> FloatArray:
    """Return one byte read or written in the scratchpad of a core, growing with its size, shape (n_designs,) [J]."""
    kib = np.maximum(designs.scratchpad_bytes_per_core / KIB, 1.0)
    return np.asarray(c["scratchpad_8kib_j_per_byte"] * (kib / 8.0) ** c["scratchpad_size_exponent"])


def dram_j_per_byte(
    designs: DesignBatch, area_mm2: FloatArray, scratchpad_j_per_byte: FloatArray, technology: Technology
) -> FloatArray:
    """
    Return a byte of main memory from the cell to the cores: device, PHY, network, staging.

    The way on the chip was measured on large dies; half of it is taken to be wires, which shrink with the side of
    the die. Without main memory the scratchpads are it, and a byte costs what theirs does.

    Returns
    -------
    array of shape (n_designs,)
        [J]
    """
    device = BITS * memory_column("device_energy_j_per_bit", designs.memory_kind, technology)
    path = device + _onchip_path_j_per_byte(designs, area_mm2, technology)
    return np.where(designs.memory_kind == MemoryKind.NONE, scratchpad_j_per_byte, path)


def static_power_w(designs: DesignBatch, area_mm2: FloatArray, technology: Technology) -> FloatArray:
    """Return leakage, clocks and uncore of a chip in use, and its second tier's own, shape (n_designs,) [W]."""
    c = technology.constants["energy"]
    tier_w = second_tier_column("static_power_w", designs.second_tier)
    return np.asarray(c["static_w_per_mm2"] * area_mm2 + tier_w)


def clock_ratio(designs: DesignBatch, c: Mapping[str, float]) -> FloatArray:
    """
    Return switching energy at the design's clock over that at the reference clock, shape (n_designs,) [1].

    The voltage curve: supply in proportion to the clock, so that energy goes with its square, down to the lowest
    supply. Under a power cap the clock settles along the same curve (`sustained_slowdown`).
    """
    clock_hz = np.maximum(designs.clock_hz, c["lowest_supply_clock_hz"])
    return np.asarray((clock_hz / c["reference_clock_hz"]) ** c["clock_exponent"])


def _onchip_path_j_per_byte(designs: DesignBatch, area_mm2: FloatArray, technology: Technology) -> FloatArray:
    c = technology.constants["energy"]
    scale = technology.at_node("energy_scale_used", designs.node_nm)
    scale = scale / technology.at_node("energy_scale_used", ONCHIP_PATH_NODE_NM)
    side_ratio = np.sqrt(area_mm2 / designs.n_dies / c["onchip_path_die_mm2"])
    wires = c["onchip_path_wire_fraction"]
    return np.asarray(c["onchip_path_j_per_byte"] * scale * (1.0 - wires + wires * side_ratio))


def _second_tier_j_per_byte(designs: DesignBatch, area_mm2: FloatArray, technology: Technology) -> FloatArray:
    device = BITS * second_tier_column("energy_j_per_bit", designs.second_tier)
    return np.asarray(device + _onchip_path_j_per_byte(designs, area_mm2, technology))


def _l2_j_per_byte(designs: DesignBatch, node: FloatArray, technology: Technology) -> FloatArray:
    """One byte of the shared buffer itself: a 1 MiB bank and the wires across the buffer."""
    c = technology.constants["energy"]
    bank = c["scratchpad_8kib_j_per_byte"] * (KIB / 8.0) ** c["scratchpad_size_exponent"]
    area = sram_scale(designs, technology) * shared_buffer_mm2(designs, technology.constants["area"])
    return np.asarray(node * (bank + c["wire_j_per_bit_mm"] * BITS * _half_side_mm(area)))


def _half_side_mm(area_mm2: FloatArray) -> FloatArray:
    """Mean way of a byte across a square of that area, along one axis and half the other."""
    return np.asarray(0.5 * np.sqrt(area_mm2))
