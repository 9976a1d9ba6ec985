"""Intervals of cost and energy: the stated spread of each source, combined as independent."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from models.checks import FloatArray, require_known
from models.hardware.area import area_interval_mm2, die_area_mm2
from models.hardware.cost import good_die_cost_usd, unit_cost_breakdown_usd
from models.hardware.design import DesignBatch
from models.technology import Technology, default_technology

POWER_SPREADS: Mapping[str, str] = {
    "matrix_arrays": "switching_factor_90",
    "main_memory": "memory_path_factor_90",
    "links": "link_factor_90",
    "static": "static_factor_90",
}
"""Part of a full-rate power -> constant that states its 90 % interval."""

ENERGY_SPREADS: Mapping[str, str] = {
    "switching": "switching_factor_90",
    "main_memory": "memory_path_factor_90",
    "links": "link_factor_90",
    "static": "static_factor_90",
}
"""Part of an energy or a power -> constant that states its 90 % interval."""


Interval = tuple[FloatArray, FloatArray]


def unit_cost_interval_usd(
    designs: DesignBatch,
    technology: Technology | None = None,
    area_mm2: tuple[FloatArray, FloatArray, FloatArray] | None = None,
) -> Interval:
    """
    Return the 90 % interval of the manufacturing cost of one chip.

    Wafer price, defects, salvage, die area, memory price, packaging and test vary independently, each by its
    stated spread; the half widths add in squares.

    Parameters
    ----------
    designs : DesignBatch
        Of n_designs entries.
    technology : Technology, optional
        The shipped one where left out.
    area_mm2 : three arrays of shape (n_designs,), optional
        Die area and the ends of its interval where they are known already. [mm2]

    Returns
    -------
    low, high : arrays of shape (n_designs,)
        [USD]

    Examples
    --------
    >>> from models.hardware.design import reference_design
    >>> low, high = unit_cost_interval_usd(reference_design())
    >>> bool(low[0] < high[0])
    True
    """
    used = technology or default_technology()
    c = used.constants["cost"]
    area, _, largest_mm2 = area_mm2 or _area_and_interval_mm2(designs, used)
    parts = unit_cost_breakdown_usd(designs, used, area)
    total = sum(parts.values(), np.zeros(designs.n_designs))
    on_top = 1.0 + c["test_and_board_fraction"]
    memory = parts["memory"] + parts["second_tier"]
    ratios = (
        (on_top * parts["logic"], _logic_factor(designs, area, largest_mm2, used)),
        (on_top * memory, np.full(designs.n_designs, c["memory_price_factor_90"])),
        (on_top * parts["packaging"], np.full(designs.n_designs, c["packaging_factor_90"])),
        (parts["test_and_board"], np.full(designs.n_designs, c["test_and_board_factor_90"])),
    )
    up = np.sqrt(sum((part * (factor - 1.0)) ** 2 for part, factor in ratios))
    down = np.sqrt(sum((part * (1.0 - 1.0 / factor)) ** 2 for part, factor in ratios))
    return total - down, total + up


def _area_and_interval_mm2(designs: DesignBatch, technology: Technology) -> tuple[FloatArray, FloatArray, FloatArray]:
    area = die_area_mm2(designs, technology)
    return area, *area_interval_mm2(designs, technology, area_mm2=area)


def energy_interval_j(parts_j: Mapping[str, FloatArray], technology: Technology | None = None) -> Interval:
    """
    Return the 90 % interval of an energy (or a power) given by its parts.

    Parameters
    ----------
    parts_j : mapping of part to array
        Keys of `ENERGY_SPREADS`; arrays of equal shape. [J]

    Returns
    -------
    low, high : arrays of that shape
        [J]
    """
    return _combined(parts_j, ENERGY_SPREADS, technology)


def power_interval_w(parts_w: Mapping[str, FloatArray], technology: Technology | None = None) -> Interval:
    """Return the 90 % interval of a full-rate power given by its parts, keys of `POWER_SPREADS` [W]."""
    return _combined(parts_w, POWER_SPREADS, technology)


def work_cost_interval_usd(
    system_usd: Mapping[str, FloatArray],
    capital_usd: FloatArray,
    electricity_usd: FloatArray,
    energy_j: Mapping[str, FloatArray],
    unit_cost_usd: Interval,
    technology: Technology | None = None,
) -> Interval:
    """
    Return the 90 % interval of what a piece of work costs, its time taken as known.

    The chip's share of the capital varies as its manufacturing cost, electricity as its energy, independently.

    Parameters
    ----------
    system_usd : mapping of part to array of shape (n_designs,)
        Of `system_cost_breakdown_usd`. [USD]
    capital_usd, electricity_usd : arrays of shape (n_designs,)
        Parts of the cost. [USD]
    energy_j : mapping of part to array of shape (n_designs,)
        Keys of `ENERGY_SPREADS`. [J]
    unit_cost_usd : pair of arrays of shape (n_designs,)
        Of `unit_cost_interval_usd`. [USD]
    technology : Technology, optional
        The shipped one where left out.

    Returns
    -------
    low, high : arrays of shape (n_designs,)
        [USD]
    """
    unit = system_usd["chip"]
    chip_usd = capital_usd * unit / sum(system_usd.values(), np.zeros(len(unit)))
    whole_j = sum(energy_j.values(), np.zeros(len(unit)))
    spreads = zip(unit_cost_usd, energy_interval_j(energy_j, technology), strict=True)
    widths = [np.hypot(chip_usd * (u / unit - 1.0), electricity_usd * (e / whole_j - 1.0)) for u, e in spreads]
    total = capital_usd + electricity_usd
    return np.asarray(total - widths[0]), np.asarray(total + widths[1])


def _combined(parts: Mapping[str, FloatArray], spreads: Mapping[str, str], technology: Technology | None) -> Interval:
    """Sum of independent parts less and plus the root of the squares of their half widths."""
    c = (technology or default_technology()).constants["energy"]
    total = np.zeros_like(next(iter(parts.values())))
    up, down = total.copy(), total.copy()
    for name, part in parts.items():
        factor = c[spreads[require_known("part of an energy", name, spreads)]]
        total = total + part
        up = up + (part * (factor - 1.0)) ** 2
        down = down + (part * (1.0 - 1.0 / factor)) ** 2
    return np.asarray(total - np.sqrt(down)), np.asarray(total + np.sqrt(up))


def _logic_factor(
    designs: DesignBatch, area: FloatArray, largest_mm2: FloatArray, technology: Technology
) -> FloatArray:
    """Factor of the 90 % interval of the logic cost, upwards, shape (n_designs,) [1]."""
    c = technology.constants["cost"]
    die_mm2 = area / designs.n_dies
    base = good_die_cost_usd(die_mm2, designs.node_nm, technology)
    larger = largest_mm2 / designs.n_dies
    defects = c["defect_density_factor_90"]
    salvage = max(0.0, c["salvage_fraction"] - c["salvage_fraction_half_width_90"])
    fewer = technology.with_constant("cost", "salvage_fraction", salvage)
    changes = (
        np.full(designs.n_designs, np.log(c["wafer_price_factor_90"])),
        np.log(good_die_cost_usd(larger, designs.node_nm, technology) / base),
        np.log(good_die_cost_usd(die_mm2, designs.node_nm, fewer) / base),
        np.log(_with_more_defects(die_mm2, designs.node_nm, defects, technology) / base),
    )
    return np.asarray(np.exp(np.sqrt(sum(change**2 for change in changes))))


def _with_more_defects(die_mm2: FloatArray, node_nm: FloatArray, factor: float, technology: Technology) -> FloatArray:
    """Cost of a good die where the density of defects is `factor` times the table's, shape (n_designs,) [USD]."""
    c = technology.constants["cost"]
    defects = technology.at_node("defect_density_used", node_nm) * die_mm2 / 100.0
    alpha = c["yield_cluster_alpha"]
    plain, worse = ((1.0 + scale * defects / alpha) ** -alpha for scale in (1.0, factor))
    sold = [share + c["salvage_fraction"] * (1.0 - share) for share in (plain, worse)]
    return np.asarray(good_die_cost_usd(die_mm2, node_nm, technology) * sold[0] / sold[1])
