"""Power limits and the sustained clock."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.hardware.area import die_area_mm2
from models.hardware.catalog import chip_designs
from models.hardware.design import reference_design, replace
from models.hardware.power import (
    full_rate_breakdown_w,
    full_rate_power_w,
    power_density_w_per_mm2,
    power_violation_ratio,
    sustained_slowdown,
    switching_energy_ratio,
    tdp_estimate_w,
)
from models.tables import constants

WATTS = st.floats(1.0, 2000.0)
SECONDS = st.floats(1e-6, 1.0)


@settings(max_examples=60, deadline=None)
@given(energy_j=st.floats(1e-6, 1e3), time_s=SECONDS, static_w=WATTS, tdp_w=WATTS, faster=st.floats(0.01, 1.0))
def test_faster_hardware_of_equal_energy_never_takes_longer_under_the_cap(energy_j, time_s, static_w, tdp_w, faster):
    slow = time_s * sustained_slowdown(energy_j, time_s, static_w, tdp_w)
    fast = faster * time_s * sustained_slowdown(energy_j, faster * time_s, static_w, tdp_w)
    assert fast <= slow * (1 + 1e-12)


@settings(max_examples=60, deadline=None)
@given(energy_j=st.floats(1e-6, 1e3), time_s=SECONDS, static_w=WATTS, tdp_w=WATTS, more=st.floats(1.0, 10.0))
def test_a_higher_cap_or_less_energy_never_takes_longer(energy_j, time_s, static_w, tdp_w, more):
    slowdown = sustained_slowdown(energy_j, time_s, static_w, tdp_w)
    assert slowdown >= 1
    assert sustained_slowdown(energy_j, time_s, static_w, tdp_w * more) <= slowdown
    assert sustained_slowdown(energy_j / more, time_s, static_w, tdp_w) <= slowdown
    assert sustained_slowdown(energy_j, time_s, static_w / more, tdp_w) <= slowdown


def test_power_fits_under_the_cap_once_the_clock_has_settled():
    energy_j, static_w, tdp_w = np.array([300.0, 1200.0, 6000.0]), 100.0, 500.0
    slowdown = sustained_slowdown(energy_j, 1.0, static_w, tdp_w)
    settled_w = static_w + energy_j * switching_energy_ratio(slowdown) / slowdown
    assert (settled_w <= tdp_w * 1.01).all()
    assert slowdown[1] == pytest.approx(3 ** (1 / 3), rel=0.01)


def test_below_the_lowest_supply_power_falls_in_proportion_to_the_clock():
    # Stretch 2 is where the supply bottoms out: x = 8; from there on stretch = x / 4.
    slowdown = sustained_slowdown(np.array([8.0, 16.0, 32.0]), 1.0, 0.0, 1.0)
    assert slowdown == pytest.approx([2.0, 4.0, 8.0], rel=1e-4)


def test_static_power_above_the_cap_is_infeasible_with_the_excess():
    designs = replace(reference_design(), tdp_w=[500.0, 50.0])
    violation = power_violation_ratio(designs)
    static_w = full_rate_breakdown_w(designs)["static"]
    assert violation[0] < 0 < violation[1]
    assert violation[1] >= static_w[1] / 50.0 - 1
    assert np.isfinite(sustained_slowdown(1.0, 1.0, static_w, designs.tdp_w)).all()


def test_full_rate_power_is_the_sum_of_its_parts_and_above_the_rating_of_products():
    # Products are sold below their full-rate power: H100 SXM 700 W, B200 1000 W, A100 SXM 400 W.
    chips = chip_designs(["h100_sxm", "b200_sxm", "a100_sxm"])
    parts = full_rate_breakdown_w(chips)
    assert full_rate_power_w(chips) == pytest.approx(sum(parts.values()))
    assert (full_rate_power_w(chips) > chips.tdp_w).all()


@pytest.mark.parametrize("name", ["n_cores", "clock_hz", "memory_bandwidth_bytes_per_s", "scale_up_bytes_per_s"])
def test_more_of_a_resource_never_lowers_full_rate_or_rated_power(name):
    small = reference_design()
    large = replace(small, **{name: 1.5 * getattr(small, name)})
    assert full_rate_power_w(large) >= full_rate_power_w(small)
    assert tdp_estimate_w(large) >= tdp_estimate_w(small)


def test_a_form_factor_cuts_the_rating():
    chip = chip_designs(["h100_pcie"])
    assert tdp_estimate_w(chip, 350.0)[0] == 350
    assert tdp_estimate_w(chip)[0] > 350


def test_density_beyond_known_cooling_is_a_warning():
    designs = replace(reference_design(), tdp_w=[200.0, 5000.0], clock_hz=[1.5e9, 6e9])
    density = power_density_w_per_mm2(designs, full_rate_power_w(designs), die_area_mm2(designs))
    assert density[0] < constants("power")["highest_power_density_w_per_mm2"] < density[1]
