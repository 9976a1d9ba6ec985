"""Carbon, energy and money of the work, from first principles."""

import numpy as np
import pytest

from models.evaluate import evaluate
from models.hardware.cost import embodied_carbon_kgco2e
from models.hardware.design import reference_design
from models.metrics import METRICS
from models.operators.factor_tables import FactorTables
from models.technology import default_technology
from tests.models.serving_scenarios import compiled

COST = default_technology().constants["cost"]


def judged(technology=None, **changes):
    design = reference_design()
    return evaluate(design, design, [compiled(**changes)], FactorTables(), technology=technology)[0]


def read(name, evaluation):
    return METRICS[name].read(evaluation)


def test_operational_carbon_is_the_electricity_of_the_site_times_the_grid():
    found = judged()
    chips_and_hosts_w = found.energy_per_unit_j * found.units_per_s + COST["host_power_w_per_chip"] * found.n_chips
    site_w = chips_and_hosts_w * COST["power_usage_effectiveness"] / COST["power_delivery_efficiency"]
    kg_per_s = site_w / 3.6e6 * COST["grid_kgco2e_per_kwh"]
    expected = 1e6 * kg_per_s / (found.units_per_s * found.tokens_per_unit)
    np.testing.assert_allclose(read("operational_kgco2e_per_million_output_tokens", found), expected)


def test_embodied_carbon_is_spread_over_the_seconds_in_which_chips_work():
    found, design = judged(), reference_design()
    working_s = COST["server_life_s"] * COST["utilization"]
    kg_per_s = embodied_carbon_kgco2e(design)[0] * found.n_chips / working_s
    expected = 1e6 * kg_per_s / (found.units_per_s * found.tokens_per_unit)
    np.testing.assert_allclose(read("embodied_kgco2e_per_million_output_tokens", found), expected)


def test_carbon_is_the_sum_of_making_and_running():
    found = judged()
    parts = [read(f"{kind}_kgco2e_per_million_output_tokens", found) for kind in ("embodied", "operational")]
    np.testing.assert_allclose(read("kgco2e_per_million_output_tokens", found), sum(parts))


@pytest.mark.parametrize(
    ("session", "unit"),
    [("usd_per_session", "usd_per_unit"), ("kgco2e_per_session", "kgco2e_per_unit")],
)
def test_a_conversation_costs_its_turns(session, unit):
    found = judged(turns_per_session=4.0)
    np.testing.assert_allclose(read(session, found), 4.0 * read(unit, found))


def test_a_cleaner_grid_lowers_running_and_nothing_else():
    green = default_technology().with_constant("cost", "grid_kgco2e_per_kwh", COST["grid_kgco2e_per_kwh"] / 10)
    ours, theirs = judged(green), judged()
    name = "operational_kgco2e_per_million_output_tokens"
    np.testing.assert_allclose(10 * read(name, ours), read(name, theirs))
    for same in ("embodied_kgco2e_per_million_output_tokens", "usd_per_unit", "units_per_s"):
        np.testing.assert_allclose(read(same, ours), read(same, theirs))


def test_peak_power_lies_between_the_average_and_the_cap():
    found = judged()
    assert (read("peak_power_w", found) >= read("average_power_w", found) * (1 - 1e-9)).all()
    assert (read("peak_power_w", found) <= reference_design().tdp_w[0] * (1 + 1e-9)).all()
