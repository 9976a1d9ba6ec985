"""Energy of a step, and the clock that settles under the cap."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from models.hardware.design import reference_design, replace
from models.hardware.energy import energy_per_access
from models.hardware.power import switching_energy_ratio
from models.operators.factor_tables import FactorTables
from models.operators.step import StepActivity, run_step
from models.operators.step_energy import dynamic_energy_j, settle
from tests.models.random_designs import between, random_designs, with_more
from tests.models.serving_scenarios import compiled

STEP = compiled().step
SEEDS = st.integers(0, 10_000)


def activity(time_s=1e-3, **changes):
    ones = np.ones((1, 1))
    none = dict.fromkeys(("dram_bytes", "vector_ops", "link_bytes", "l2_bytes"), 0.0 * ones)
    return StepActivity(time_s=time_s * ones, **(none | {"macs": {}, "terms": {}} | changes))


def settled(performance, cost, program):
    access = energy_per_access(cost)
    found = run_step(program, performance, FactorTables())
    return settle(found, access, performance.tdp_w)


def test_energy_is_the_sum_of_activity_times_energy_per_unit():
    one, access = np.ones((1, 1)), energy_per_access(reference_design())
    whole = activity(
        dram_bytes=5e9 * one, vector_ops=2e9 * one, link_bytes=1e8 * one, l2_bytes=7e9 * one,
        macs={"bf16": 3e12 * one, "fp8": 1e12 * one},
    )  # fmt: skip
    expected = (
        5e9 * access.dram_j_per_byte[0] + 2e9 * access.vector_j_per_op[0] + 1e8 * access.link_j_per_byte[0]
        + 7e9 * access.l2_j_per_byte[0]
        + 3e12 * access.mac_j["bf16"][0] + 1e12 * access.mac_j["fp8"][0]
    )  # fmt: skip
    np.testing.assert_allclose(dynamic_energy_j(whole, access), expected)


def test_an_idle_step_costs_static_power_alone_and_keeps_its_clock():
    design = reference_design()
    access = energy_per_access(design)
    found = settle(activity(2e-3), access, design.tdp_w)
    np.testing.assert_allclose(found.energy_j, 2e-3 * access.static_w[0])
    np.testing.assert_allclose(found.slowdown, 1.0)


@settings(max_examples=8, deadline=None)
@given(seed=SEEDS)
def test_settled_power_stays_under_the_cap_wherever_static_power_does(seed):
    designs = random_designs(seed, 20, tdp_w=900.0)
    found = settled(designs, designs, STEP)
    powered = energy_per_access(designs).static_w < 899.0
    assert powered.any()
    assert (found.energy_j / found.time_s <= 900.0 * (1 + 1e-9))[powered].all()


@settings(max_examples=8, deadline=None)
@given(seed=SEEDS)
def test_a_lower_cap_is_slower(seed):
    designs, program = random_designs(seed, 10), STEP
    high, low = (settled(replace(designs, tdp_w=cap), replace(designs, tdp_w=cap), program) for cap in (900.0, 500.0))
    assert (low.time_s >= high.time_s * (1 - 1e-12)).all()
    assert (low.slowdown >= high.slowdown).all() and (high.slowdown >= 1.0).all()


def test_switching_energy_stops_falling_at_the_lowest_supply():
    ratios = switching_energy_ratio(np.array([1.0, 1.2, 10.0, 100.0]))
    assert ratios[0] == 1.0 and ratios[2] == ratios[3]


@settings(max_examples=8, deadline=None)
@given(seed=SEEDS)
def test_corners_bound_time_and_energy_of_designs_between(seed):
    low = random_designs(seed, 20, tdp_w=300.0)
    high = with_more(low, seed + 1)
    inside, program = between(low, high, seed + 2), STEP
    bound, point = settled(high, low, program), settled(inside, inside, program)
    assert (bound.time_s <= point.time_s * (1 + 1e-9)).all()
    assert (bound.energy_j <= point.energy_j * (1 + 1e-9)).all()
