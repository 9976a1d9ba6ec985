"""The exact search against enumeration: the same optimum on random spaces with random limits."""

import dataclasses

import numpy as np
import pytest

from explorer.boxes import root_boxes
from explorer.cover import CoverSearch, empty_archive
from explorer.exact import ExactSearch, halves
from explorer.local_search import neighbours
from explorer.objectives import Objective
from explorer.problem import judge_points
from explorer.space import read_space
from models.serving.scenario import Slo
from tests.explorer.small_studies import (
    COST,
    ENERGY,
    JUDGED_TOGETHER,
    LONG,
    RATE,
    SPACE,
    all_points,
    enumerated,
    problem_of,
    proven,
    random_space,
    study,
    with_limits,
)

N_CASES, N_WITH_LOCAL_SEARCH = (500, 100) if LONG else (20, 3)
MOST_DESIGNS = 50_000 if LONG else 100
"""Of a random space; its own limit is drawn between 100 and this, small ones as often as large ones."""

ONE_MIX, THREE_MIXES = {"quality": {"no_worse_than": "bf16"}}, {"quality": None}
BASES = {
    "one chip": study(**THREE_MIXES),
    "whole prompts": study({"scheduling": "whole_prompt"}, **ONE_MIX),
    "two chips": study(system={"n_chips": 2}, **ONE_MIX),
    "experts on four chips": study({"network": "mixtral-8x7b"}, system={"n_chips": 4}, **THREE_MIXES),
    "pools on four chips": study({"scheduling": "disaggregated"}, system={"n_chips": 4, "n_chips_per_node": 2}),
    "pipelines and guesses": study(
        {"network": "llama-3.1-70b", "speculation": {"draft_tokens": 2, "acceptance": 0.7}}, system={"n_chips": 4}
    ),
}
OBJECTIVES = (
    RATE, ENERGY, COST,
    Objective("output_tokens_per_s_per_mm2", True), Objective("output_tokens_per_s_per_usd", True),
    Objective("ttft_p95_s", False), Objective("tpot_p95_s", False), Objective("unit_cost_usd", False),
    Objective("tdp_w", False),
)  # fmt: skip

_PREPARED = {}


def base(name):
    if name not in _PREPARED:
        _PREPARED[name] = problem_of(BASES[name])
    return _PREPARED[name]


def random_problem(seed):
    """A random sub-space whose limits are quantiles of its own designs, each active in half of the cases."""
    rng = np.random.default_rng(seed)
    name = list(BASES)[seed % len(BASES)]
    objective = OBJECTIVES[int(rng.integers(len(OBJECTIVES)))]
    most = int(np.exp(rng.uniform(np.log(100), np.log(MOST_DESIGNS))))
    free = with_limits(
        base(name), area_mm2=1e4, unit_cost_usd=np.inf, slo=Slo(), objectives=(objective,),
        space=random_space(rng, most, links="chips" in name),
    )  # fmt: skip
    points = all_points(free.space)
    judged = judge_points(free, points[rng.choice(len(points), min(len(points), JUDGED_TOGETHER), replace=False)])
    found = judged.evaluations[0]

    def drawn(values, otherwise):
        return float(np.quantile(values, rng.uniform(0.02, 0.9))) if rng.random() < 0.5 else otherwise

    slo = Slo(drawn(found.ttft_s, np.inf), drawn(found.tpot_s, np.inf))
    return with_limits(
        free,
        area_mm2=drawn(found.figures.area_mm2, 1e4),
        unit_cost_usd=drawn(found.figures.unit_cost_usd, np.inf),
        slo=slo,
    )


@pytest.fixture
def bounds_alone(monkeypatch):
    """A search without local search: it meets the optimum only where bounds leave its box open to the end."""
    monkeypatch.setattr(ExactSearch, "_seek_in_best", lambda self, rows: None)
    monkeypatch.setattr(ExactSearch, "_seek_from_everywhere", lambda self: None)


def assert_finds_the_optimum(problem, expected):
    search = proven(problem)
    assert search.incumbent.cost == pytest.approx(expected, rel=1e-9)
    if np.isfinite(expected):
        assert search.bound <= expected + 1e-9 * abs(expected)
        assert (search.incumbent.point < problem.space.sizes).all() and (search.incumbent.point >= 0).all()
        assert search.gap == pytest.approx(0.0, abs=1e-8)


class TestAgainstEnumeration:
    """
    Every case is deterministic in its seed, so a failure repeats.

    None fails by chance. A bound that loses the optimum in a share p of such spaces passes with (1 - p) to the number
    of cases: for p = 0.2 with 1 % here; in the long form with less than 1e-40, and for p = 0.01 with 0.7 %.
    """

    feasible: list[bool] = []

    @pytest.mark.parametrize("seed", range(N_CASES))
    def test_bounds_alone_leave_the_optimum_of_enumeration(self, seed, bounds_alone):
        problem = random_problem(seed)
        expected = enumerated(problem)
        self.feasible.append(bool(np.isfinite(expected)))
        assert_finds_the_optimum(problem, expected)

    @pytest.mark.parametrize("seed", range(1000, 1000 + N_WITH_LOCAL_SEARCH))
    def test_the_whole_search_finds_the_optimum_of_enumeration(self, seed):
        problem = random_problem(seed)
        assert_finds_the_optimum(problem, enumerated(problem))

    def test_most_cases_hold_a_feasible_design_and_some_hold_none(self):
        # limits drawn from the whole range of numbers would leave most spaces empty and test little
        assert len(self.feasible) == N_CASES
        assert 0.5 < np.mean(self.feasible) < 1.0


def test_the_incumbent_is_what_judging_its_point_says():
    problem = with_limits(base("one chip"), objectives=(COST,))
    search = proven(problem)
    judged = judge_points(problem, search.incumbent.point[None, :], np.array([search.incumbent.alternative]))
    assert judged.feasible[0]
    assert judged.objectives[0, 0] == pytest.approx(search.incumbent.cost, rel=1e-12)


@pytest.mark.parametrize("gap", [0.0, 0.01, 0.2])
def test_a_target_gap_ends_within_it(gap):
    problem = with_limits(base("one chip"), objectives=(ENERGY,))
    search, best = proven(problem, gap), enumerated(problem)
    assert search.gap <= gap + 1e-9
    assert search.bound <= best * (1 + 1e-9)
    assert best <= search.incumbent.cost <= best * (1 + gap) / (1 - gap) * (1 + 1e-9)


def test_the_bound_never_exceeds_the_optimum_and_the_gap_never_grows():
    problem = with_limits(base("one chip"), objectives=(COST,))
    best, gaps = enumerated(problem), []
    search = ExactSearch(problem, COST, 0.0)
    while not search.complete:
        assert search.bound <= best * (1 + 1e-9)
        gaps.append(search.gap)
        search.advance(1)
    known = [gap for gap in gaps if np.isfinite(gap)]
    assert known == gaps[len(gaps) - len(known) :] and (np.diff(known) <= 1e-12).all()


@pytest.mark.parametrize("limit", [{"unit_cost_usd": 1.0}, {"area_mm2": 1.0}, {"slo": Slo(ttft_s=1e-6)}])
def test_nothing_feasible_is_proven_as_such(limit):
    search = proven(with_limits(base("one chip"), **limit))
    assert search.complete and search.incumbent.point is None
    assert search.bound == np.inf and search.gap == 0.0


def test_a_second_tier_that_nothing_uses_is_taken_at_its_cheapest_whatever_the_order(bounds_alone):
    for tiers in (["cxl_512gb", "lpddr5x_256gb"], ["lpddr5x_256gb", "cxl_512gb"], ["cxl_512gb", "none"]):
        space = read_space(SPACE | {"second_tier": tiers, "n_cores": 96, "l2": 64, "clock": 1.6})
        problem = with_limits(base("one chip"), objectives=(COST,), space=space)
        assert proven(problem).incumbent.cost == pytest.approx(enumerated(problem), rel=1e-9)


def test_the_same_search_twice_is_the_same():
    problem = with_limits(base("one chip"), objectives=(ENERGY,))
    first, second = proven(problem), proven(dataclasses.replace(problem))
    assert first.incumbent.cost == second.incumbent.cost and first.boxes_bounded == second.boxes_bounded
    np.testing.assert_array_equal(first.incumbent.point, second.incumbent.point)


def test_a_search_of_no_boxes_is_complete_at_once():
    problem = with_limits(base("one chip"), objectives=(COST, RATE))
    nothing = root_boxes(problem).take(np.zeros(0, dtype=np.int64))
    whole = ExactSearch(problem, COST, 0.0, roots=nothing), CoverSearch(problem, 0.01, nothing, empty_archive(problem))
    for search in whole:
        search.advance(1)
        assert search.complete and search.n_open == 0


def test_neighbours_stay_inside_the_space_and_are_distinct():
    space = base("one chip").space
    for point in all_points(space)[::37]:
        near = neighbours(space, point)
        assert (near >= 0).all() and (near < space.sizes).all()
        assert len({tuple(p) for p in near}) == len(near)
        np.testing.assert_array_equal(near[0], point)


def test_halves_of_a_box_hold_every_design_of_it_once():
    boxes = root_boxes(base("one chip"))
    axis = np.array([int(np.argmax(high - low)) for low, high in zip(boxes.low, boxes.high, strict=True)])
    both = halves(boxes, axis)
    rows, n = np.arange(boxes.n_boxes), boxes.n_boxes
    assert (both.low[:n] == boxes.low).all() and (both.high[n:] == boxes.high).all()
    assert (both.high[:n][rows, axis] + 1 == both.low[n:][rows, axis]).all()
