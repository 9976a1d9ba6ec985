"""Objectives: read from one scenario or a mixture, in the metric's unit."""

import numpy as np
import pytest

from explorer.document import ObjectiveDocument, StudyError
from explorer.objectives import (
    COMBINED,
    DESIGN_METRICS,
    REGRET,
    Mixture,
    Objective,
    objective_values,
    read_objectives,
)
from explorer.problem import judge_points
from models.evaluation import take_alternatives
from models.metrics import METRICS, metrics_of
from tests.explorer.small_studies import all_points, problem_of, study

PROBLEM = problem_of(study(quality={"no_worse_than": "bf16"}))
JUDGED = judge_points(PROBLEM, all_points(PROBLEM.space)[:4])
TWO = [JUDGED.evaluations[0]] * 2


def documents(*names):
    return [ObjectiveDocument(metric=name, direction="maximize") for name in names]


@pytest.mark.parametrize("name", metrics_of("llm_serving"))
class TestEveryObjective:
    def test_returns_one_finite_number_per_design(self, name):
        values = objective_values(Objective(name, True), JUDGED.evaluations, PROBLEM.mixture)
        assert values.shape == (4, 1) and np.isfinite(values).all()

    def test_reads_the_metric(self, name):
        values = objective_values(Objective(name, True), JUDGED.evaluations, PROBLEM.mixture)
        np.testing.assert_array_equal(values, np.broadcast_to(METRICS[name].read(JUDGED.evaluations[0]), (4, 1)))


def test_the_combined_rate_is_the_weighted_harmonic_mean_of_relative_rates():
    rate = JUDGED.evaluations[0].units_per_s
    mixture = Mixture(np.array([1.0, 3.0]), np.array([2.0, 5.0]))
    expected = 1.0 / (0.25 * 2.0 / rate + 0.75 * 5.0 / rate)
    np.testing.assert_allclose(objective_values(Objective(COMBINED, True), TWO, mixture), expected)


def test_a_weight_is_a_share_of_time_on_the_reference_chip():
    rate = JUDGED.evaluations[0].units_per_s[0, 0]
    mixture = Mixture(np.array([0.3, 0.7]), np.array([rate, rate]))
    one = [take_alternatives(JUDGED.evaluations[0], np.zeros(4, dtype=int))] * 2
    np.testing.assert_allclose(objective_values(Objective(COMBINED, True), one, mixture)[0], 1.0)


def test_regret_is_the_largest_relative_loss_and_below_zero_only_for_promises_beyond_the_best():
    rate = JUDGED.evaluations[0].units_per_s
    mixture = Mixture(np.ones(2), np.ones(2), lambda: np.array([2.0, 4.0]) * rate[0, 0])
    np.testing.assert_allclose(objective_values(Objective(REGRET, False), TWO, mixture)[0], 0.75)
    beyond = Mixture(np.ones(2), np.ones(2), lambda: np.array([0.5, 0.9]) * rate.min())
    assert (objective_values(Objective(REGRET, False), TWO, beyond) < 0).all()


def test_regret_without_best_rates_is_refused():
    with pytest.raises(ValueError, match="regret needs the best rate of each scenario"):
        objective_values(Objective(REGRET, False), TWO, Mixture(np.ones(2), np.ones(2)))


def test_a_mixture_has_only_metrics_that_no_scenario_changes_and_combined_ones():
    kinds = ["llm_serving", "convnet"]
    for name in (*DESIGN_METRICS, COMBINED, REGRET):
        assert read_objectives(documents(name), kinds)[0].metric == name
    for name in set(METRICS) - set(DESIGN_METRICS):
        with pytest.raises(StudyError, match=f"unknown metric of convnet and llm_serving '{name}'"):
            read_objectives(documents(name), kinds)


def test_every_faulty_objective_is_pointed_at():
    with pytest.raises(StudyError) as caught:
        read_objectives(documents("tdp_w", "speed", "images_per_s", "tdp_w"), ["llm_serving"])
    assert [e["pointer"] for e in caught.value.errors] == [
        "/objectives/1/metric", "/objectives/2/metric", "/objectives",
    ]  # fmt: skip


def test_the_sign_turns_a_metric_into_something_to_minimise():
    assert Objective("tdp_w", False).sign == 1.0 and Objective("units_per_s", True).sign == -1.0
