"""Judgement of points: the best inner choice, whatever else is judged beside."""

import dataclasses

import numpy as np
import pytest

from explorer.bounds import alternative_costs
from explorer.objectives import COMBINED
from explorer.problem import judge_designs, judge_points, judged_metrics, violated_limit
from models.hardware.catalog import chip_designs
from models.metrics import metrics_of
from models.operators.factor_tables import FactorTables
from tests.explorer.small_studies import CHAT, COST, ENERGY, RATE, all_points, problem_of, study, with_limits

PROBLEM = problem_of(study({"slo": {"tpot_p95": "20 ms"}}, quality=None))
POINTS = all_points(PROBLEM.space)[::5]


@pytest.mark.parametrize("objective", [RATE, ENERGY, COST], ids=lambda o: o.metric)
def test_a_design_is_judged_at_its_best_feasible_alternative(objective):
    problem = with_limits(PROBLEM, objectives=(objective,))
    judged = judge_points(problem, POINTS)
    whole = np.array([[0, problem.scenarios[0].n_alternatives - 1]]).repeat(len(POINTS), axis=0)
    costs, _ = alternative_costs(problem, POINTS, *whole.T, (objective,))
    best = costs[:, :, 0].min(axis=1)
    np.testing.assert_array_equal(judged.feasible, np.isfinite(best))
    np.testing.assert_allclose(objective.sign * judged.objectives[judged.feasible, 0], best[judged.feasible])


def test_several_objectives_settle_on_one_alternative_that_no_other_beats_in_all():
    problem = with_limits(PROBLEM, objectives=(RATE, ENERGY))
    judged = judge_points(problem, POINTS)
    whole = np.array([[0, problem.scenarios[0].n_alternatives - 1]]).repeat(len(POINTS), axis=0)
    costs, _ = alternative_costs(problem, POINTS, *whole.T, (RATE, ENERGY))
    own = judged.objectives * [-1.0, 1.0]
    better = (costs < own[:, None, :] * (1 - np.sign(own[:, None, :]) * 1e-9)).all(axis=2)
    assert not better[judged.feasible].any()


def test_wanted_alternatives_are_kept_and_minus_one_leaves_the_choice():
    wanted = np.where(np.arange(len(POINTS)) % 2, 3, -1)
    free, asked = judge_points(PROBLEM, POINTS), judge_points(PROBLEM, POINTS, wanted)
    np.testing.assert_array_equal(asked.chosen[0][1::2], 3)
    np.testing.assert_array_equal(asked.chosen[0][::2], free.chosen[0][::2])


def test_a_batch_equals_one_at_a_time_in_any_order():
    whole = judge_points(PROBLEM, POINTS)
    for i in range(0, len(POINTS), 4):
        alone = judge_points(PROBLEM, POINTS[[i]])
        np.testing.assert_allclose(alone.objectives[0], whole.objectives[i], rtol=1e-12)
        assert alone.chosen[0][0] == whole.chosen[0][i] and alone.feasible[0] == whole.feasible[i]
    back = judge_points(PROBLEM, POINTS[::-1])
    np.testing.assert_allclose(back.objectives[::-1], whole.objectives, rtol=1e-12)


def test_tables_filled_by_other_designs_change_nothing():
    fresh = dataclasses.replace(PROBLEM, tables=FactorTables())
    judge_points(PROBLEM, all_points(PROBLEM.space)[::7])
    np.testing.assert_array_equal(judge_points(fresh, POINTS).objectives, judge_points(PROBLEM, POINTS).objectives)


def test_where_nothing_is_feasible_the_nearest_alternative_is_taken():
    tight = problem_of(study({"slo": {"tpot_p95": "1 us"}}, quality=None))
    judged = judge_points(tight, POINTS)
    assert not judged.feasible.any()
    name, excess = violated_limit(judged, 0)
    assert name == "tpot_p95" and excess == pytest.approx(judged.evaluations[0].tpot_s[0, 0] / 1e-6 - 1)
    assert (judged.evaluations[0].choices["batch"][:, 0] == 1).all()


def test_a_mixture_takes_each_scenario_at_its_own_fastest_choice():
    document = study(objectives=[{"metric": COMBINED, "direction": "maximize"}], quality=None)
    document["workload"]["scenarios"] = [CHAT, CHAT | {"name": "slow", "slo": {"tpot_p95": "10 ms"}, "weight": 3.0}]
    both = problem_of(document)
    judged = judge_points(both, POINTS)
    reference = both.mixture.reference_units_per_s
    relative = [e.units_per_s[:, 0] / r for e, r in zip(judged.evaluations, reference, strict=True)]
    np.testing.assert_allclose(judged.objectives[:, 0], 1.0 / (0.25 / relative[0] + 0.75 / relative[1]))
    assert (judged.evaluations[0].units_per_s >= judged.evaluations[1].units_per_s).all()


def test_the_reference_chip_itself_has_a_combined_rate_of_one():
    document = study(objectives=[{"metric": COMBINED, "direction": "maximize"}], quality=None)
    document["workload"]["scenarios"] = [CHAT, CHAT | {"name": "other", "requests": {"preset": "llmperf-550-150"}}]
    problem = problem_of(document)
    chip = judge_designs(problem, chip_designs(["a100_sxm"]))
    assert chip.objectives[0, 0] == pytest.approx(1.0, rel=0.02)


def test_metrics_of_a_judged_design_are_those_of_its_kind():
    metrics = judged_metrics(judge_points(PROBLEM, POINTS[:1]).evaluations[0], 0)
    assert set(metrics) == set(metrics_of("llm_serving"))


@pytest.mark.parametrize("quality", [{"max_kl_nats": 1e-9}, None])
def test_an_impossible_quality_is_a_limit_that_every_design_misses(quality):
    judged = judge_points(problem_of(study(quality=quality)), POINTS)
    assert (judged.excess["quality"] > 0).all() == (quality is not None)
