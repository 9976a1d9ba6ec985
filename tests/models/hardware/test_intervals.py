"""Intervals of cost and energy."""

import numpy as np
import pytest

from models.checks import UnknownNameError
from models.hardware.catalog import chip_designs
from models.hardware.cost import unit_cost_usd
from models.hardware.design import take
from models.hardware.intervals import energy_interval_j, unit_cost_interval_usd


@pytest.mark.parametrize(("chip", "estimate_usd"), [("h100_sxm", 3320), ("h200_sxm", 4800), ("b200_sxm", 6400)])
def test_cost_interval_holds_third_party_estimates(chip, estimate_usd):
    # Silicon Analysts (cost.csv); they share sources with the constants: consistency, not validation.
    low, high = unit_cost_interval_usd(chip_designs([chip]))
    assert low[0] < estimate_usd < high[0]


def test_cost_interval_holds_the_cost_and_is_no_wider_than_its_widest_source():
    chips = chip_designs(["a100_sxm", "l4", "mi300x"])
    low, high = unit_cost_interval_usd(chips)
    cost = unit_cost_usd(chips)
    assert (low < cost).all()
    assert (cost < high).all()
    assert (high / cost < 1.5).all()


def test_energy_interval_of_independent_parts_is_narrower_than_their_sum():
    parts = {"switching": np.array([100.0]), "main_memory": np.array([100.0]), "static": np.array([100.0])}
    low, high = energy_interval_j(parts)
    assert high[0] == pytest.approx(300 + np.sqrt(25**2 + 20**2 + 35**2))
    assert 300 - 25 - 20 - 35 < low[0] < 300


def test_cost_intervals_of_a_batch_equal_those_one_at_a_time():
    batch = chip_designs(["t4", "mi300x"])
    together = unit_cost_interval_usd(batch)
    for i in range(2):
        alone = unit_cost_interval_usd(take(batch, [i]))
        assert [end[0] for end in alone] == pytest.approx([end[i] for end in together], rel=1e-9)


def test_an_unknown_part_is_refused():
    with pytest.raises(UnknownNameError, match="did you mean 'links'"):
        energy_interval_j({"link": np.array([1.0])})
