"""Intervals of cost and energy: the stated spread of each source, combined as independent."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from models.checks import FloatArray, require_known
from models.hardware.area import area_interval_mm2, die_area_mm2
from models.hardware.cost import good_die_cost_usd, unit_cost_breakdown_usd
from models.hardware.design import DesignBatch
from models.technology import Technology, default_technology

ENERGY_SPREADS: Mapping[str, str] = {
    "switching": "switching_factor_90",
    "main_memory": "memory_path_factor_90",
    "links": "link_factor_90",
    "static": "static_factor_90",
}
"""Part of an energy or a power -> constant that states its 90 % interval."""


def unit_cost_interval_usd(designs: DesignBatch, technology: Technology | None = None) -> tuple[FloatArray, FloatArray]:
    """
    Return the 90 % interval of the manufacturing cost of one chip.

    Wafer price, defects, salvage, die area, memory price, packaging and test vary independently, each by its
    stated spread; the half widths add in squares.

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
    parts = unit_cost_breakdown_usd(designs, used)
    total = sum(parts.values(), np.zeros(designs.n_designs))
    on_top = 1.0 + c["test_and_board_fraction"]
    memory = parts["memory"] + parts["second_tier"]
    ratios = (
        (on_top * parts["logic"], _logic_factor(designs, used)),
        (on_top * memory, np.full(designs.n_designs, c["memory_price_factor_90"])),
        (on_top * parts["packaging"], np.full(designs.n_designs, c["packaging_factor_90"])),
        (parts["test_and_board"], np.full(designs.n_designs, c["test_and_board_factor_90"])),
    )
    up = np.sqrt(sum((part * (factor - 1.0)) ** 2 for part, factor in ratios))
    down = np.sqrt(sum((part * (1.0 - 1.0 / factor)) ** 2 for part, factor in ratios))
    return total - down, total + up


def energy_interval_j(
    parts_j: Mapping[str, FloatArray], technology: Technology | None = None
) -> tuple[FloatArray, FloatArray]:
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
    c = (technology or default_technology()).constants["energy"]
    total = np.zeros_like(next(iter(parts_j.values())))
    up, down = total.copy(), total.copy()
    for name, part in parts_j.items():
        factor = c[ENERGY_SPREADS[require_known("part of an energy", name, ENERGY_SPREADS)]]
        total = total + part
        up = up + (part * (factor - 1.0)) ** 2
        down = down + (part * (1.0 - 1.0 / factor)) ** 2
    return np.asarray(total - np.sqrt(down)), np.asarray(total + np.sqrt(up))


def _logic_factor(designs: DesignBatch, technology: Technology) -> FloatArray:
    """Factor of the 90 % interval of the logic cost, upwards, shape (n_designs,) [1]."""
    c = technology.constants["cost"]
    area = die_area_mm2(designs, technology)
    die_mm2 = area / designs.n_dies
    base = good_die_cost_usd(die_mm2, designs.node_nm, technology)
    larger = area_interval_mm2(designs, technology)[1] / designs.n_dies
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
