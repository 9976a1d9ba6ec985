"""Breakdowns add up, intervals hold their figures, and heat beyond known cooling is said."""

import pytest

from explorer.evaluation import evaluate_document
from tests.explorer.small_studies import STUDY
from tests.explorer.test_evaluation import DESIGN

WITH_PARTS = ("area_mm2", "full_rate_power_w", "unit_cost_usd", "energy_per_unit_j", "usd_per_unit")


@pytest.fixture(scope="module")
def judged():
    return evaluate_document({"chip": "h100_sxm", "study": STUDY})


@pytest.mark.parametrize("name", WITH_PARTS)
def test_parts_add_up_to_the_figure_and_the_figure_to_the_metric(judged, name):
    figure = judged["figures"][name]
    assert sum(figure["parts"].values()) == pytest.approx(figure["value"])
    assert figure["value"] == pytest.approx(judged["metrics"][name])


@pytest.mark.parametrize("name", [*WITH_PARTS, "static_power_w", "average_power_w"])
def test_the_interval_holds_the_figure_and_is_no_wider_than_a_factor_of_two(judged, name):
    figure = judged["figures"][name]
    assert figure["value"] / 2 < figure["low_90"] < figure["value"] < figure["high_90"] < 2 * figure["value"]


def test_the_system_adds_host_network_switches_and_supply_to_the_chip(judged):
    parts = judged["figures"]["system_cost_usd"]["parts"]
    assert parts["chip"] == pytest.approx(judged["metrics"]["unit_cost_usd"])
    assert {"host", "network", "switches", "power_delivery"} < set(parts)


def test_a_dense_design_is_warned_about_and_a_cool_one_is_not():
    hot, cool = (
        evaluate_document({"design": DESIGN | {"tdp_w": tdp_w, "n_cores": 96, "clock_hz": 2.4e9}, "study": STUDY})
        for tdp_w in (1500, 150)
    )
    assert [each["code"] for each in hot["warnings"]] == ["cooling"]
    assert hot["warnings"][0]["value_w_per_mm2"] > hot["warnings"][0]["limit_w_per_mm2"]
    assert "W/mm2" in hot["warnings"][0]["detail"]
    assert cool["warnings"] == []


LIMITS = {
    "reticle": {"n_cores": 400},
    "memory_edge": {"memory_stacks": 12},
    "tdp": {"tdp_w": 20},
}


@pytest.mark.parametrize("limit", LIMITS)
def test_a_design_beyond_a_limit_of_physics_is_infeasible_with_the_number(limit):
    study = STUDY | {"budget": {"area": "5000 mm2", "tdp": "3 kW"}}
    plain = evaluate_document({"design": DESIGN, "study": study})
    beyond = evaluate_document({"design": DESIGN | LIMITS[limit], "study": study})
    assert plain["excess_fractions"][limit] <= 0 < beyond["excess_fractions"][limit]
    assert not beyond["feasible"]


def test_what_waits_is_no_more_than_the_parts_that_can_wait(judged):
    idle, parts = judged["idle"], judged["figures"]["area_mm2"]["parts"]
    waiting = sum(parts[name] * (1 - share) for name, share in idle["busy_fractions"].items())
    assert idle["idle_area_fraction"] == pytest.approx(waiting / judged["metrics"]["area_mm2"])
    assert 0 < idle["idle_area_fraction"] < 1
    assert idle["idle_power_fraction"] == pytest.approx(judged["metrics"]["idle_power_fraction"])
    # Decoding at a batch of four streams the weights: memory works far more than the arrays.
    assert idle["busy_fractions"]["memory_interface"] > 3 * idle["busy_fractions"]["matrix_arrays"]
