"""Exchanges around designs: what they keep, and that a polish leaves none that improves."""

import dataclasses

import numpy as np
import pytest

from explorer.bounds import alternative_costs
from explorer.budget_cuts import tighten, tighten_halves
from explorer.exact import halves
from explorer.local_search import Incumbent, best_of, polished, recut_exchanges, single_exchanges
from tests.explorer.random_boxes import FULL, LIMITED, N_BOXES, points_inside, random_boxes
from tests.explorer.small_studies import ENERGY, RATE

NAMES = [p.name for p in FULL.space.parameters]


def values_of(points, name):
    return np.asarray(FULL.space.parameters[NAMES.index(name)].values)[points[:, NAMES.index(name)]]


def per_chip(points, name):
    return values_of(points, name) * values_of(points, "n_cores")


def macs(points):
    return values_of(points, "array_shape").prod(axis=1) * per_chip(points, "arrays_per_core")


def test_a_chip_cut_into_other_cores_keeps_what_it_has_in_all():
    point = (FULL.space.sizes - 1) // 2
    points = recut_exchanges(FULL.space, point)
    np.testing.assert_array_equal(points[0], point)
    assert (points >= 0).all() and (points < FULL.space.sizes).all()
    assert (macs(points) >= macs(points)[0] / 2).all() and (macs(points) <= macs(points)[0] * 2).all()
    assert len(np.unique(values_of(points, "array_shape"), axis=0)) > 1
    shared = ["vector_lanes_per_core", "scratchpad_per_core", "noc_per_core"]
    others = [i for i, name in enumerate(NAMES) if name not in ("array_shape", "arrays_per_core", "n_cores", *shared)]
    assert (points[:, others] == point[others]).all()
    for name in shared:
        values = np.asarray(FULL.space.parameters[NAMES.index(name)].values, dtype=float)
        wanted = per_chip(points, name)[0] / values_of(points, "n_cores")
        inside = (wanted >= values[0]) & (wanted <= values[-1])
        step = (values[1:] / values[:-1]).max()
        ratio = (values_of(points, name) / wanted)[inside]
        assert (ratio <= np.sqrt(step) + 1e-9).all() and (ratio >= 1 / np.sqrt(step) - 1e-9).all()


@pytest.mark.parametrize("objective", [RATE, ENERGY], ids=["rate", "energy"])
@pytest.mark.parametrize("problem", [FULL, LIMITED], ids=["free", "limited"])
def test_no_exchange_of_one_parameter_improves_a_polished_design(problem, objective):
    boxes = random_boxes(problem, 2000, 7)
    start = best_of(problem, objective, points_inside(boxes, 7), boxes.first, boxes.last)
    assert start.point is not None
    found = polished(problem, objective, [start])
    assert found.point is not None and found.cost < start.cost
    near = single_exchanges(problem.space, found.point)
    formats = NAMES.index("native_formats")
    near = near[near[:, formats] == found.point[formats]]
    own = np.full(len(near), found.alternative)
    costs, _ = alternative_costs(problem, near, own, own, (objective,))
    assert costs[0, 0, 0] == found.cost == costs.min()


def test_a_polish_of_nothing_finds_nothing():
    assert polished(FULL, RATE, []).point is None
    assert polished(FULL, RATE, [Incumbent()]).point is None


def test_tightening_only_the_upper_halves_of_tight_boxes_tightens_both():
    parents = tighten(LIMITED, random_boxes(LIMITED, N_BOXES, 5))
    widest = np.where([p.ordered for p in LIMITED.space.parameters], parents.high - parents.low, -1).argmax(axis=1)
    parents, axis = split_candidates(parents, widest)
    children = halves(parents, axis)
    children = dataclasses.replace(children, parent=np.arange(children.n_boxes))
    every, upper = tighten(LIMITED, children), tighten_halves(LIMITED, children)
    np.testing.assert_array_equal(upper.parent, every.parent)
    np.testing.assert_array_equal(upper.high, every.high)
    assert (upper.high < children.high).any()


def split_candidates(boxes, axis):
    """The boxes that are wider than one value along an axis, and that axis."""
    rows = np.arange(boxes.n_boxes)
    wide = boxes.high[rows, axis] > boxes.low[rows, axis]
    return boxes.take(wide), axis[wide]


def test_a_search_that_meets_the_way_of_an_earlier_one_is_left():
    boxes = random_boxes(LIMITED, 2000, 7)
    rows = np.array_split(np.arange(boxes.n_boxes), 4)
    points = points_inside(boxes, 7)
    starts = [best_of(LIMITED, RATE, points[part], boxes.first[part], boxes.last[part]) for part in rows]
    known = set()
    first = polished(LIMITED, RATE, starts, known)
    assert first.cost == polished(LIMITED, RATE, starts).cost
    assert (*first.point.tolist(), first.alternative) in known
    before = set(known)
    assert polished(LIMITED, RATE, [*starts, first], known).cost >= first.cost
    assert polished(LIMITED, RATE, [first], known).point is None
    assert before <= known
