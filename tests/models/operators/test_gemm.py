"""Time of a GEMM: on-chip cycles, memory traffic and both together."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.hardware.design import (
    Stationarity,
    concatenate,
    macs_per_cycle_per_core,
    reference_design,
    replace,
    take,
)
from models.operators.gemm import (
    droop_slowdown,
    gemm_buffer_bytes,
    gemm_dram_bytes,
    gemm_time_s,
    issued_power_w,
    kernel_start_cycles,
    onchip_cycles,
)

MEBI = 1024.0**2


def random_designs(seed, n_designs=40):
    rng = np.random.default_rng(seed)
    return replace(
        take(reference_design(), np.zeros(n_designs, dtype=int)),
        array_m=2.0 ** rng.integers(2, 9, n_designs),
        array_n=2.0 ** rng.integers(2, 9, n_designs),
        array_k=2.0 ** rng.integers(0, 5, n_designs),
        array_groups=rng.choice([1, 4, 16], n_designs),
        arrays_per_core=2.0 ** rng.integers(0, 4, n_designs),
        n_cores=rng.integers(1, 257, n_designs),
        scratchpad_bytes_per_core=2.0 ** rng.integers(16, 25, n_designs),
        noc_bytes_per_cycle_per_core=2.0 ** rng.integers(5, 9, n_designs),
        stationarity=rng.integers(0, 3, n_designs),
        bulk_async_copy=rng.integers(0, 2, n_designs),
    )


def random_shapes(seed, n_shapes=30):
    rng = np.random.default_rng(seed + 1)
    sizes = [np.floor(2.0 ** rng.uniform(low, 14, n_shapes)) for low in (0, 5, 5)]
    return (*sizes, rng.choice([0.5, 1.0, 2.0], n_shapes), rng.choice([1.0, 2.0, 4.0], n_shapes))


SEEDS = st.integers(0, 10_000)


@settings(max_examples=12, deadline=None)
@given(seed=SEEDS)
def test_cycles_are_never_below_the_multiplications(seed):
    designs, (m, n, k, element, ratio) = random_designs(seed), random_shapes(seed)
    rate = macs_per_cycle_per_core(designs) * designs.n_cores
    assert (onchip_cycles(designs, m, n, k, element, ratio) >= m * n * k / ratio / rate[:, None] * (1 - 1e-12)).all()


@pytest.mark.parametrize(
    "parameter", ["n_cores", "arrays_per_core", "scratchpad_bytes_per_core", "noc_bytes_per_cycle_per_core"]
)
@settings(max_examples=8, deadline=None)
@given(seed=SEEDS, factor=st.sampled_from([2.0, 3.0, 8.0]))
def test_more_of_a_resource_never_takes_more_cycles(parameter, seed, factor):
    designs, shapes = random_designs(seed), random_shapes(seed)
    more = replace(designs, **{parameter: getattr(designs, parameter) * factor})
    assert (onchip_cycles(more, *shapes) <= onchip_cycles(designs, *shapes) * (1 + 1e-12)).all()


def test_cycles_depend_on_neither_clock_memory_buffer_nor_power_cap():
    designs, shapes = random_designs(3), random_shapes(3)
    other = replace(designs, clock_hz=1e8, memory_bandwidth_bytes_per_s=1e9, l2_bytes=0, tdp_w=1)
    assert np.array_equal(onchip_cycles(designs, *shapes), onchip_cycles(other, *shapes))


def test_a_batch_equals_one_design_and_one_shape_at_a_time():
    designs, shapes = random_designs(5, 6), random_shapes(5, 7)
    together = onchip_cycles(designs, *shapes)
    for row in range(6):
        for column in range(7):
            one = onchip_cycles(take(designs, [row]), *(size[column : column + 1] for size in shapes))
            assert one[0, 0] == together[row, column]


def test_a_rate_per_design_equals_the_same_rate_given_by_shape():
    designs, (m, n, k, element, ratio) = random_designs(7, 9), random_shapes(7)
    by_design = np.broadcast_to(ratio, (9, len(ratio)))
    assert np.array_equal(
        onchip_cycles(designs, m, n, k, element, ratio), onchip_cycles(designs, m, n, k, element, by_design)
    )


def test_one_row_uses_one_row_of_a_weight_stationary_array():
    design = replace(
        reference_design(), array_m=256, array_n=256, array_k=1, n_cores=1, stationarity=Stationarity.WEIGHT,
        scratchpad_bytes_per_core=16 * MEBI, noc_bytes_per_cycle_per_core=1e9,
    )  # fmt: skip
    cycles = onchip_cycles(design, [1.0], [16384.0], [16384.0], [2.0], [1.0])[0, 0]
    assert 0.9 / 256 < 16384.0**2 / 256**2 / cycles <= 1.0 / 256


def test_a_large_square_reaches_most_of_a_balanced_array():
    cycles = onchip_cycles(reference_design(), [8192.0], [8192.0], [8192.0], [2.0], [1.0])[0, 0]
    assert 0.5 < 8192.0**3 / (64 * 4096) / cycles < 1.0


def test_a_starved_port_limits_a_large_array():
    wide = replace(reference_design(), array_m=256, array_n=256, array_k=1, scratchpad_bytes_per_core=64 * 1024)
    starved = onchip_cycles(replace(wide, noc_bytes_per_cycle_per_core=32), [4096.0], [4096.0], [4096.0], [2.0], [1.0])
    fed = onchip_cycles(replace(wide, noc_bytes_per_cycle_per_core=4096), [4096.0], [4096.0], [4096.0], [2.0], [1.0])
    assert starved[0, 0] > 3 * fed[0, 0]


@settings(max_examples=15, deadline=None)
@given(seed=SEEDS)
def test_traffic_never_rises_with_the_buffer_and_covers_what_cannot_stay(seed):
    m, n, k, element, _ = random_shapes(seed)
    buffers = np.array([0.0, 1.0, 8.0, 50.0, 400.0]) * MEBI
    moved = gemm_dram_bytes(buffers, m, n, k, element, element, 2.0, weights_resident=False)
    assert (np.diff(moved, axis=0) <= 1e-9 * moved[:-1]).all()
    assert (moved >= n * k * element).all()
    assert (moved[0] >= (element * (n * k + m * k) + 2.0 * m * n) * (1 - 1e-9)).all()


def test_weights_that_fit_the_buffer_are_spared_only_where_they_stay():
    arguments = ([100 * MEBI], [8.0], [4096.0], [2048.0], [2.0], [2.0], [2.0])
    assert gemm_dram_bytes(*arguments)[0, 0] < 1e4
    assert gemm_dram_bytes(*arguments, weights_resident=False)[0, 0] >= 2 * 4096 * 2048
    assert gemm_dram_bytes(*arguments, copies=10.0)[0, 0] > 0.99 * 2 * 4096 * 2048


@settings(max_examples=15, deadline=None)
@given(seed=SEEDS)
def test_time_falls_with_clock_and_bandwidth_and_never_beats_the_slower_resource(seed):
    rng = np.random.default_rng(seed)
    cycles, moved = 10.0 ** rng.uniform(2, 9, (4, 5)), 10.0 ** rng.uniform(3, 10, (4, 5))
    clock, bandwidth = rng.uniform(0.5e9, 3e9, 4), 10.0 ** rng.uniform(10, 13, 4)
    time_s = gemm_time_s(cycles, moved, clock, bandwidth, 1e-6)
    assert (time_s >= np.maximum(cycles / clock[:, None], moved / bandwidth[:, None])).all()
    assert (gemm_time_s(cycles, moved, clock * 1.3, bandwidth, 1e-6) <= time_s).all()
    assert (gemm_time_s(cycles, moved, clock, bandwidth * 1.3, 1e-6) <= time_s).all()


def test_more_issued_power_never_makes_work_finish_later():
    rate = np.geomspace(0.01, 100, 400)
    assert droop_slowdown(np.array(0.1)) == pytest.approx(1.0, abs=1e-6)
    assert droop_slowdown(np.array(8.0)) == pytest.approx(2.0, rel=1e-5)
    assert (np.diff(droop_slowdown(rate) / rate) < 0).all()


def test_issued_power_of_a_large_gemm_is_near_the_measured_board_power():
    # aiconfigurator, H200 with vLLM 0.22: 691 W at 684 TFLOP/s in bf16; the fit knows no power, so 30 %.
    design = replace(
        reference_design(), node_nm=4, clock_hz=1.83e9, array_m=8, array_n=4, array_k=16, arrays_per_core=4
    )
    assert issued_power_w(design, np.array([[684e12]]))[0, 0] == pytest.approx(691, rel=0.3)


def test_a_narrow_format_draws_less_power_for_the_same_work_but_more_at_its_full_rate():
    design, rate = reference_design(), np.array([[1e14]])
    assert issued_power_w(design, rate, 2.0)[0, 0] < issued_power_w(design, rate)[0, 0]
    assert issued_power_w(design, 2 * rate, 2.0)[0, 0] > issued_power_w(design, rate)[0, 0]


def test_kernels_that_never_cut_k_take_longer_on_few_columns():
    few = ([16.0], [512.0], [65536.0], [2.0], [1.0])
    assert (
        onchip_cycles(reference_design(), *few, splits=(1,))[0, 0] > 3 * onchip_cycles(reference_design(), *few)[0, 0]
    )


def test_a_faster_format_is_never_slower():
    ratios = np.linspace(1, 8, 50)
    cycles = onchip_cycles(reference_design(), [512.0], [8192.0], [8192.0], np.full(50, 1.0), ratios)[0]
    assert (np.diff(cycles) <= 1e-9 * cycles[1:]).all()


def test_cores_without_bulk_copy_start_later():
    both = concatenate([reference_design(), replace(reference_design(), bulk_async_copy=0)])
    start = kernel_start_cycles(both)
    assert start[1] > start[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"m": [0.0]}, "m must be at least 1"),
        ({"operand_bytes": [0.0]}, "operand_bytes must be positive"),
        ({"rate_ratio": [0.0]}, "rate_ratio must be positive"),
    ],
    ids=["no rows", "no bytes", "no rate"],
)
def test_impossible_sizes_are_refused(change, message):
    arguments = {"m": [8.0], "n": [8.0], "k": [8.0], "operand_bytes": [2.0], "rate_ratio": [1.0]} | change
    with pytest.raises(ValueError, match=message):
        onchip_cycles(reference_design(), **arguments)


def test_a_bandwidth_of_zero_is_refused():
    with pytest.raises(ValueError, match="memory_bandwidth_bytes_per_s must be positive"):
        gemm_time_s(np.ones((1, 1)), np.ones((1, 1)), [1e9], [0.0], 0.0)


def test_tiles_fetch_their_operands_from_the_shared_buffer_again_and_again():
    # A result of 1707 x 1707 is ten tiles either way: both operands cross ten times, the result once.
    side = 1707.0
    crossing = gemm_buffer_bytes(side, side, 64.0, 2.0, 1.0, 2.0)
    assert crossing == pytest.approx(10 * side * 64 * (2 + 1) + 2 * side**2, rel=1e-6)
    assert gemm_buffer_bytes(16.0, 16.0, 64.0, 2.0, 1.0, 2.0) == 16 * 64 * 3 + 2 * 16**2
