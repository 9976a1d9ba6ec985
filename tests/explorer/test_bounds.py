"""Boxes: never a bound above a design inside, roots that cover the space, cuts that lose nothing within budget."""

import numpy as np
import pytest

from explorer.bounds import alternative_costs, bound_boxes, is_boundable, require_boundable
from explorer.box_bounds import Below
from explorer.boxes import Boxes, alternative_windows, idle_parameters, join, point_boxes, root_boxes
from explorer.budget_cuts import budget_spans, tighten
from explorer.corners import corners
from explorer.document import StudyError
from explorer.objectives import COMBINED, REGRET, Objective
from explorer.problem import judge_points
from models.hardware.area import die_area_mm2
from models.metrics import METRICS, metrics_of
from models.serving.scenario import Slo
from tests.explorer.small_studies import COST, ENERGY, LONG, RATE, all_points, problem_of, study, with_limits

N_BOXES = 5000 if LONG else 300

FULL = problem_of(study(system={"n_chips": 2}, quality=None) | {"space": "full"})
LIMITED = with_limits(FULL, area_mm2=600.0, unit_cost_usd=1500.0, slo=Slo(0.5, 0.02))
SMALL = problem_of(study(quality=None))
FORMATS = [["bf16"], ["bf16", "int8"], ["bf16", "fp8"], ["bf16", "fp8", "int8"], ["bf16", "fp8", "fp4"]]
BOUNDED = tuple(
    Objective(name, metric.direction == "maximize") for name, metric in metrics_of("llm_serving").items()
    if metric.bounded
)  # fmt: skip


def random_boxes(problem, n_boxes, seed, widest=1.0):
    """Random boxes with random windows, some of one design."""
    rng = np.random.default_rng(seed)
    sizes = problem.space.sizes
    several = np.array([p.ordered or p.joined for p in problem.space.parameters])
    first = rng.integers(0, sizes, (n_boxes, len(sizes)))
    width = np.floor(rng.random((n_boxes, len(sizes))) ** 2 * widest * sizes).astype(int)
    last = np.where(several, np.minimum(first + width, sizes - 1), first)
    windows = problem.scenarios[0].windows[rng.integers(len(problem.scenarios[0].windows), size=n_boxes)]
    begin = rng.integers(windows[:, 0], windows[:, 1] + 1)
    end, nothing = rng.integers(begin, windows[:, 1] + 1), np.zeros((n_boxes, 0), dtype=bool)
    return Boxes(first, last, begin, end, np.arange(n_boxes), nothing)


def points_inside(boxes, seed):
    return np.random.default_rng(seed).integers(boxes.low, boxes.high + 1)


@pytest.mark.parametrize("problem", [FULL, LIMITED], ids=["free", "limited"])
@pytest.mark.parametrize("widest", [0.15, 1.0], ids=["narrow", "wide"])
def test_the_bound_of_a_box_is_never_above_the_cost_of_a_design_inside(problem, widest):
    """
    Every bounded metric at once, on points drawn inside and at every alternative of the window.

    A fault that shows in a share p of boxes passes with (1 - p)^1200 over the four runs: 1e-5 at p = 1 %.
    """
    boxes = random_boxes(problem, N_BOXES, 1, widest)
    bound = bound_boxes(problem, boxes, BOUNDED).cost
    for seed in range(3):
        costs, _ = alternative_costs(problem, points_inside(boxes, seed), boxes.first, boxes.last, BOUNDED)
        best = costs.min(axis=1)
        assert (bound <= best + 1e-9 * np.where(np.isfinite(best), np.abs(best), 0.0)).all()
    assert np.isfinite(bound[:, 0]).any()


def test_the_bound_of_a_point_is_its_own_cost():
    points = all_points(SMALL.space)[::7]
    windows = np.repeat(SMALL.scenarios[0].windows[:1], len(points), axis=0)
    bounds = bound_boxes(SMALL, point_boxes(points, *windows.T), (RATE, ENERGY, COST))
    costs, _ = alternative_costs(SMALL, points, *windows.T, (RATE, ENERGY, COST))
    np.testing.assert_allclose(bounds.cost, costs.min(axis=1), rtol=2e-9)


def test_alternatives_beyond_the_threshold_are_left_out_and_their_best_is_told():
    points = all_points(SMALL.space)[::7]
    windows = np.repeat(SMALL.scenarios[0].windows[:1], len(points), axis=0)
    costs, _ = alternative_costs(SMALL, points, *windows.T, (RATE,))
    best = costs[:, :, 0].min(axis=1)
    threshold = float(np.median(best[np.isfinite(best)]))
    bounds = bound_boxes(SMALL, point_boxes(points, *windows.T), (RATE,), Below(threshold))
    for row in np.flatnonzero(np.isfinite(best)):
        places = np.arange(costs.shape[1]) + windows[row, 0]
        outside = (places < bounds.first[row]) | (places > bounds.last[row])
        kept, left = costs[row, ~outside, 0], costs[row, outside, 0]
        assert (left >= threshold - 1e-9 * abs(threshold)).all() or not (kept < threshold).any()
        if np.isfinite(left).any():
            np.testing.assert_allclose(bounds.left_out[row], left.min(), rtol=2e-9)


def test_costs_of_alternatives_are_those_of_judged_designs():
    points = all_points(SMALL.space)[::9]
    windows = np.repeat(SMALL.scenarios[0].windows[1:2], len(points), axis=0)
    costs, alternatives = alternative_costs(SMALL, points, *windows.T, (RATE,))
    for column in range(costs.shape[1]):
        judged = judge_points(SMALL, points, alternatives[:, column])
        expected = np.where(judged.feasible, -judged.objectives[:, 0], np.inf)
        np.testing.assert_allclose(costs[:, column, 0], expected, rtol=1e-12)


def test_windows_are_narrowed_to_alternatives_below_the_threshold_and_no_further():
    points = all_points(SMALL.space)[::5]
    windows = np.repeat(SMALL.scenarios[0].windows[:1], len(points), axis=0)
    costs, alternatives = alternative_costs(SMALL, points, *windows.T, (RATE,))
    threshold = float(np.median(costs[np.isfinite(costs)]))
    bounds = bound_boxes(SMALL, point_boxes(points, *windows.T), (RATE,), Below(threshold))
    for i in np.flatnonzero((costs[:, :, 0] < threshold).any(axis=1)):
        kept = alternatives[i][costs[i, :, 0] < threshold]
        assert (bounds.first[i], bounds.last[i]) == (kept[0], kept[-1])


def test_root_boxes_hold_every_design_but_for_idle_parameters_once_for_each_plan():
    boxes, idle = root_boxes(SMALL), idle_parameters(SMALL)
    free = [i for i, p in enumerate(SMALL.space.parameters) if p.name not in idle]
    plans = len(alternative_windows(SMALL))
    for point in all_points(SMALL.space)[::11]:
        inside = (boxes.low <= point)[:, free].all(axis=1) & (point <= boxes.high)[:, free].all(axis=1)
        assert np.count_nonzero(inside) == plans


def test_formats_that_a_mix_cannot_use_are_left_out_beside_it_and_none_that_it_can():
    problem = problem_of(study(space={"native_formats": FORMATS}, quality={"no_worse_than": "deepseek_v3"}))
    boxes, formats = root_boxes(problem), [p.name for p in problem.space.parameters].index("native_formats")
    choices, mixes = problem.scenarios[0].choices, [m.name for m in problem.scenarios[0].scenario.mixes]
    kept = {
        name: {problem.space.parameters[formats].values[i] for i in boxes.low[choices.mix[boxes.first] == k, formats]}
        for k, name in enumerate(mixes)
    }
    assert kept["bf16"] == {("bf16",)}
    assert kept["deepseek_v3"] == {("bf16",), ("bf16", "fp8")}


def test_a_format_set_that_is_left_out_is_no_better_than_one_that_stays():
    problem = problem_of(study(space={"native_formats": [["bf16"], ["bf16", "int8"]]}, quality=None))
    boxes, formats = root_boxes(problem), [p.name for p in problem.space.parameters].index("native_formats")
    points = all_points(problem.space)[::3]
    points = points[points[:, formats] == 1]
    fewer = points.copy()
    fewer[:, formats] = 0
    for window in alternative_windows(problem):
        of_window = boxes.take((boxes.first == window[0]) & (boxes.last == window[1]))
        if set(of_window.low[:, formats]) == {0}:
            windows = np.repeat(window[None], len(points), axis=0).T
            more, less = (alternative_costs(problem, p, *windows, BOUNDED)[0] for p in (points, fewer))
            assert (less <= more + 1e-12 * np.where(np.isfinite(more), np.abs(more), 0.0)).all()
            return
    pytest.fail("no window leaves out int8")


def test_a_link_that_a_plan_does_not_send_over_is_taken_at_its_cheapest_beside_it():
    problem = problem_of(study(system={"n_chips": 2}, space={"scale_up_link": [100, 600]}, quality=None))
    boxes, link = root_boxes(problem), [p.name for p in problem.space.parameters].index("scale_up_link")
    only = problem.scenarios[0]
    uses = np.array(
        ["scale_up" in only.used_links(np.arange(a, b + 1)) for a, b in zip(boxes.first, boxes.last, strict=True)]
    )
    np.testing.assert_array_equal(boxes.high[:, link], np.where(uses, 1, 0))
    assert uses.any() and (only.choices.tensor_parallel[boxes.first[uses]] > 1).any()


def test_a_parameter_is_idle_only_where_no_plan_uses_it():
    assert set(idle_parameters(SMALL)) == {"second_tier", "scale_up_link", "scale_out_link"}
    assert set(idle_parameters(FULL)) == {"second_tier", "scale_out_link"}
    # 70B in bf16 needs more than the two chips of a node
    large = {"network": "llama-3.1-70b", "batching": {"max_batch": 1}}
    nodes = problem_of(study(large, system={"n_chips": 8, "n_chips_per_node": 2}, quality={"no_worse_than": "bf16"}))
    assert "scale_out_link" not in idle_parameters(nodes)
    choice = problem_of(study(space={"second_tier": ["cxl_512gb", "lpddr5x_256gb"]}))
    assert "second_tier" not in idle_parameters(choice)


def test_tightening_loses_no_design_within_the_area_budget():
    boxes = random_boxes(LIMITED, N_BOXES, 2)
    tight = tighten(LIMITED, boxes)
    kept = dict(zip(tight.parent, tight.high, strict=True))
    for seed in range(3):
        points = points_inside(boxes, seed)
        area = die_area_mm2(corners(LIMITED, point_boxes(points, boxes.first, boxes.last))[0])
        for i in np.flatnonzero(area <= 600.0):
            assert i in kept and (points[i] <= kept[i]).all()
    assert 0 < tight.n_boxes < boxes.n_boxes


def test_tightening_no_boxes_or_boxes_over_budget_leaves_none():
    boxes = random_boxes(SMALL, 10, 3)
    assert tighten(SMALL, boxes.take(np.zeros(0, dtype=int))).n_boxes == 0
    assert tighten(with_limits(SMALL, area_mm2=1.0), boxes).n_boxes == 0
    assert bound_boxes(SMALL, boxes.take(np.zeros(0, dtype=int)), (RATE,)).cost.shape == (0, 1)


def test_spans_are_zero_for_an_axis_of_one_value_and_positive_for_cores():
    boxes = root_boxes(SMALL)
    names = [p.name for p in SMALL.space.parameters]
    spans = budget_spans(SMALL, boxes, np.array([names.index("n_cores"), names.index("noc_per_core")]))
    assert (spans[:, 0] > 0).all() and (spans[:, 1] == 0).all()


def test_joined_boxes_keep_their_order():
    boxes = random_boxes(SMALL, 6, 4)
    both = join([boxes.take(np.arange(4, 6)), boxes.take(np.arange(4))])
    np.testing.assert_array_equal(both.parent, [4, 5, 0, 1, 2, 3])


class TestBoundable:
    @pytest.mark.parametrize("name", METRICS)
    def test_a_metric_is_boundable_in_its_better_direction_alone_and_only_if_flagged(self, name):
        metric = METRICS[name]
        better = Objective(name, metric.direction == "maximize")
        assert is_boundable(better) == metric.bounded
        assert not is_boundable(Objective(name, not better.maximize))

    def test_a_mixture_is_boundable_as_rate_or_regret(self):
        assert is_boundable(Objective(COMBINED, True)) and not is_boundable(Objective(COMBINED, False))
        assert is_boundable(Objective(REGRET, False)) and not is_boundable(Objective(REGRET, True))

    def test_what_cannot_be_certified_is_refused_by_name(self):
        with pytest.raises(StudyError, match=r"objectives\.1\.metric: usd_per_hour cannot be certified") as caught:
            require_boundable((RATE, Objective("usd_per_hour", False)))
        assert [each["pointer"] for each in caught.value.errors] == ["/objectives/1/metric"]
