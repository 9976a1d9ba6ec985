"""Samplers: new points of the space, the same for the same past and seed."""

import numpy as np
import optuna
import pytest

from explorer.problem import judge_points
from explorer.records import records_of
from explorer.samplers import SAMPLERS, distributions, optuna_study, propose, unseen
from explorer.space import point_of, read_space
from tests.explorer.small_studies import COST, RATE, SPACE, all_points, problem_of, study, with_limits

PROBLEM = problem_of(study(quality={"no_worse_than": "bf16"}))
SPACE_ = PROBLEM.space


def past_of(n, problem=PROBLEM):
    points = all_points(problem.space)[np.random.default_rng(0).permutation(problem.space.n_designs)[:n]]
    return records_of(problem, points, judge_points(problem, points), 0) if n else []


@pytest.mark.parametrize("name", SAMPLERS)
class TestEverySampler:
    @pytest.mark.parametrize("n_past", [0, 30])
    def test_proposes_new_points_of_the_space(self, name, n_past):
        past = past_of(n_past)
        points = propose(name, SPACE_, PROBLEM.objectives, past, [1, 0], 15)
        assert points.shape == (15, len(SPACE_.parameters))
        assert (points >= 0).all() and (points < SPACE_.sizes).all()
        seen = {tuple(point_of(SPACE_, record.params)) for record in past}
        assert len({tuple(p) for p in points} | seen) == 15 + n_past

    def test_is_a_function_of_past_and_seed(self, name):
        past = past_of(30)
        first = propose(name, SPACE_, PROBLEM.objectives, past, [1, 2], 8)
        np.testing.assert_array_equal(propose(name, SPACE_, PROBLEM.objectives, past, [1, 2], 8), first)
        assert (propose(name, SPACE_, PROBLEM.objectives, past, [1, 3], 8) != first).any()

    def test_takes_several_objectives(self, name):
        problem = with_limits(PROBLEM, objectives=(RATE, COST))
        assert len(propose(name, SPACE_, problem.objectives, past_of(25, problem), [0, 1], 5)) == 5

    def test_empties_a_space_that_is_nearly_exhausted(self, name):
        past = past_of(SPACE_.n_designs - 3)
        points = propose(name, SPACE_, PROBLEM.objectives, past, [5, 0], 20)
        seen = {tuple(point_of(SPACE_, record.params)) for record in past}
        assert {tuple(p) for p in points} | seen == {tuple(p) for p in all_points(SPACE_)}
        assert len(points) == 3


def test_a_study_of_optuna_holds_every_trial_with_its_named_limits():
    past = past_of(6)
    trials = optuna_study(SPACE_, PROBLEM.objectives, past).get_trials()
    assert [trial.state for trial in trials] == [optuna.trial.TrialState.COMPLETE] * 6
    for trial, record in zip(trials, past, strict=True):
        assert trial.values == record.objectives
        assert trial.user_attrs["violated"] == record.violated
        assert list(trial.params.values()) == list(point_of(SPACE_, record.params))


def test_ordered_values_are_integers_and_others_categories():
    allowed = distributions(read_space(SPACE))
    assert isinstance(allowed["n_cores"], optuna.distributions.IntDistribution)
    assert isinstance(allowed["array_shape"], optuna.distributions.CategoricalDistribution)
    assert allowed["n_cores"].high == 1


def test_an_unseen_point_is_the_point_itself_where_it_is_new():
    rng, point = np.random.default_rng(0), all_points(SPACE_)[5]
    np.testing.assert_array_equal(unseen(point, SPACE_, set(), rng), point)
    assert tuple(unseen(point, SPACE_, {tuple(point)}, rng)) != tuple(point)


def test_a_space_without_an_unseen_point_is_said_to_be_exhausted():
    with pytest.raises(ValueError, match="the space holds no design that was not judged"):
        unseen(all_points(SPACE_)[0], SPACE_, {tuple(p) for p in all_points(SPACE_)}, np.random.default_rng(0))
