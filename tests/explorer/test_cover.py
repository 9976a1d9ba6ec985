"""Fronts: every feasible design and operating point is within the gap of a member."""

import numpy as np
import pytest

from explorer.bounds import alternative_costs
from explorer.boxes import root_boxes
from explorer.cover import Archive, CoverSearch, empty_archive
from explorer.hypervolume import dominated_hypervolume, proven_hypervolume
from explorer.objectives import Objective
from explorer.pareto import non_dominated
from explorer.problem import judge_points
from tests.explorer.small_studies import (
    COST,
    ENERGY,
    LONG,
    RATE,
    all_points,
    problem_of,
    random_space,
    study,
    with_limits,
)

BASE = problem_of(study(system={"n_chips": 2}, quality={"no_worse_than": "bf16"}))
PAIRS = [(RATE, COST), (ENERGY, COST), (Objective("area_mm2", False), Objective("tpot_p95_s", False))]


def covered(problem, gap):
    search = CoverSearch(problem, gap, root_boxes(problem), empty_archive(problem))
    for _ in range(10_000):
        if search.complete:
            return search
        search.advance(1)
    raise AssertionError("the search did not end")


def every_cost(problem):
    """Costs of every design at every alternative that is feasible, shape (n_feasible, n_objectives)."""
    points = all_points(problem.space)
    whole = np.array([[0, problem.scenarios[0].n_alternatives - 1]]).repeat(len(points), axis=0)
    costs, _ = alternative_costs(problem, points, *whole.T, problem.objectives)
    flat = costs.reshape(-1, costs.shape[2])
    return flat[np.isfinite(flat).all(axis=1)]


@pytest.mark.parametrize("objectives", PAIRS, ids=lambda pair: " and ".join(o.metric for o in pair))
@pytest.mark.parametrize(("seed", "gap"), [(0, 0.0), (5, 0.02), *([(s, 0.01) for s in range(2, 100)] if LONG else [])])
def test_every_feasible_design_is_within_the_gap_of_a_member(objectives, seed, gap):
    """Deterministic in its seed; a front that leaves a share p of spaces uncovered passes with (1 - p)^6."""
    rng = np.random.default_rng(seed)
    free = with_limits(BASE, space=random_space(rng, 60, links=True), objectives=objectives)
    areas = judge_points(free, all_points(free.space)).evaluations[0].figures.area_mm2
    problem = with_limits(free, area_mm2=float(np.quantile(areas, 0.6)))
    search, costs = covered(problem, gap), every_cost(problem)
    assert len(costs) or seed not in (0, 5)  # some of the many spaces hold no feasible design, and neither do fronts
    members = search.archive.cost
    assert len(members) <= len(costs)
    reach = members - gap * np.abs(members)
    short = (reach[:, None, :] <= costs[None] + 1e-9 * np.abs(costs[None])).all(axis=2).any(axis=0)
    assert short.all()
    assert non_dominated(members).all()
    assert (search.archive.point < problem.space.sizes).all()
    assert search.remaining_gap() == gap


def test_members_cost_what_judging_them_at_their_alternative_says():
    problem = with_limits(BASE, objectives=PAIRS[0])
    archive = covered(problem, 0.05).archive
    costs, _ = alternative_costs(problem, archive.point, archive.alternative, archive.alternative, problem.objectives)
    np.testing.assert_allclose(costs[:, 0], archive.cost, rtol=1e-12)


def test_a_front_without_a_feasible_design_is_empty_and_complete():
    search = covered(with_limits(BASE, unit_cost_usd=1.0, objectives=PAIRS[0]), 0.01)
    assert not len(search.archive.cost)
    search = covered(with_limits(BASE, area_mm2=1.0, objectives=PAIRS[0]), 0.01)
    assert not len(search.archive.cost)


def test_an_archive_keeps_only_what_nothing_beats():
    archive = Archive(np.empty((0, 2)), np.empty((0, 1), dtype=int), np.empty(0, dtype=int))
    offered = np.array([[1.0, 3.0], [2.0, 2.0], [2.0, 3.0], [np.inf, 0.0], [3.0, 1.0]])
    archive.offer(offered, np.arange(5)[:, None], np.arange(5))
    np.testing.assert_array_equal(archive.point[:, 0], [0, 1, 4])
    archive.offer(np.array([[1.0, 1.0]]), np.array([[9]]), np.array([9]))
    np.testing.assert_array_equal(archive.point[:, 0], [9])


def test_a_bound_is_covered_by_a_member_within_the_gap_in_every_objective():
    archive = Archive(np.array([[-10.0, 2.0]]), np.zeros((1, 1), dtype=int), np.zeros(1, dtype=int))
    bounds = np.array([[-10.9, 2.0], [-11.1, 2.0], [-10.0, 1.85], [-10.0, 1.75]])
    np.testing.assert_array_equal(archive.covers(bounds, 0.1), [True, False, True, False])
    assert not empty_archive(with_limits(BASE, objectives=PAIRS[0])).covers(bounds, 0.1).any()


@pytest.mark.parametrize("objectives", [*PAIRS, (RATE, COST, ENERGY)], ids=lambda o: f"{len(o)} from {o[0].metric}")
def test_the_hypervolume_of_the_true_front_lies_between_its_proven_bounds_in_every_round(objectives):
    free = with_limits(BASE, space=random_space(np.random.default_rng(5), 60, links=True), objectives=objectives)
    truth, widths = every_cost(free), []
    search = CoverSearch(free, 0.02, root_boxes(free), empty_archive(free))
    while not search.complete:
        search.advance(1)
        optimistic, found = search.optimistic_costs(), search.archive.cost
        if optimistic is None or not len(found):
            continue
        proven = proven_hypervolume(objectives, found, optimistic)
        scale = np.abs(found.min(axis=0))
        reference = found.max(axis=0) + 0.1 * scale
        volume = dominated_hypervolume(truth / scale, reference / scale)
        assert proven["lower"] <= volume * (1 + 1e-9) and volume <= proven["upper"] * (1 + 1e-9)
        widths.append(proven["upper"] / proven["lower"])
    assert widths and 1.0 <= widths[-1] <= widths[0]
