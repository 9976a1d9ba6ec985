"""All figures at once equal those asked one by one."""

import numpy as np
import pytest

from models.hardware.area import area_violation_ratio, die_area_mm2
from models.hardware.catalog import chip_designs
from models.hardware.cost import embodied_carbon_kgco2e_per_s, unit_cost_usd, usd_per_s
from models.hardware.energy import energy_per_access
from models.hardware.figures import chip_figures
from models.hardware.power import full_rate_power_w, power_violation_ratio
from models.technology import default_technology

CHIPS = chip_designs(["a100_sxm", "tpu_v4i", "wse_2", "l4"])


@pytest.mark.parametrize(
    ("name", "alone"),
    [
        ("area_mm2", die_area_mm2),
        ("full_rate_power_w", full_rate_power_w),
        ("unit_cost_usd", unit_cost_usd),
        ("usd_per_s", usd_per_s),
        ("embodied_kgco2e_per_s", embodied_carbon_kgco2e_per_s),
    ],
)
def test_a_figure_equals_its_own_function(name, alone):
    assert np.array_equal(getattr(chip_figures(CHIPS), name), alone(CHIPS))


def test_energies_and_limits_equal_their_own_functions():
    figures = chip_figures(CHIPS)
    assert np.array_equal(figures.access.static_w, energy_per_access(CHIPS).static_w)
    assert np.array_equal(figures.violation_ratio["tdp"], power_violation_ratio(CHIPS))
    assert np.array_equal(figures.violation_ratio["reticle"], area_violation_ratio(CHIPS)["reticle"])
    assert figures.violation_ratio["reticle"][2] > 0, "a wafer is larger than a reticle field"


def test_an_overlaid_technology_reaches_every_figure():
    dearer = default_technology().with_constant("area", "scratchpad_mm2_per_mib", 3.0)
    plain, changed = chip_figures(CHIPS), chip_figures(CHIPS, dearer)
    for name in ("area_mm2", "full_rate_power_w", "unit_cost_usd", "usd_per_s", "embodied_kgco2e_per_s"):
        assert (getattr(changed, name) > getattr(plain, name)).all()
