"""Golden and closed-form checks of what an array's shape asks for."""

import numpy as np
import pytest

from models.hardware.arrays import (
    accumulators_per_array,
    operand_bandwidth_bytes_per_s,
    operands_per_cycle_per_array,
    outputs_to_fill,
    tile_quantisation_fraction,
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


def test_operand_bandwidth_at_equal_peak_is_that_of_the_arithmetic():
    # 131,072 multiply-accumulates at 1.65 GHz (432 TFLOP/s bf16): b (R + C) / (R C) bytes for each of them
    cuts = {256: 2, 128: 8, 64: 32, 32: 128, 16: 512}
    found = [operand_bandwidth_bytes_per_s(arrays(side, side, 1, n))[0] / 1e12 for side, n in cuts.items()]
    assert found == pytest.approx([3.4, 6.8, 13.5, 27, 54], rel=0.01)
    assert peak_flop_per_s(arrays(256, 256, 1, 2))[0] == pytest.approx(432e12, rel=2e-3)


@pytest.mark.parametrize(
    ("units", "rows", "columns", "outputs", "side", "share_at_1024"),
    [
        (2, 256, 256, 131_072, 362, 1.0),
        (8, 256, 256, 524_288, 724, 1.0),
        (108, 128, 128, 1_769_472, 1330, 0.59),
        (132, 128, 128, 2_162_688, 1471, 0.48),
        (132, 128, 256, 4_325_376, 2080, 0.24),
    ],
    ids=["2 x 256x256", "8 x 256x256", "108 SMs 128x128", "132 SMs 128x128", "132 SMs 128x256"],
)
def test_outputs_that_fill_the_machine_and_what_tiles_leave_of_its_peak(
    units, rows, columns, outputs, side, share_at_1024
):
    # arithmetic of whole tiles: outputs of one tile on every unit, and 1024 x 1024 outputs dealt in tiles
    assert outputs_to_fill(arrays(rows, columns, 1, units))[0] == outputs
    assert np.sqrt(outputs) == pytest.approx(side, abs=1)
    assert tile_quantisation_fraction(units, rows, columns, 1024, 1024) == pytest.approx(share_at_1024, abs=0.01)
