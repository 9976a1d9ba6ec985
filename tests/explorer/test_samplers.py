"""Samplers: new points of the space, the same for the same past and seed."""

import functools

import numpy as np
import optuna
import pytest

from explorer.objectives import Objective
from explorer.problem import judge_points
from explorer.records import TrialRecord, records_of
from explorer.samplers import (
    EXHAUSTIVE,
    ONE_OBJECTIVE,
    POPULATION,
    SAMPLERS,
    Asker,
    distributions,
    optuna_study,
    propose,
    unseen,
)
from explorer.space import point_of, read_space, values_at
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
        other = propose(name, SPACE_, PROBLEM.objectives, past, [2, 3], 8)
        assert (other != first).any() != (name == EXHAUSTIVE)

    def test_takes_several_objectives(self, name):
        if name in ONE_OBJECTIVE:
            pytest.skip("follows one objective, which reading a study says")
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


def bowl_record(space, number, point):
    """A made-up trial: feasible below a count of cores, and the better the nearer its indices are to a third."""
    distance = float(np.sum((point / np.maximum(space.sizes - 1, 1) - 1 / 3) ** 2))
    excess = {"cores": float(point[4] - 12)}
    params = values_at(space, point)
    return TrialRecord(number, params, excess["cores"] <= 0, None, excess, [distance], {}, {}, {})


@functools.cache
def best_distance(name, seed, trials=120, batch=10):
    """Least distance that a sampler reaches on the bowl in the full space."""
    space, records = read_space("full"), []
    while len(records) < trials:
        points = propose(name, space, (Objective("tdp_w", False),), records, [seed, len(records)], batch)
        records += [bowl_record(space, len(records) + i, point) for i, point in enumerate(points)]
    return min(r.objectives[0] for r in records if r.feasible)


@pytest.mark.parametrize("name", ["tpe", "nsga2", "nsga3", "cmaes"])
def test_a_sampler_that_learns_comes_nearer_to_the_bottom_of_a_bowl_than_random_search(name):
    # deterministic in its seeds; before generations were told to it, NSGA-II equalled random search to the last digit
    learned, random = (np.median([best_distance(each, seed) for seed in range(3)]) for each in (name, "random"))
    assert learned < 0.8 * random


def test_children_of_a_generation_take_after_their_parents():
    points = all_points(SPACE_)
    axis = int(np.argmax(SPACE_.sizes))
    parents = np.resize(points[points[:, axis] == 1], (POPULATION, points.shape[1]))
    past = records_of(PROBLEM, parents, judge_points(PROBLEM, parents), 0)
    children = Asker("nsga2", SPACE_, PROBLEM.objectives, past, 0).ask(1, 30)
    assert np.mean(children[:, axis] == 1) > 0.8


def test_a_sobol_sequence_goes_on_where_the_last_batch_ended():
    space = read_space("full")
    whole = Asker("qmc", space, (RATE,), [], 3).ask(0, 32)
    begun = [bowl_record(space, i, point) for i, point in enumerate(whole[:20])]
    np.testing.assert_array_equal(Asker("qmc", space, (RATE,), begun, 3).ask(1, 12), whole[20:])
    noc = [p.name for p in space.parameters].index("noc_per_core")
    assert list(np.bincount(whole[:, noc])) == [8, 8, 8, 8]


def test_the_exhaustive_sampler_goes_through_the_space_in_order():
    points = propose(EXHAUSTIVE, SPACE_, PROBLEM.objectives, [], [0, 0], SPACE_.n_designs)
    np.testing.assert_array_equal(points, all_points(SPACE_))


def test_parameters_that_a_rule_fills_are_not_asked_for():
    past = past_of(30)
    study = optuna_study(SPACE_, PROBLEM.objectives, past, filled=("n_cores",))
    assert all("n_cores" not in trial.params for trial in study.get_trials())
    points = Asker("tpe", SPACE_, PROBLEM.objectives, past, 0, ("n_cores",)).ask(1, 10)
    assert (points[:, 4] == 0).all() and (points[:, 5] != 0).any()


@pytest.mark.parametrize("name", ["tpe", "cmaes", "random"])
def test_what_is_learned_later_counts_as_what_was_known_from_the_start(name):
    past = past_of(40)
    once = Asker(name, SPACE_, PROBLEM.objectives, past, 0).ask(7, 5)
    twice = Asker(name, SPACE_, PROBLEM.objectives, past[:25], 0)
    twice.ask(6, 5)
    twice.learn(past[25:])
    np.testing.assert_array_equal(twice.ask(7, 5), once)
