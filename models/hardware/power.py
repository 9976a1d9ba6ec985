"""Power of a design: at full rate, as a product would be rated, and the clock that the work leaves under a cap."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from models.checks import FloatArray
from models.hardware.area import die_area_mm2
from models.hardware.design import CoreControl, DesignBatch, macs_per_cycle_per_core
from models.hardware.energy import BITS, EnergyPerAccess, energy_per_access
from models.hardware.memory import memory_column
from models.tables import constants
from models.technology import Technology, default_technology

LEAST_HEADROOM_FRACTION = 1e-6
"""Headroom under the cap is never taken as less than this share of it, so that times stay finite."""


def sustained_slowdown(
    dynamic_energy_j: ArrayLike, time_s: ArrayLike, static_w: ArrayLike, tdp_w: ArrayLike
) -> FloatArray:
    """
    Return by how much work stretches so that its power fits under the cap.

    With x = (E / t) / (TDP - P_static) the clock settles where switching power, which falls with the cube of the
    clock while the supply follows, meets the headroom: a stretch of x^(1/3). It sets in smoothly as
    (1 + x^6)^(1/18). Below the lowest supply, from a stretch s_v on, power falls in proportion to the clock and
    the stretch is x / s_v^2. The stretched time rises with E, P_static and t and falls with TDP, so that faster
    hardware with the same energy never takes longer.

    Parameters
    ----------
    dynamic_energy_j : array
        Switching energy of the work at the highest clock. [J]
    time_s : array
        Its time at the highest clock. [s]
    static_w, tdp_w : arrays
        Static power and cap; shapes broadcast with the others. [W]

    Returns
    -------
    array of the broadcast shape
        At least 1; finite but very large where static power exceeds the cap, see `power_violation_ratio`. [1]

    Examples
    --------
    Eight times too much power halves the clock.

    >>> round(float(sustained_slowdown(800.0, 1.0, 50.0, 150.0)), 2)
    2.0
    """
    cap = np.asarray(tdp_w, dtype=np.float64)
    headroom = np.maximum(cap - np.asarray(static_w), LEAST_HEADROOM_FRACTION * cap)
    excess = np.asarray(dynamic_energy_j) / (np.asarray(time_s) * headroom)
    square = excess * excess
    smooth = (1.0 + square * square * square) ** (1.0 / 18.0)
    return np.asarray(np.maximum(smooth, excess / constants("power")["lowest_voltage_slowdown"] ** 2))


def switching_energy_ratio(slowdown: FloatArray) -> FloatArray:
    """Return switching energy at the settled clock over that at the highest: 1 / s^2 down to the lowest supply [1]."""
    return np.asarray(1.0 / np.square(np.minimum(slowdown, constants("power")["lowest_voltage_slowdown"])))


def full_rate_power_w(
    designs: DesignBatch, technology: Technology | None = None, access: EnergyPerAccess | None = None
) -> FloatArray:
    """
    Return the power of everything at once: arrays at their bf16 peak, main memory and links at full bandwidth.

    Returns
    -------
    array of shape (n_designs,)
        Non-decreasing in every resource at equal array shape. [W]
    """
    parts = full_rate_breakdown_w(designs, technology, access)
    return np.asarray(sum(parts.values(), np.zeros(designs.n_designs)))


def full_rate_breakdown_w(
    designs: DesignBatch, technology: Technology | None = None, access: EnergyPerAccess | None = None
) -> dict[str, FloatArray]:
    """Return the parts of `full_rate_power_w`, which they add up to, shape (n_designs,) each [W]."""
    access = access or energy_per_access(designs, technology)
    macs_per_s = macs_per_cycle_per_core(designs) * designs.n_cores * designs.clock_hz * designs.bf16_rate_ratio
    return {
        "matrix_arrays": macs_per_s * access.mac_j["bf16"],
        "main_memory": designs.memory_bandwidth_bytes_per_s * access.dram_j_per_byte,
        "links": designs.scale_up_bytes_per_s * access.link_j_per_byte
        + designs.scale_out_bytes_per_s * access.network_link_j_per_byte,
        "static": access.static_w,
    }


def tdp_estimate_w(
    designs: DesignBatch, envelope_w: ArrayLike = np.inf, technology: Technology | None = None
) -> FloatArray:
    """
    Return the rated power a vendor would give such a chip as a product.

    Rated power is below full-rate power, since products are sold for typical work, and is cut to what the form
    factor takes. Use it to judge plausibility; a study's cap is an input.

    Parameters
    ----------
    designs : DesignBatch
        Of n_designs entries.
    envelope_w : array of shape (n_designs,), optional
        Limit of the form factor (75 W slot-powered, 150 W single slot, 300 to 350 W dual slot). [W]

    Returns
    -------
    array of shape (n_designs,)
        [W]
    """
    used = technology or default_technology()
    c = used.constants["power"]
    simt = designs.core_control == CoreControl.SIMT
    clock = (designs.clock_hz / c["tdp_reference_clock_hz"]) ** c["tdp_clock_exponent"]
    switching = used.at_node("energy_scale_used", designs.node_nm) * clock
    cycles_per_s = designs.n_cores * designs.clock_hz
    rate = np.maximum(designs.bf16_rate_ratio, 0.25 * (designs.bf16_rate_ratio == 0.0))
    macs = macs_per_cycle_per_core(designs) * cycles_per_s * rate
    lanes = designs.vector_lanes_per_core * cycles_per_s * np.where(simt, 1.0, 0.5)
    logic = switching * (np.where(simt, c["tdp_mac_j"], c["tdp_mac_other_j"]) * macs + c["tdp_lane_j"] * lanes)
    device = BITS * memory_column("device_energy_j_per_bit", designs.memory_kind, used)
    memory = c["tdp_dram_ratio"] * device * designs.memory_bandwidth_bytes_per_s
    link_bytes_per_s = 2.0 * (designs.scale_up_bytes_per_s + designs.scale_out_bytes_per_s)
    links = c["tdp_link_ratio"] * BITS * used.constants["energy"]["link_j_per_bit"] * link_bytes_per_s
    static = c["tdp_static_w_per_mm2"] * die_area_mm2(designs, used)
    return np.asarray(np.minimum(static + logic + memory + links, envelope_w))


def power_violation_ratio(
    designs: DesignBatch, technology: Technology | None = None, access: EnergyPerAccess | None = None
) -> FloatArray:
    """
    Return static power plus the arrays at the lowest clock over the cap, less one; at most 0 is feasible.

    Returns
    -------
    array of shape (n_designs,)
        [1]
    """
    used = technology or default_technology()
    parts = full_rate_breakdown_w(designs, used, access)
    c = used.constants["power"]
    slowest = c["lowest_clock_ratio"] / c["lowest_voltage_slowdown"] ** 2
    return np.asarray((parts["static"] + slowest * parts["matrix_arrays"]) / designs.tdp_w - 1.0)


def power_density_w_per_mm2(designs: DesignBatch, full_rate_w: FloatArray, area_mm2: FloatArray) -> FloatArray:
    """Return the cap, or full-rate power where that is less, over the die area, shape (n_designs,) [W/mm2]."""
    return np.asarray(np.minimum(designs.tdp_w, full_rate_w) / area_mm2)
