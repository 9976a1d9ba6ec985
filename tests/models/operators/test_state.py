"""Time of recurrent states."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.checks import UnknownNameError
from models.hardware.design import peak_flop_per_s, reference_design, take
from models.operators.state import STATE_OPS, state_time_s
from models.tables import constants
from tests.models.random_designs import RESOURCES, random_designs, with_more

FEW = settings(max_examples=5, deadline=None)


def test_a_large_state_takes_the_time_of_its_traffic():
    # closed form: 8 GB at 3277 GB/s, the efficiency and the start are those of row-wise kernels
    c, design = constants("elementwise"), reference_design()
    time_s, _ = state_time_s(design, "recurrent", [1.0], [8e9])
    expected = c["norm_start_s"] + 8e9 / (4 * 819.2e9 * c["memory_efficiency_fraction"])
    assert time_s[0, 0] == pytest.approx(expected)


def test_chunks_run_on_the_arrays_and_tokens_on_the_lanes():
    design = reference_design()
    _, chunked = state_time_s(design, "chunked", [1e12], [0.0])
    _, recurrent = state_time_s(design, "recurrent", [1e12], [0.0])
    assert chunked[0, 0] == pytest.approx(1e12 / peak_flop_per_s(design)[0])
    assert recurrent[0, 0] == pytest.approx(1e12 / (2 * 128 * 64 * 1.6e9))


@pytest.mark.parametrize("op", STATE_OPS)
@FEW
@given(seed=st.integers(0, 1000))
def test_more_of_anything_is_never_slower_and_never_below_the_bounds(op, seed):
    designs = random_designs(seed, 8)
    flop, moved = np.array([0.0, 1e6, 1e10]), np.array([0.0, 1e8, 1e6])
    before, compute_s = state_time_s(designs, op, flop, moved)
    after, _ = state_time_s(with_more(designs, seed, RESOURCES), op, flop, moved)
    assert (after <= before * (1 + 1e-12)).all()
    assert (before >= compute_s).all()
    assert (before >= moved / designs.memory_bandwidth_bytes_per_s[:, None]).all()


def test_a_batch_of_designs_equals_one_at_a_time():
    designs = random_designs(3, 5)
    whole, _ = state_time_s(designs, "recurrent", [1e9, 1e6], [1e8, 1e3])
    for i in range(5):
        one, _ = state_time_s(take(designs, [i]), "recurrent", [1e9, 1e6], [1e8, 1e3])
        np.testing.assert_array_equal(one[0], whole[i])


def test_no_work_takes_no_time():
    assert state_time_s(reference_design(), "chunked", [0.0], [0.0])[0][0, 0] == 0.0


def test_an_unknown_operator_is_refused():
    with pytest.raises(UnknownNameError, match="unknown state operator 'scan'"):
        state_time_s(reference_design(), "scan", [1.0], [1.0])


def test_negative_work_is_refused():
    with pytest.raises(ValueError, match="flop must be zero or positive"):
        state_time_s(reference_design(), "chunked", [-1.0], [1.0])
