"""Where the cycles of a GEMM go: the same tiling as the fast loop takes, taken apart."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from models.hardware.arrays import accumulators_per_array
from models.hardware.design import Stationarity, macs_per_cycle_per_core, reference_design, replace, take
from models.operators.gemm import onchip_cycles
from models.operators.gemm_constants import gemm_constants
from models.operators.tiling_parts import PARTS, tiling_parts
from tests.models.random_designs import random_designs

DESIGNS = random_designs(5, 40)
SIZES = st.integers(1, 20_000)


@settings(max_examples=30, deadline=None)
@example(m=1711, n=10479, k=157, rate=2.0)  # exactly full waves of 123 cores
@given(m=SIZES, n=SIZES, k=SIZES, rate=st.sampled_from([1.0, 2.0, 4.0]))
def test_parts_add_up_to_the_cycles_of_the_fastest_tiling(m, n, k, rate):
    parts = tiling_parts(DESIGNS, m, n, k, 2.0, rate)
    expected = onchip_cycles(DESIGNS, [m], [n], [k], [2.0], [rate])
    np.testing.assert_allclose(parts.total_cycles, expected, rtol=1e-9)
    assert set(parts.cycles) == set(PARTS)
    assert all((values >= -1e-6 * expected).all() for values in parts.cycles.values())


def test_work_is_the_products_over_the_rate_of_all_arrays():
    parts = tiling_parts(DESIGNS, 300, 500, 700, 2.0, 2.0)
    expected = 300 * 500 * 700 / (2.0 * macs_per_cycle_per_core(DESIGNS) * DESIGNS.n_cores)
    np.testing.assert_allclose(parts.cycles["work"][:, 0], expected)


def test_many_designs_are_taken_apart_as_each_alone():
    together = tiling_parts(DESIGNS, [64, 4096], [8192, 512], [100, 4096], 2.0, 1.0, instances=[1, 8])
    for i in (0, 17, 39):
        alone = tiling_parts(take(DESIGNS, [i]), [64, 4096], [8192, 512], [100, 4096], 2.0, 1.0, instances=[1, 8])
        np.testing.assert_allclose(together.total_cycles[i], alone.total_cycles[0])
        np.testing.assert_allclose(together.operand_bytes[i], alone.operand_bytes[0])


def test_equal_products_run_side_by_side_where_that_is_faster():
    design = replace(reference_design(), n_cores=64)
    one, many = (tiling_parts(design, 64, 64, 64, 2.0, 1.0, instances=count) for count in (1, 64))
    assert many.total_cycles[0, 0] < 0.1 * 64 * one.total_cycles[0, 0]
    assert many.operand_bytes[0, 0] == pytest.approx(64 * one.operand_bytes[0, 0])


def one_array(m, n, k, n_cores, **changes):
    """Designs of one array a core at equal peak, whose ports and stores bind nothing."""
    plenty = {"noc_bytes_per_cycle_per_core": 1e5, "scratchpad_bytes_per_core": 2.0**24}
    return replace(reference_design(), array_m=m, array_n=n, array_k=k, n_cores=n_cores, **(plenty | changes))


@pytest.mark.parametrize("stationarity", [Stationarity.WEIGHT, Stationarity.OUTPUT])
def test_a_large_outer_product_array_loses_more_to_fill_and_edges_than_small_dot_products(stationarity):
    large = one_array(256, 256, 1, 2, stationarity=stationarity)
    small = one_array(16, 16, 16, 32)
    assert np.prod([256, 256, 1, 2]) == np.prod([16, 16, 16, 32])
    lost = [
        float((parts.cycles["fill_drain"] + parts.cycles["edges"])[0, 0] / parts.cycles["work"][0, 0])
        for parts in (tiling_parts(design, 100, 300, 512, 2.0, 1.0) for design in (large, small))
    ]
    assert lost[0] > 2 * lost[1]


def test_a_large_array_waits_less_for_operands_than_the_same_peak_cut_into_small_ones():
    # the port of a core carries the same bytes a cycle, and a small tile asks for more of them per product
    port = {"noc_bytes_per_cycle_per_core": 64, "scratchpad_bytes_per_core": 2.0**18}
    large, small = one_array(128, 128, 1, 4, **port), one_array(16, 16, 1, 256, **port)
    wide = replace(small, noc_bytes_per_cycle_per_core=1)
    waits = [
        float(parts.cycles["operand_wait"][0, 0] / parts.total_cycles[0, 0])
        for parts in (tiling_parts(d, 2048, 2048, 2048, 2.0, 1.0) for d in (large, small, wide))
    ]
    assert waits[2] > waits[0] and waits[2] > waits[1]
    assert accumulators_per_array(large)[0] == 64 * accumulators_per_array(small)[0]


def test_groups_inside_an_array_cost_their_coordination():
    plain, grouped = (replace(reference_design(), array_groups=g) for g in (1, 4))
    constants = gemm_constants()
    costs = [tiling_parts(d, 4096, 4096, 4096, 2.0, 1.0, constants=constants) for d in (plain, grouped)]
    assert costs[0].cycles["group_coordination"][0, 0] == 0
    assert costs[1].cycles["group_coordination"][0, 0] > 0


def test_a_deep_product_with_few_outputs_is_split_along_k_and_pays_for_its_partial_sums():
    parts = tiling_parts(replace(reference_design(), n_cores=64), 64, 128, 65_536, 2.0, 1.0)
    assert parts.split[0, 0] > 1
    assert parts.cycles["split_k"][0, 0] > 0
    assert parts.partial_bytes[0, 0] == (parts.split[0, 0] + 1) * 4 * 64 * 128
