"""Bounds of boxes: never above a design inside, exact for a point, refused where there is none."""

import numpy as np
import pytest

from explorer.bounds import alternative_costs, bound_boxes, is_boundable, require_boundable
from explorer.box_bounds import Below
from explorer.boxes import point_boxes
from explorer.document import StudyError
from explorer.objectives import COMBINED, REGRET, Objective
from explorer.problem import judge_points
from models.metrics import METRICS
from tests.explorer.random_boxes import BOUNDED, FULL, LIMITED, N_BOXES, SMALL, points_inside, random_boxes
from tests.explorer.small_studies import COST, ENERGY, RATE, all_points


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
