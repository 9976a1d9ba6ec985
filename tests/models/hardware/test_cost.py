"""Cost and carbon of a chip and of running it."""

import numpy as np
import pytest

from models.hardware import cost
from models.hardware.catalog import chip_designs
from models.hardware.design import SecondTier, reference_design, replace, take
from models.technology import default_technology


def test_dies_of_a_wafer_match_the_geometry():
    # Closed form: 300 mm wafer, 826 mm2 (GA100) 62 and 115 mm2 552 dies.
    assert cost.dies_per_wafer(np.array([826.0, 115.0])).astype(int).tolist() == [62, 552]


@pytest.mark.parametrize(
    ("die_mm2", "node_nm", "low_usd", "high_usd"),
    [(814.0, 4.0, 235, 364), (826.0, 7.0, 136, 212), (100.0, 5.0, 20, 34)],
    ids=["H100: third-party estimate 300", "A100", "small 5 nm die"],
)
def test_good_die_cost_lies_within_the_published_estimates(die_mm2, node_nm, low_usd, high_usd):
    # Silicon Analysts (cost.csv): H100 logic die 300 USD; the intervals are 90 % over wafer price and defects.
    assert low_usd < cost.good_die_cost_usd(np.array([die_mm2]), np.array([node_nm]))[0] < high_usd


@pytest.mark.parametrize(
    ("chip", "estimate_usd", "tolerance"),
    [("h100_sxm", 3320, 0.2), ("h200_sxm", 4800, 0.2), ("b200_sxm", 6400, 0.2), ("mi300x", 5300, 0.35)],
)
def test_unit_cost_lies_near_third_party_estimates(chip, estimate_usd, tolerance):
    # MI300X: its compute dies lie on the others, so that its package is smaller than the sum of its dies.
    # Silicon Analysts (cost.csv). They share sources with the constants: consistency, not validation.
    assert cost.unit_cost_usd(chip_designs([chip]))[0] == pytest.approx(estimate_usd, rel=tolerance)


def test_memory_costs_more_than_logic_in_a_large_accelerator():
    parts = cost.unit_cost_breakdown_usd(chip_designs(["h100_sxm", "b200_sxm"]))
    total = sum(parts.values())
    assert (parts["memory"] / total > 0.4).all()
    assert (parts["logic"] / total < 0.15).all()


def test_unit_cost_is_the_sum_of_its_parts():
    design = replace(reference_design(), second_tier=SecondTier.LPDDR5X_256GB)
    parts = cost.unit_cost_breakdown_usd(design)
    assert sum(parts.values()) == pytest.approx(cost.unit_cost_usd(design))
    assert parts["second_tier"][0] > 0


@pytest.mark.parametrize(
    "name", ["n_cores", "l2_bytes", "memory_capacity_bytes", "memory_stacks", "scale_up_bytes_per_s", "tdp_w"]
)
def test_more_of_a_resource_never_costs_less(name):
    small = reference_design()
    large = replace(small, **{name: 1.5 * getattr(small, name)})
    assert cost.unit_cost_usd(large) >= cost.unit_cost_usd(small)
    assert cost.usd_per_s(large) >= cost.usd_per_s(small)
    assert cost.embodied_carbon_kgco2e(large) >= cost.embodied_carbon_kgco2e(small)


def test_two_dies_of_half_the_size_are_cheaper_than_one():
    single, split = cost.good_die_cost_usd(np.array([800.0, 400.0]), np.array([5.0, 5.0]))
    assert 2 * split < single


def test_yield_with_salvage_lies_between_plain_yield_and_one():
    technology = default_technology()
    share = cost.effective_yield_fraction(np.array([826.0]), np.array([7.0]), technology)[0]
    plain = (1 + 8.26 * 0.1 / 3) ** -3
    assert plain < share < 1
    assert share == pytest.approx(plain + 0.85 * (1 - plain))


def test_fab_carbon_of_a_node_follows_act():
    # ACT form at 500 g/kWh: 2.15 kWh, 0.35 kg gases and 0.5 kg materials per cm2 at 7 nm, over the yield.
    design = replace(reference_design(), node_nm=7)
    share = cost.embodied_carbon_kgco2e(design)[0]
    assert 100 < share < 125


def test_electricity_at_the_chip_carries_delivery_and_cooling():
    assert cost.electricity_usd_per_j() * 3.6e6 == pytest.approx(0.08 * 1.2 / 0.9025)
    assert cost.operational_carbon_kgco2e_per_j() * 3.6e6 == pytest.approx(0.365 * 1.2 / 0.9025)


def test_an_hour_of_a_chip_is_capital_and_electricity():
    design = chip_designs(["h100_sxm"])
    idle, busy = (cost.usd_per_hour(design, np.array([watts]))[0] for watts in (0.0, 700.0))
    assert busy - idle == pytest.approx(0.7 * 0.08 * 1.2 / 0.9025)
    assert 0.2 < busy < 3.0


def test_costs_of_a_batch_equal_those_one_at_a_time():
    batch = chip_designs(["t4", "mi300x", "tpu_v4i"])
    assert cost.usd_per_s(batch) == pytest.approx([cost.usd_per_s(take(batch, [i]))[0] for i in range(3)], rel=1e-14)
