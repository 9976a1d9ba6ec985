"""Limits of a study: relative excess, at most 0 where kept."""

import numpy as np
import pytest

from explorer.constraints import chip_violations, read_limits
from explorer.document import BudgetDocument
from explorer.problem import judge_points
from tests.explorer.small_studies import all_points, problem_of, study

PROBLEM = problem_of(study(quality={"no_worse_than": "bf16"}))
JUDGED = judge_points(PROBLEM, all_points(PROBLEM.space))
FIGURES = JUDGED.evaluations[0].figures


def limits(**budget):
    return read_limits(BudgetDocument(area="500 mm2", tdp="400 W", **budget), -1.0)


def test_excess_is_relative_to_the_limit():
    found = chip_violations(limits(unit_cost="1000 USD", memory_stacks=2), JUDGED.designs, FIGURES)
    np.testing.assert_allclose(found["area"], FIGURES.area_mm2 / 500 - 1)
    np.testing.assert_allclose(found["unit_cost"], FIGURES.unit_cost_usd / 1000 - 1)
    np.testing.assert_allclose(found["memory_stacks"][:, 0], JUDGED.designs.memory_stacks / 2 - 1)


def test_what_is_not_asked_is_never_exceeded():
    found = chip_violations(limits(), JUDGED.designs, FIGURES)
    assert (found["unit_cost"] == -1).all() and (found["memory_stacks"] == -1).all() and (found["quality"] == -1).all()


def test_limits_of_manufacturing_and_of_the_lowest_clock_always_hold():
    found = chip_violations(limits(), JUDGED.designs, FIGURES)
    assert {"reticle", "memory_edge", "tdp"} < set(found)
    assert all(values.shape == (JUDGED.designs.n_designs, 1) for values in found.values())


def test_a_design_is_feasible_exactly_where_no_limit_is_exceeded():
    worst = np.max(np.stack(list(JUDGED.excess.values())), axis=0)
    np.testing.assert_array_equal(JUDGED.feasible, worst <= 0)
    assert JUDGED.feasible.any() and not JUDGED.feasible.all()


@pytest.mark.parametrize(("area", "feasible"), [("1 mm2", False), ("5000 mm2", True)])
def test_the_area_budget_decides(area, feasible):
    problem = problem_of(study(budget={"area": area, "tdp": "4000 W"}, quality={"no_worse_than": "bf16"}))
    assert judge_points(problem, all_points(problem.space)).feasible.any() == feasible
