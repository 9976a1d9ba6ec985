"""Everything the cost batch decides about a chip, computed from one die area."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from models.checks import FloatArray
from models.hardware.area import area_violation_ratio, die_area_mm2
from models.hardware.cost import embodied_carbon_kgco2e, unit_cost_usd, usd_per_s, working_life_s
from models.hardware.design import DesignBatch
from models.hardware.energy import EnergyPerAccess, energy_per_access
from models.hardware.power import full_rate_power_w, power_violation_ratio
from models.technology import Technology, default_technology


@dataclass(frozen=True)
class ChipFigures:
    """Figures of each design, arrays of shape (n_designs,); `violation_ratio` is at most 0 where a limit holds."""

    area_mm2: FloatArray
    access: EnergyPerAccess
    full_rate_power_w: FloatArray
    unit_cost_usd: FloatArray
    usd_per_s: FloatArray
    embodied_kgco2e: FloatArray
    embodied_kgco2e_per_s: FloatArray
    violation_ratio: Mapping[str, FloatArray]


def chip_figures(designs: DesignBatch, technology: Technology | None = None) -> ChipFigures:
    """
    Return area, energies, power, cost and limits of each design at a third of the work of asking one by one.

    Parameters
    ----------
    designs : DesignBatch
        The cost batch, of n_designs entries.
    technology : Technology, optional
        Node tables and constants; the shipped ones where left out.

    Returns
    -------
    ChipFigures
        Each entry equals that of its own function.

    Examples
    --------
    >>> from models.hardware.design import reference_design
    >>> figures = chip_figures(reference_design())
    >>> bool((figures.violation_ratio["reticle"] < 0).all())
    True
    """
    used = technology or default_technology()
    area = die_area_mm2(designs, used)
    access = energy_per_access(designs, used, area)
    embodied = embodied_carbon_kgco2e(designs, used, area)
    return ChipFigures(
        area_mm2=area,
        access=access,
        full_rate_power_w=full_rate_power_w(designs, used, access),
        unit_cost_usd=unit_cost_usd(designs, used, area),
        usd_per_s=usd_per_s(designs, used, area),
        embodied_kgco2e=embodied,
        embodied_kgco2e_per_s=embodied / working_life_s(used),
        violation_ratio={
            **area_violation_ratio(designs, used, area),
            "tdp": power_violation_ratio(designs, used, access),
        },
    )
