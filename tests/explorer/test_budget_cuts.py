"""Cuts of boxes to the budget: they lose nothing within it."""

import numpy as np

from explorer.bounds import bound_boxes
from explorer.boxes import point_boxes, root_boxes
from explorer.budget_cuts import budget_spans, tighten
from explorer.corners import corners
from models.hardware.area import die_area_mm2
from tests.explorer.random_boxes import LIMITED, N_BOXES, SMALL, points_inside, random_boxes
from tests.explorer.small_studies import RATE, with_limits


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
