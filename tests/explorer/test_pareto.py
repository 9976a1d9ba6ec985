"""Fronts and their knee."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.pareto import knee, non_dominated

COSTS = st.lists(st.tuples(*[st.integers(0, 6)] * 3), min_size=1, max_size=40)


def brute_force(costs):
    """Rows that no other beats or equals everywhere and beats somewhere; of equal rows the first."""
    kept = []
    for i, row in enumerate(costs):
        beaten = any((other <= row).all() and (other < row).any() for other in costs)
        kept.append(not beaten and not any((costs[j] == row).all() for j in range(i)))
    return np.array(kept)


@settings(max_examples=100, deadline=None)
@given(rows=COSTS)
def test_the_front_is_that_of_all_pairs(rows):
    costs = np.array(rows, dtype=float)
    np.testing.assert_array_equal(non_dominated(costs), brute_force(costs))


@settings(max_examples=30, deadline=None)
@given(rows=COSTS, seed=st.integers(0, 100))
def test_the_order_of_rows_changes_only_which_of_equals_is_kept(rows, seed):
    costs = np.array(rows, dtype=float)
    order = np.random.default_rng(seed).permutation(len(costs))
    front = {tuple(row) for row in costs[non_dominated(costs)]}
    assert {tuple(row) for row in costs[order][non_dominated(costs[order])]} == front


def test_one_objective_keeps_its_best_row_alone():
    np.testing.assert_array_equal(non_dominated(np.array([[3.0], [1.0], [2.0], [1.0]])), [False, True, False, False])


def test_no_rows_have_no_front():
    assert not len(non_dominated(np.empty((0, 2))))


def test_the_knee_gives_up_least_in_all_objectives_together():
    assert knee(np.array([[1.0, 9.0], [1.5, 4.0], [4.0, 3.0]])) == 1
    assert knee(np.array([[-9.0, 2.0], [-5.0, 1.9], [-1.0, 1.0]])) == 0


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_units_do_not_move_the_knee(scale):
    costs = np.array([[-9.0, 2.0], [-6.0, 1.2], [-1.0, 1.0]])
    assert knee(costs * [scale, 1.0]) == knee(costs)
