"""Hypervolume: closed forms, and counted random points."""

import numpy as np
import pytest

from explorer.hypervolume import dominated_hypervolume, proven_hypervolume
from explorer.objectives import Objective
from explorer.records import TrialRecord
from explorer.stall import is_stalled


def test_one_objective_gives_the_distance_of_the_best():
    assert dominated_hypervolume(np.array([[3.0], [1.0], [9.0]]), np.array([5.0])) == 4.0


@pytest.mark.parametrize("n_objectives", [1, 2, 3, 4])
def test_one_point_dominates_a_box(n_objectives):
    assert dominated_hypervolume(np.full((1, n_objectives), 1.0), np.full(n_objectives, 3.0)) == 2.0**n_objectives


def test_rows_that_are_not_inside_the_reference_count_nothing():
    assert dominated_hypervolume(np.array([[1.0, 5.0], [4.0, 0.0]]), np.array([4.0, 4.0])) == 0.0
    assert dominated_hypervolume(np.empty((0, 2)), np.array([1.0, 1.0])) == 0.0


def test_two_boxes_overlap_once():
    # 2x2x2 and 1x3x3 boxes share 1x2x2
    assert dominated_hypervolume(np.array([[1.0, 1.0, 1.0], [2.0, 0.0, 0.0]]), np.full(3, 3.0)) == 8 + 9 - 4


@pytest.mark.parametrize("n_objectives", [2, 3, 4])
def test_the_volume_is_the_share_of_random_points_that_are_dominated(n_objectives):
    """By chance it differs by more than 5 standard deviations of the count with probability 6e-7."""
    rng = np.random.default_rng(n_objectives)
    costs, drawn = rng.random((12, n_objectives)), rng.random((20_000, n_objectives))
    share = np.mean(np.any(np.all(costs[None] <= drawn[:, None], axis=2), axis=1))
    volume = dominated_hypervolume(costs, np.ones(n_objectives))
    assert abs(share - volume) < 5 * np.sqrt(volume * (1 - volume) / len(drawn))


def records(*objectives):
    return [
        TrialRecord(i, {}, o is not None, None, {}, list(o or (9.0, 9.0)), {}, {}, {}) for i, o in enumerate(objectives)
    ]


def test_the_proven_hypervolume_lies_between_what_was_found_and_what_could_be():
    found, optimistic = np.array([[1.0, 4.0], [2.0, 2.0]]), np.array([[0.9, 3.8], [1.9, 1.9]])
    proven = proven_hypervolume(TWO, found, optimistic)
    assert proven["reference"] == {"tdp_w": pytest.approx(2.1), "unit_cost_usd": pytest.approx(4.2)}
    # losses relative to the best found, 1 W and 2 USD: boxes to (2.1, 2.1)
    assert proven["lower"] == pytest.approx(1.1 * 0.1 + 0.1 * 1.1 - 0.1 * 0.1)
    assert proven["upper"] == pytest.approx(1.2 * 0.2 + 0.2 * 1.15 - 0.2 * 0.2)
    assert proven_hypervolume(TWO, found[:0], optimistic) is None


def test_of_maximised_metrics_more_is_better():
    rate = (Objective("requests_per_s", True), TWO[0])
    proven = proven_hypervolume(rate, np.array([[-10.0, 1.0]]), np.array([[-11.0, 0.9]]))
    assert proven["reference"] == {"requests_per_s": pytest.approx(9.0), "tdp_w": pytest.approx(1.1)}
    assert proven["lower"] == pytest.approx(0.01) and proven["upper"] == pytest.approx(0.2 * 0.2)


TWO = (Objective("tdp_w", False), Objective("unit_cost_usd", False))


class TestStall:
    def test_a_point_that_widens_the_front_is_no_stall_and_a_dominated_one_is(self):
        assert not is_stalled(TWO, records((1.0, 4.0), (5.0, 5.0), (4.0, 1.0)), 1)
        assert is_stalled(TWO, records((1.0, 4.0), (5.0, 5.0), (3.0, 4.5)), 1)

    def test_growth_of_less_than_a_thousandth_is_a_stall(self):
        one = TWO[:1]
        assert is_stalled(one, records((1.0,), (2.0,), (0.9995,)), 1)
        assert not is_stalled(one, records((1.0,), (2.0,), (0.99,)), 1)

    def test_nothing_has_stalled_before_something_feasible_was_found_or_the_window_is_full(self):
        assert not is_stalled(TWO, records(None, None, None), 1)
        assert not is_stalled(TWO, records((1.0, 4.0), (2.0, 5.0)), 2)
        assert is_stalled(TWO, records((1.0, 4.0), (2.0, 5.0), (2.0, 5.0)), 2)
