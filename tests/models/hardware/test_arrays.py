"""Golden and closed-form checks of what an array's shape asks for."""

import numpy as np
import pytest

from models.hardware.arrays import (
    accumulators_per_array,
    operand_bandwidth_bytes_per_s,
    operands_per_cycle_per_array,
)
from models.hardware.design import peak_flop_per_s, reference_design, replace


def arrays(m, n, k, n_arrays):
    return replace(reference_design(), array_m=m, array_n=n, array_k=k, n_cores=n_arrays, clock_hz=1.65e9)


def test_two_large_arrays_need_a_sixteenth_of_the_operand_bandwidth_of_512_small_ones():
    # Equal peak; 3.4 and 54 TB/s of bf16 operands at the 1.65 GHz of Gaudi 2 (chips.csv).
    large, small = arrays(256, 256, 1, 2), arrays(16, 16, 1, 512)
    assert peak_flop_per_s(large) == peak_flop_per_s(small)
    bandwidth = [operand_bandwidth_bytes_per_s(design)[0] for design in (large, small)]
    assert bandwidth[1] / bandwidth[0] == 16
    assert np.array(bandwidth) / 1e12 == pytest.approx([3.4, 54], rel=0.01)


@pytest.mark.parametrize(
    ("shape", "operands", "accumulators"),
    [((16, 16, 16), 512, 256), ((64, 64, 1), 128, 4096)],
    ids=["dot product 16x16x16", "outer product 64x64x1"],
)
def test_inner_product_takes_more_operands_and_keeps_fewer_sums_at_equal_rate(shape, operands, accumulators):
    design = arrays(*shape, 1)
    assert np.prod(shape) == 4096
    assert operands_per_cycle_per_array(design)[0] == operands
    assert accumulators_per_array(design)[0] == accumulators
