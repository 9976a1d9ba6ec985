"""Closed-form cycles of systolic arrays."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.hardware.catalog import chip_designs
from models.hardware.design import Stationarity
from models.operators.gemm import onchip_cycles
from models.operators.systolic import systolic_cycles

SIZES = st.integers(1, 600)


# SCALE-Sim 3.0.0 (PyPI scalesim), demand-trace length with unlimited bandwidth; the form is exact, so no tolerance.
@pytest.mark.parametrize(
    ("kind", "rows", "columns", "m", "n", "k", "cycles"),
    [
        (Stationarity.INPUT, 8, 8, 33, 65, 129, 7395),
        (Stationarity.INPUT, 16, 16, 100, 200, 300, 32718),
        (Stationarity.INPUT, 16, 64, 1, 512, 512, 19392),
        (Stationarity.WEIGHT, 128, 128, 512, 512, 512, 14304),
        (Stationarity.OUTPUT, 128, 128, 512, 512, 512, 12256),
        (Stationarity.WEIGHT, 32, 32, 784, 128, 1152, 126432),
        (Stationarity.OUTPUT, 32, 32, 784, 128, 1152, 121400),
    ],
)
def test_cycles_equal_those_of_a_public_simulator(kind, rows, columns, m, n, k, cycles):
    assert systolic_cycles(rows, columns, m, n, k, kind) == cycles


def test_full_overlap_pays_fill_and_drain_once():
    # ZigZag counts 8192 + 254 for 512^3 on 128x128 where fill and drain are paid once a layer.
    assert systolic_cycles(128, 128, 512, 512, 512, Stationarity.OUTPUT, 1.0) == 8192 + 254


def test_one_row_on_a_weight_stationary_array_waits_for_each_load():
    cycles = systolic_cycles(128, 128, 1, 1024, 1024, Stationarity.WEIGHT, 1.0)
    assert 1024 * 1024 / (128 * 128) / cycles < 1.02 / 128


@settings(max_examples=40, deadline=None)
@given(rows=SIZES, columns=SIZES, m=SIZES, n=SIZES, k=SIZES, overlap=st.floats(0, 1))
def test_no_dataflow_beats_the_number_of_multiplications(rows, columns, m, n, k, overlap):
    kinds = np.array([0, 1, 2])
    cycles = systolic_cycles(rows, columns, m, n, k, kinds, overlap)
    assert (cycles * rows * columns >= m * n * k * (1 - 1e-12)).all()
    assert (cycles <= systolic_cycles(rows, columns, m, n, k, kinds, 0.0) * (1 + 1e-12)).all()


@settings(max_examples=20, deadline=None)
@given(rows=SIZES, columns=SIZES, m=SIZES, n=SIZES, k=SIZES)
def test_input_stationary_is_weight_stationary_with_m_and_n_exchanged(rows, columns, m, n, k):
    weight = systolic_cycles(rows, columns, m, n, k, Stationarity.WEIGHT)
    assert weight == systolic_cycles(rows, columns, n, m, k, Stationarity.INPUT)


def test_arrays_of_sizes_equal_one_at_a_time():
    m = np.array([1.0, 100.0, 784.0])
    together = systolic_cycles(32, 32, m, 128, 300, Stationarity.OUTPUT)
    assert together.tolist() == [float(systolic_cycles(32, 32, one, 128, 300, Stationarity.OUTPUT)) for one in m]


def test_an_array_without_rows_is_refused():
    with pytest.raises(ValueError, match="rows must be at least 1"):
        systolic_cycles(0, 8, 8, 8, 8, Stationarity.OUTPUT)
    with pytest.raises(ValueError, match="fold_overlap_fraction must be between 0 and 1"):
        systolic_cycles(8, 8, 8, 8, 8, Stationarity.OUTPUT, 1.5)


def test_a_stream_ends_with_its_rows_and_is_never_shorter_than_the_load():
    """With weights held, cycles grow with the rows of the matrix and not with those of the tile that covers them."""
    chip = chip_designs(["tpu_v6e"])
    sizes = np.array([256.0, 513.0, 700.0, 1024.0])
    n = k = np.full(4, 4096.0)
    cycles = onchip_cycles(chip, sizes, n, k, np.full(4, 2.0), np.ones(4))[0]
    assert cycles[1] < 0.7 * cycles[3]
    assert (np.diff(cycles) > 0).all()
    few = onchip_cycles(chip, np.array([1.0, 64.0]), n[:2], k[:2], np.full(2, 2.0), np.ones(2))[0]
    assert few[0] == pytest.approx(few[1], rel=0.05)
