"""What a rule fills in a proposal: the number of cores that is best, and the cheapest of what nothing uses."""

import dataclasses

import numpy as np
import pytest

from explorer.filling import filled, filled_parameters
from explorer.objectives import Objective
from explorer.problem import judge_points
from tests.explorer.small_studies import COST, ENERGY, RATE, problem_of, study, with_limits

MANY = problem_of(
    study(
        space={
            "n_cores": [4, 16, 64, 96], "scale_up_link": [0, 100], "second_tier": ["cxl_512gb", "none"], "l2": [16],
        },
        quality={"no_worse_than": "bf16"},
    )
)  # fmt: skip
NAMES = [p.name for p in MANY.space.parameters]
CORES, LINK, TIER = (NAMES.index(name) for name in ("n_cores", "scale_up_link", "second_tier"))


def each_filled(problem, points):
    """Points filled one by one, so that none makes way for another."""
    return np.concatenate([filled(problem, point[None], 0, set()) for point in points])


def some_points(n=20):
    return np.random.default_rng(1).integers(0, MANY.space.sizes, (n, len(NAMES)))


@pytest.mark.parametrize("objective", [RATE, ENERGY, COST], ids=lambda o: o.metric)
def test_no_other_number_of_cores_is_better(objective):
    problem = with_limits(MANY, objectives=(objective,), area_mm2=300.0)
    found = each_filled(problem, some_points())
    chosen = judge_points(problem, found)
    for cores in range(4):
        others = found.copy()
        others[:, CORES] = cores
        judged = judge_points(problem, others)
        better = objective.sign * judged.objectives[:, 0] < objective.sign * chosen.objectives[:, 0]
        assert not (judged.feasible & (~chosen.feasible | better)).any()
    assert chosen.feasible.sum() > 0


def test_what_nothing_uses_is_taken_at_its_cheapest_and_the_rest_stays():
    points = some_points()
    found = each_filled(MANY, points)
    assert (found[:, LINK] == 0).all() and (found[:, TIER] == 1).all()
    rest = [i for i in range(len(NAMES)) if i not in (CORES, LINK, TIER)]
    np.testing.assert_array_equal(found[:, rest], points[:, rest])
    assert set(filled_parameters(MANY)) == {"n_cores", "scale_up_link", "scale_out_link", "second_tier"}


def test_what_an_objective_rewards_paying_for_is_left_to_the_sampler():
    against = with_limits(MANY, objectives=(Objective("unit_cost_usd", True),))
    assert filled_parameters(against) == ("n_cores",)


def test_the_next_best_is_taken_of_a_design_that_was_judged_before():
    point = some_points(1)
    best = filled(MANY, point, 0, set())
    second = filled(MANY, point, 0, {tuple(best[0])})
    assert best[0, CORES] != second[0, CORES]
    twice = filled(MANY, np.concatenate([point, point]), 0, set())
    np.testing.assert_array_equal(twice, [best[0], second[0]])


def test_of_several_objectives_each_is_looked_at_in_turn_and_then_all():
    problem = with_limits(MANY, objectives=(Objective("tdp_w", False), Objective("unit_cost_usd", False), RATE))
    point = np.repeat(some_points(1), 4, axis=0)
    alone = [filled(problem, point[:1], number, set())[0, CORES] for number in range(4)]
    assert alone[1] == 0  # the cheapest chip has the fewest cores
    single = filled(dataclasses.replace(problem, objectives=(RATE,)), point[:1], 0, set())
    assert alone[2] == single[0, CORES] != 0


def test_where_no_number_of_cores_is_feasible_the_nearest_is_taken():
    tight = with_limits(MANY, area_mm2=1.0)
    found = each_filled(tight, some_points())
    shortfall = []
    for cores in range(4):
        others = found.copy()
        others[:, CORES] = cores
        shortfall.append(np.max(np.stack(list(judge_points(tight, others).excess.values())), axis=0))
    np.testing.assert_array_equal(
        np.min(shortfall, axis=0), np.array(shortfall)[found[:, CORES], np.arange(len(found))]
    )
