"""Programs of GEMM lists."""

import numpy as np
import pytest

from models.hardware.design import reference_design, replace
from tests.models.throughput.works import BF16, INT8, gemms, judged, term_macs

ROW = {"m": 1024, "n": 1024, "k": 1024}


def test_equal_rows_are_one_operator_with_a_count():
    work = gemms([ROW, ROW, ROW | {"count": 3}])
    assert len(work.program.terms) == 1
    assert work.program.terms[0].count[0] == 5


def test_work_is_conserved_when_a_list_is_split():
    rows = [ROW, {"m": 8, "n": 256, "k": 512, "batch": 4, "count": 2}]
    parts = [term_macs(gemms([row]), 0) for row in rows]
    assert term_macs(gemms(rows), 0) == sum(parts) == 1024**3 + 8 * 256 * 512 * 8


def test_the_time_of_a_list_is_the_sum_of_its_rows():
    rows = [ROW, {"m": 64, "n": 4096, "k": 512}]
    whole = judged(gemms(rows), replace(reference_design(), tdp_w=1e6)).step_s
    parts = [judged(gemms([row]), replace(reference_design(), tdp_w=1e6)).step_s for row in rows]
    np.testing.assert_allclose(whole, sum(parts))


def test_a_batch_of_gemms_is_faster_than_as_many_calls_and_no_faster_than_one():
    small = {"m": 128, "n": 128, "k": 128}
    design = reference_design()
    one, batched, calls = (
        float(judged(gemms([small | more], mixes=(BF16,)), design).step_s[0, 0])
        for more in ({}, {"batch": 64}, {"count": 64})
    )
    assert one <= batched < calls / 4


def test_rows_that_state_a_format_keep_it_under_every_mix():
    stated, free = gemms([ROW | {"format": "bf16"}]), gemms([ROW])
    assert stated.n_alternatives == 1
    assert free.n_alternatives == 2


@pytest.mark.parametrize("native", [False, True], ids=["bf16 arrays", "int8 arrays"])
def test_weights_are_widened_where_the_array_lacks_their_class_alone(native):
    design = replace(reference_design(), int8_rate_ratio=2.0 * native, tdp_w=1e6)
    slow_lanes = replace(design, vector_lanes_per_core=design.vector_lanes_per_core / 1e3)
    row = {"m": 4, "n": 1024, "k": 1024}
    fast_s, slow_s = (float(judged(gemms([row], mixes=(INT8,)), each).step_s[0, 0]) for each in (design, slow_lanes))
    assert (slow_s == pytest.approx(fast_s)) is native


def test_too_many_different_gemms_are_refused():
    with pytest.raises(ValueError, match="at most 2000 different GEMMs, got 2001"):
        gemms([{"m": i + 1, "n": 8, "k": 8} for i in range(2001)])


def test_a_list_without_mixes_is_refused():
    with pytest.raises(ValueError, match="at least one precision mix"):
        gemms([ROW], mixes=())
