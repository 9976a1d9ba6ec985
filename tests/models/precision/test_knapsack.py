"""The exact choice of options under an error budget against every combination tried."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.precision.knapsack import cheapest_choices


def brute_force(cost: list[np.ndarray], error: list[np.ndarray], budget: float) -> float:
    """Least cost of one design over all combinations within the budget."""
    combinations = itertools.product(*[range(len(values)) for values in error])
    totals = [
        sum(cost[g][o] for g, o in enumerate(combination))
        for combination in combinations
        if sum(error[g][o] for g, o in enumerate(combination)) <= budget * (1 + 1e-12)
    ]
    return min(totals, default=np.inf)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.floats(0, 1))
def test_optimum_equals_brute_force_for_any_additive_cost(seed: int, n_groups: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, n_groups)
    # Rounded to a tenth so that ties between combinations occur.
    cost = [rng.random((3, size)).round(1) for size in sizes]
    error = [rng.random(size).round(1) for size in sizes]
    budget = share * sum(float(values.max()) for values in error)
    choice, total = cheapest_choices(cost, error, budget)
    for design in range(3):
        expected = brute_force([values[design] for values in cost], error, budget)
        assert total[design] == pytest.approx(expected)
        if np.isfinite(expected):
            picked = choice[design]
            assert sum(cost[g][design, o] for g, o in enumerate(picked)) == pytest.approx(expected)
            assert sum(error[g][o] for g, o in enumerate(picked)) <= budget + 1e-9


def test_batch_equals_one_at_a_time_across_blocks() -> None:
    rng = np.random.default_rng(1)
    error = [np.sort(rng.random(4)) for _ in range(4)]
    cost = [rng.random((20, 4)) for _ in range(4)]
    _, together = cheapest_choices(cost, error, 1.0)
    alone = [cheapest_choices([values[i : i + 1] for values in cost], error, 1.0)[1][0] for i in range(20)]
    assert together.tolist() == pytest.approx(alone)


def test_more_budget_never_costs_more() -> None:
    rng = np.random.default_rng(2)
    error = [rng.random(4) for _ in range(5)]
    cost = [rng.random((1, 4)) for _ in range(5)]
    totals = [cheapest_choices(cost, error, budget)[1][0] for budget in np.linspace(0, 5, 30)]
    assert all(later <= earlier for earlier, later in itertools.pairwise(totals))


def test_budget_that_nothing_fits_is_told_by_minus_one_and_infinity() -> None:
    choice, total = cheapest_choices([np.ones((2, 2))], [np.array([1.0, 2.0])], 0.5)
    assert choice.tolist() == [[-1], [-1]]
    assert np.isinf(total).all()


def test_cost_that_is_not_finite_and_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="cost must be a finite number, got inf"):
        cheapest_choices([np.array([[np.inf]])], [np.zeros(1)], 1.0)
    with pytest.raises(ValueError, match=r"cost of group 1 must have shape \(1, 2\), got \(1, 3\)"):
        cheapest_choices([np.zeros((1, 1)), np.zeros((1, 3))], [np.zeros(1), np.zeros(2)], 1.0)
    with pytest.raises(ValueError, match="same number of groups, got 0 and 0"):
        cheapest_choices([], [], 1.0)
