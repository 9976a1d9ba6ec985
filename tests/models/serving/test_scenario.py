"""Inner choices of a serving scenario."""

import dataclasses

import numpy as np
import pytest

from models.architectures.plans import ParallelPlan, tensor_parallel_degrees
from models.serving.scenario import BATCH_GRID, System, alternatives
from tests.models.serving_scenarios import scenario


@pytest.mark.parametrize(
    ("n_chips", "per_node", "expected"),
    [
        (1, 1, [1]),
        (8, 8, [1, 2, 4, 8]),
        (6, 6, [1, 2, 3, 6]),
        (16, 8, [1, 2, 4, 8, 16]),
        (24, 8, [1, 2, 4, 8, 24]),
        (64, 64, [1, 2, 4, 8, 16, 32]),
        (64, 8, [1, 2, 4, 8, 16, 32]),
    ],
)
def test_degrees_divide_the_chips_and_leave_a_query_head_to_each(n_chips, per_node, expected):
    # Llama-3.1-8B has 32 query heads
    assert tensor_parallel_degrees(scenario().network, n_chips, per_node) == expected


def test_a_last_node_may_be_partly_filled():
    assert System(12, 8).n_nodes == 2
    assert System(8, 8).n_nodes == 1


def test_alternatives_are_every_combination_with_the_batch_fastest():
    found = alternatives([ParallelPlan(1), ParallelPlan(4)], 3, [1, 2, 8])
    assert len(found) == 18
    np.testing.assert_array_equal(found.batch[:4], [1, 2, 8, 1])
    np.testing.assert_array_equal(found.mix[:4], [0, 0, 0, 1])
    np.testing.assert_array_equal(found.tensor_parallel, np.repeat([1, 4], 9))
    combined = set(zip(*[getattr(found, f.name) for f in dataclasses.fields(found)], strict=True))
    assert len(combined) == 18


def test_the_batch_grid_rises_in_steps_of_at_most_a_half():
    grid = np.array(BATCH_GRID)
    assert grid[0] == 1 and grid[-1] == 1024
    assert (np.diff(grid) > 0).all()
    assert (grid[3:] / grid[2:-1] <= 1.5).all()
