"""What binds a design, and what relief gains: predicted from shares, and evaluated."""

import functools

import pytest

from explorer.explanation.chain import (
    LEAST_FACTOR,
    MOST_FACTOR,
    NON_BINDING_GAIN_FRACTION,
    Shares,
    bottleneck_chain,
    factor_until_next,
    time_shares,
)
from explorer.explanation.prediction import predicted, with_host
from explorer.explanation.resources import RESOURCES, relieved
from explorer.explanation.work import gain_fraction, work_of
from explorer.known_work import fitted_to
from explorer.problem import judge_designs
from models.hardware.catalog import chip_designs
from tests.explorer.explanation.reference_designs import PARAMS, problem_of, work_on

PREDICTION_TOLERANCE_FRACTION = 0.1


@functools.cache
def chain_of(name):
    return bottleneck_chain(work_on(name))


@pytest.mark.parametrize("name", PARAMS)
class TestReferenceStudies:
    def test_the_chain_has_at_least_four_steps_each_of_another_resource(self, name):
        resources = [step["resource"] for step in chain_of(name)]
        assert len(resources) >= 4 and len(set(resources)) == len(resources)

    def test_the_first_step_gains_what_its_share_predicts_within_a_tenth(self, name):
        first = chain_of(name)[0]
        assert first["gain_fraction"] > 0
        off = abs(first["predicted_gain_fraction"] / first["gain_fraction"] - 1.0)
        assert off <= PREDICTION_TOLERANCE_FRACTION

    def test_the_same_step_gains_next_to_nothing_on_a_resource_that_does_not_bind(self, name):
        others = [row for row in chain_of(name)[0]["same_factor_on_others"] if not row["binds"]]
        assert others
        assert max(row["gain_fraction"] for row in others) < NON_BINDING_GAIN_FRACTION

    def test_what_binds_gains_more_for_the_same_factor_than_anything_else(self, name):
        first = chain_of(name)[0]
        assert first["gain_fraction"] > max(row["gain_fraction"] for row in first["same_factor_on_others"])

    def test_shares_and_starts_fill_the_time_where_the_power_cap_does_not_hold(self, name):
        shares = time_shares(work_on(name)).document()
        assert all(0.0 <= share <= 1.0 for share in shares.values())
        if shares["power_cap"] < 0.01:
            assert sum(shares.values()) == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize(("name", "chip"), [("chat-550-150", "h100_sxm"), ("reasoning-moe", "mi300x")])
def test_what_binds_real_chips_is_predicted_as_well(name, chip):
    designs = chip_designs([chip])
    problem = fitted_to(problem_of(name), designs)
    first = bottleneck_chain(work_of(problem, designs, judge_designs(problem, designs).chosen), n_steps=1)[0]
    assert abs(first["predicted_gain_fraction"] / first["gain_fraction"] - 1.0) <= PREDICTION_TOLERANCE_FRACTION
    idle = [row["gain_fraction"] for row in first["same_factor_on_others"] if not row["binds"]]
    assert idle and max(idle) < NON_BINDING_GAIN_FRACTION


def test_a_step_is_the_evaluation_of_the_design_with_more_of_its_resource():
    work, first = work_on("training"), chain_of("training")[0]
    faster = work.judged(relieved(work.performance, first["resource"], first["factor"]))
    assert gain_fraction(work.now().cost(), faster.cost())[0] == pytest.approx(first["gain_fraction"])


@pytest.mark.parametrize("name", RESOURCES)
def test_nothing_is_predicted_to_change_where_nothing_does(name):
    work = work_on("edge")
    assert predicted(work, name, 1.0).cost()[0] == pytest.approx(work.now().cost()[0], rel=1e-9)


def test_a_faster_host_is_foreseen_exactly_as_its_time_adds():
    work = work_on("edge")
    assert predicted(work, "host_scheduling", 2.0).cost()[0] == pytest.approx(with_host(work, 2.0).now().cost()[0])


def test_a_resource_grows_until_the_next_one_waits_as_long():
    shares = Shares({}, {"memory_bandwidth": 0.5, "compute": 0.3}, {"memory_bandwidth": 0.5, "compute": 0.6})
    factor, until = factor_until_next(shares, "memory_bandwidth", set())
    assert until == "compute" and LEAST_FACTOR < factor < MOST_FACTOR


def test_a_resource_that_binds_alone_grows_to_the_largest_factor():
    shares = Shares({}, {"memory_bandwidth": 0.9, "compute": 0.0}, {"memory_bandwidth": 0.1, "compute": 1.0})
    assert factor_until_next(shares, "memory_bandwidth", set()) == (MOST_FACTOR, "factor_limit")


def test_links_between_chips_that_do_not_talk_have_no_share():
    assert time_shares(work_on("chat-550-150")).time["scale_out_link"] == 0.0
