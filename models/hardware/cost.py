"""What a chip costs to make and to keep running, in dollars and in carbon."""

from __future__ import annotations

import numpy as np

from models.checks import FloatArray
from models.hardware.area import die_area_mm2
from models.hardware.design import DesignBatch
from models.hardware.memory import memory_column, second_tier_column
from models.technology import Technology, default_technology

YEAR_S = 365.25 * 24 * 3600.0
HOUR_S = 3600.0
J_PER_KWH = 3.6e6
MM2_PER_CM2 = 100.0


def dies_per_wafer(die_mm2: FloatArray, technology: Technology | None = None) -> FloatArray:
    """
    Return whole dies on a wafer, pi (d/2)^2 / A - pi d / sqrt(2 A), at least one.

    Parameters
    ----------
    die_mm2 : array of shape (n_designs,)
        Area of one die. [mm2]

    Returns
    -------
    array of shape (n_designs,)
        [1]

    Examples
    --------
    >>> int(dies_per_wafer(np.array([826.0]))[0])
    62
    """
    diameter = (technology or default_technology()).constants["cost"]["wafer_diameter_mm"]
    return np.maximum(np.pi * (diameter / 2.0) ** 2 / die_mm2 - np.pi * diameter / np.sqrt(2.0 * die_mm2), 1.0)


def effective_yield_fraction(die_mm2: FloatArray, node_nm: FloatArray, technology: Technology) -> FloatArray:
    """Return the sold share of dies, Y + s (1 - Y) with the negative binomial yield Y, shape (n_designs,) [1]."""
    c = technology.constants["cost"]
    defects = technology.at_node("defect_density_used", node_nm) * die_mm2 / MM2_PER_CM2
    perfect = (1.0 + defects / c["yield_cluster_alpha"]) ** -c["yield_cluster_alpha"]
    return np.asarray(perfect + c["salvage_fraction"] * (1.0 - perfect))


def good_die_cost_usd(die_mm2: FloatArray, node_nm: FloatArray, technology: Technology | None = None) -> FloatArray:
    """
    Return the price of a wafer over the dies that can be sold.

    Parameters
    ----------
    die_mm2 : array of shape (n_designs,)
        Area of one die. [mm2]
    node_nm : array of shape (n_designs,)
        Process node. [nm]

    Returns
    -------
    array of shape (n_designs,)
        Non-decreasing in area. [USD]

    Examples
    --------
    >>> print(f"{good_die_cost_usd(np.array([814.0]), np.array([4.0]))[0]:.0f} USD")
    290 USD
    """
    used = technology or default_technology()
    sold = dies_per_wafer(die_mm2, used) * effective_yield_fraction(die_mm2, node_nm, used)
    return np.asarray(used.at_node("wafer_price_used", node_nm) / sold)


def logic_cost_usd(
    designs: DesignBatch, technology: Technology | None = None, area_mm2: FloatArray | None = None
) -> FloatArray:
    """Return the good dies of one chip, shape (n_designs,) [USD]."""
    area = die_area_mm2(designs, technology) if area_mm2 is None else area_mm2
    die_mm2 = area / designs.n_dies
    return np.asarray(designs.n_dies * good_die_cost_usd(die_mm2, designs.node_nm, technology))


def unit_cost_breakdown_usd(
    designs: DesignBatch, technology: Technology | None = None, area_mm2: FloatArray | None = None
) -> dict[str, FloatArray]:
    """
    Return the parts of the manufacturing cost of one chip with its memory, shape (n_designs,) each [USD].

    Development, margin and sales are not in it.
    """
    used = technology or default_technology()
    c = used.constants["cost"]
    hbm = memory_column("hbm", designs.memory_kind)
    area = die_area_mm2(designs, used) if area_mm2 is None else area_mm2
    package_mm2 = area + hbm * c["hbm_footprint_mm2"] * designs.memory_stacks
    per_mm2 = np.where(hbm > 0, c["packaging_usd_per_mm2"], c["substrate_usd_per_mm2"])
    parts = {
        "logic": logic_cost_usd(designs, used, area),
        "memory": memory_column("price_usd_per_byte", designs.memory_kind, used) * designs.memory_capacity_bytes,
        "second_tier": second_tier_column("price_usd", designs.second_tier),
        "packaging": per_mm2 * package_mm2,
    }
    parts["test_and_board"] = c["test_and_board_fraction"] * sum(parts.values(), np.zeros(designs.n_designs))
    return parts


def unit_cost_usd(
    designs: DesignBatch, technology: Technology | None = None, area_mm2: FloatArray | None = None
) -> FloatArray:
    """
    Return the manufacturing cost of one chip with its memory, packaged and tested.

    Returns
    -------
    array of shape (n_designs,)
        Non-decreasing in area, capacity and stacks. [USD]
    """
    return np.asarray(sum(unit_cost_breakdown_usd(designs, technology, area_mm2).values(), np.zeros(designs.n_designs)))


def system_cost_breakdown_usd(
    designs: DesignBatch, technology: Technology | None = None, area_mm2: FloatArray | None = None
) -> dict[str, FloatArray]:
    """Return one chip's share of a running system: chip, host, network, power supply, shape (n_designs,) [USD]."""
    used = technology or default_technology()
    c = used.constants["cost"]
    return {
        "chip": unit_cost_usd(designs, used, area_mm2),
        "host": np.full(designs.n_designs, c["host_usd_per_chip"]),
        "network": c["network_usd_per_byte_per_s"] * designs.scale_out_bytes_per_s,
        "switches": c["switch_usd_per_byte_per_s"] * designs.scale_up_bytes_per_s,
        "power_delivery": c["power_delivery_usd_per_w"] * (designs.tdp_w + c["host_power_w_per_chip"]),
    }


def usd_per_s(
    designs: DesignBatch, technology: Technology | None = None, area_mm2: FloatArray | None = None
) -> FloatArray:
    """
    Return the capital that one chip consumes in a second of work: system and data centre, interest, upkeep.

    Both are paid off in equal yearly payments over their lives and charged to the share of time in which the chip
    works (`utilization`). Electricity is apart: `electricity_usd_per_j`, and `idle_usd_per_s` for the host.

    Returns
    -------
    array of shape (n_designs,)
        [USD/s]
    """
    used = technology or default_technology()
    c = used.constants["cost"]
    system = sum(system_cost_breakdown_usd(designs, used, area_mm2).values(), np.zeros(designs.n_designs))
    yearly = system * _payment_per_year(c["server_life_s"] / YEAR_S, c["interest_per_year"])
    yearly = yearly * (1.0 + c["server_upkeep_fraction"])
    supplied_w = (designs.tdp_w + c["host_power_w_per_chip"]) / c["power_delivery_efficiency"]
    building = c["datacentre_usd_per_w"] * supplied_w
    yearly = yearly + building * _payment_per_year(c["datacentre_life_s"] / YEAR_S, c["interest_per_year"])
    return np.asarray(yearly / (YEAR_S * c["utilization"]) + host_usd_per_s(used))


def host_usd_per_s(technology: Technology | None = None) -> float:
    """Return the electricity of one chip's share of the host while it works [USD/s]."""
    used = technology or default_technology()
    return float(used.constants["cost"]["host_power_w_per_chip"] * electricity_usd_per_j(used))


def electricity_usd_per_j(technology: Technology | None = None) -> float:
    """
    Return the price of a joule at the chip: tariff, power delivery losses and cooling.

    Examples
    --------
    >>> 2e-8 < electricity_usd_per_j() < 5e-8
    True
    """
    c = (technology or default_technology()).constants["cost"]
    return float(c["electricity_usd_per_kwh"] / J_PER_KWH * facility_ratio(technology))


def usd_per_hour(designs: DesignBatch, average_power_w: FloatArray, technology: Technology | None = None) -> FloatArray:
    """Return capital and electricity of one working chip at its average power, shape (n_designs,) [USD/h]."""
    used = technology or default_technology()
    return np.asarray(HOUR_S * (usd_per_s(designs, used) + average_power_w * electricity_usd_per_j(used)))


def embodied_carbon_kgco2e(
    designs: DesignBatch, technology: Technology | None = None, area_mm2: FloatArray | None = None
) -> FloatArray:
    """
    Return the carbon of making one chip, its memory and its share of the host.

    Fab carbon per area is electricity, gases and materials over the yield (ACT [1]_).

    Returns
    -------
    array of shape (n_designs,)
        [kg CO2e]

    References
    ----------
    .. [1] U. Gupta et al., "ACT: designing sustainable computer systems with an architectural carbon modeling
       tool", ISCA 2022.
    """
    used = technology or default_technology()
    c = used.constants["cost"]
    area = die_area_mm2(designs, used) if area_mm2 is None else area_mm2
    energy = c["fab_grid_kgco2e_per_kwh"] * used.at_node("fab_energy", designs.node_nm)
    gases = used.at_node("fab_gas", designs.node_nm) / 1000.0
    per_cm2 = energy + gases + c["fab_materials_kgco2e_per_cm2"]
    logic = per_cm2 * area / MM2_PER_CM2 / effective_yield_fraction(area / designs.n_dies, designs.node_nm, used)
    memory = memory_column("embodied_kgco2e_per_byte", designs.memory_kind, used) * designs.memory_capacity_bytes
    tier = second_tier_column("embodied_kgco2e", designs.second_tier)
    return np.asarray(logic + memory + tier + c["packaging_kgco2e"] + c["host_kgco2e_per_chip"])


def embodied_carbon_kgco2e_per_s(
    designs: DesignBatch, technology: Technology | None = None, area_mm2: FloatArray | None = None
) -> FloatArray:
    """Return the embodied carbon that one second of work uses up, shape (n_designs,) [kg CO2e/s]."""
    used = technology or default_technology()
    return np.asarray(embodied_carbon_kgco2e(designs, used, area_mm2) / working_life_s(used))


def working_life_s(technology: Technology | None = None) -> float:
    """Return the seconds of its life in which a chip works, at the stated utilisation [s]."""
    c = (technology or default_technology()).constants["cost"]
    return float(c["server_life_s"] * c["utilization"])


def facility_ratio(technology: Technology | None = None) -> float:
    """Return the energy that a site draws over what its chips and hosts take: delivery losses and cooling [1]."""
    c = (technology or default_technology()).constants["cost"]
    return float(c["power_usage_effectiveness"] / c["power_delivery_efficiency"])


def grid_kgco2e_per_j(technology: Technology | None = None) -> float:
    """Return the carbon of a joule that the site draws [kg CO2e/J]."""
    return float((technology or default_technology()).constants["cost"]["grid_kgco2e_per_kwh"] / J_PER_KWH)


def operational_carbon_kgco2e_per_j(technology: Technology | None = None) -> float:
    """Return the carbon of a joule at the chip, delivery losses and cooling included [kg CO2e/J]."""
    return grid_kgco2e_per_j(technology) * facility_ratio(technology)


def _payment_per_year(life_years: float, interest: float) -> float:
    """Yearly payment that pays one dollar back over a life at that interest."""
    return float(interest / (1.0 - (1.0 + interest) ** -life_years))
