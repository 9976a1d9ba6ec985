"""Boxes that cover a space, less what cannot be best."""

import numpy as np
import pytest

from explorer.bounds import alternative_costs
from explorer.boxes import alternative_windows, idle_parameters, join, root_boxes
from tests.explorer.random_boxes import BOUNDED, FULL, SMALL, random_boxes
from tests.explorer.small_studies import all_points, problem_of, study

FORMATS = [["bf16"], ["bf16", "int8"], ["bf16", "fp8"], ["bf16", "fp8", "int8"], ["bf16", "fp8", "fp4"]]


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


def test_joined_boxes_keep_their_order():
    boxes = random_boxes(SMALL, 6, 4)
    both = join([boxes.take(np.arange(4, 6)), boxes.take(np.arange(4))])
    np.testing.assert_array_equal(both.parent, [4, 5, 0, 1, 2, 3])
