"""Whether a design is good at the sizes of its work."""

import dataclasses

import numpy as np
import pytest

from models.hardware.arrays import operand_bandwidth_bytes_per_s
from models.hardware.catalog import chip_designs
from models.hardware.design import replace, take
from models.hardware.rates import class_code
from models.metrics.size_hit_rate import (
    GOOD_FRACTION,
    NEAR_BEST_FRACTION,
    RESOURCES,
    SIDES,
    Products,
    best_on_grid,
    product_utilization,
    products_of,
    row_curve,
    size_fit,
    square_curve,
    typical_product,
)
from models.operators.factor_tables import FactorTables
from models.operators.intervals import operator_spread
from tests.models.metrics.test_phases import DESIGNS, WORKS, at_operating_points

TABLES = FactorTables()
BF16 = class_code("bf16")
CHIPS = chip_designs(["a100_sxm", "gaudi_2"])


def products(utilization, weight=None, sizes=None):
    """Products of one design at given shares of the peak."""
    n = len(utilization)
    side = np.atleast_2d(np.full(n, 1024.0) if sizes is None else np.array(sizes, dtype=float))
    used = np.atleast_2d(np.array(utilization, dtype=float))
    shares = np.atleast_2d(np.ones(n) if weight is None else np.array(weight, dtype=float))
    names = tuple(f"p{i}" for i in range(n))
    return Products(names, side, side, side, np.full((1, n), BF16), shares, dict.fromkeys(RESOURCES, used))


@pytest.mark.parametrize("name", WORKS)
class TestEveryWork:
    def test_shares_lie_between_0_and_1_and_the_roofline_is_never_beaten(self, name):
        _, phases, _ = at_operating_points(WORKS[name])
        found = products_of(phases, DESIGNS)
        fit = size_fit(found, DESIGNS, TABLES)
        assert all(((used >= 0) & (used <= 1 + 1e-9)).all() for used in found.utilization.values())
        assert (found.utilization["compute"] <= found.utilization["binding"] + 1e-12).all()
        assert all(((v >= 0) & (v <= 1)).all() for v in fit.hit_rate.values())
        assert all((v > 0).all() for v in fit.typical_to_best.values())


def test_weights_of_the_hits_count_and_not_their_number():
    design = take(CHIPS, [1])
    best = best_on_grid(design, TABLES)["compute"][0, BF16]
    fit = size_fit(products([0.9 * best, 0.5 * best, 0.5 * best], weight=[8, 1, 1]), design, TABLES)
    assert fit.hit_rate["compute"][0] == pytest.approx(0.8)


def test_the_threshold_is_four_fifths_of_the_best():
    design = take(CHIPS, [1])
    best = best_on_grid(design, TABLES)["compute"][0, BF16]
    for share, hit in ((NEAR_BEST_FRACTION + 1e-6, 1.0), (NEAR_BEST_FRACTION - 1e-6, 0.0)):
        assert size_fit(products([share * best]), design, TABLES).hit_rate["compute"][0] == hit


def test_a_uniformly_poor_design_hits_nothing():
    # a port so narrow that no size reaches 60 % of the peak
    poor = replace(take(CHIPS, [0]), noc_bytes_per_cycle_per_core=8)
    best = best_on_grid(poor, TABLES)["compute"][0, BF16]
    assert 0 < best < GOOD_FRACTION
    assert size_fit(products([best]), poor, TABLES).hit_rate["compute"][0] == 0.0


def test_the_typical_product_is_the_weighted_median_by_size():
    assert typical_product(products([0.1, 0.2, 0.3], weight=[1, 1, 3], sizes=[4, 2, 1]))[0] == 2
    assert typical_product(products([0.1, 0.2, 0.3], weight=[1, 1, 1], sizes=[4, 2, 1]))[0] == 1


def test_the_best_bounds_the_square_curve():
    best, curve = best_on_grid(CHIPS, TABLES), square_curve(CHIPS, BF16, TABLES)
    for name in RESOURCES:
        assert curve[name].shape == (2, len(SIDES))
        assert (curve[name].max(axis=1) <= best[name][:, BF16] + 1e-12).all()


def test_designs_together_fit_their_sizes_as_each_alone():
    together = best_on_grid(DESIGNS, FactorTables())
    for i in (0, 7):
        alone = best_on_grid(take(DESIGNS, [i]), FactorTables())
        for name in RESOURCES:
            np.testing.assert_allclose(together[name][i], alone[name][0], rtol=1e-12)


def test_more_rows_use_the_arrays_better_on_the_whole():
    _, phases, _ = at_operating_points(WORKS["chunked"])
    work = next(each for each in phases[0].operators if each.name == "ffn_up")
    used = row_curve(work, 2, DESIGNS, TABLES)["compute"][0]
    assert used[-1] > used[0]


def test_only_plain_products_have_a_curve_over_their_rows():
    _, phases, _ = at_operating_points(WORKS["experts over nodes"])
    work = next(each for each in phases[0].operators if each.kind == "experts")
    with pytest.raises(ValueError, match="only plain products have a curve over their rows, got experts"):
        row_curve(work, 0, DESIGNS, TABLES)


def test_padding_is_no_work():
    _, phases, _ = at_operating_points(WORKS["convolutions"])
    found = products_of(phases, DESIGNS)
    first = next(o for o in phases[0].operators if o.name == "convolution_0")
    less = dataclasses.replace(first, activity=dataclasses.replace(first.activity, macs={}))
    operators = (less, *phases[0].operators[1:])
    without = products_of([dataclasses.replace(phases[0], operators=operators)], DESIGNS)
    assert (without.utilization["compute"][:, 0] == 0).all() and (found.utilization["compute"][:, 0] > 0).all()


BEST_SHAPES = [
    ("a100_sxm", "bf16", (1024, 10240, 5120), 0.869, "gemm"),
    ("gaudi_2", "fp8", (6144, 11264, 5120), 0.956, "gemm_narrow"),
]
"""Best shape of a sweep on each chip: stas00/ml-engineering, maximum achievable matmul table."""


@pytest.mark.parametrize(("chip", "number_format", "sizes", "measured", "spread"), BEST_SHAPES)
def test_chips_land_on_their_measured_share_of_the_peak_within_the_stated_interval(
    chip, number_format, sizes, measured, spread
):
    # none of the constants saw these rows; the interval is that of a large product on a chip that no fit has seen
    used = product_utilization(chip_designs([chip]), *sizes, number_format, TABLES)["compute"][0, 0]
    assert abs(np.log(used / measured)) <= operator_spread(spread).half_width


def test_few_large_arrays_use_their_peak_better_than_many_small_cores_at_every_square_from_512_on():
    # published: Gaudi 2 reaches on average 4.5 points more of its peak than A100 (arXiv 2501.00210, from a summary)
    squares = 2.0 ** np.arange(9, 15)
    used = product_utilization(CHIPS, squares, squares, squares, "bf16", TABLES)["compute"]
    assert (used[1] > used[0]).all()
    assert used[1].mean() - used[0].mean() > 0.045


def test_a_machine_of_two_large_arrays_is_good_at_smaller_squares_than_one_of_a_hundred_cores():
    curves = square_curve(CHIPS, BF16, TABLES)["compute"]
    first_good = [SIDES[np.flatnonzero(curve >= NEAR_BEST_FRACTION * curve.max())[0]] for curve in curves]
    assert first_good[1] <= first_good[0]


def test_the_same_peak_cut_into_512_small_arrays_asks_for_16_times_the_operands_and_fills_no_later():
    # notes on workloads: true of array size by arithmetic; not against the same total cut into independent pieces
    base = replace(take(CHIPS, [1]), arrays_per_core=1, array_k=1)
    cuts = [replace(base, array_m=s, array_n=s, n_cores=2, arrays_per_core=65_536 / s**2) for s in (256, 16)]
    bandwidth = [operand_bandwidth_bytes_per_s(each)[0] for each in cuts]
    assert bandwidth[1] / bandwidth[0] == 16
    used = [product_utilization(each, 100, 1000, 1000, "bf16", TABLES)["compute"][0, 0] for each in cuts]
    assert used[1] >= used[0]
