"""Storage, array classes and rounding of number formats."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.checks import UnknownNameError
from models.precision.formats import FORMATS, RATE_CLASSES, fake_quantise, number_format, relative_error, round_to_float

# Signal to quantisation noise in dB, 512 x 4096 samples, published with the error model this one follows; columns:
# Gaussian, Laplace, Student t with 4 degrees of freedom. One decimal is printed.
PUBLISHED_SQNR_DB = {
    "fp16": (73.7, 73.7, 73.7), "bf16": (55.6, 55.6, 55.6), "int8": (41.2, 36.7, 31.4),
    "int6_g64": (33.4, 31.6, 31.1), "int5_g64": (27.3, 25.4, 24.9),
    "fp8_e4m3": (31.5, 31.6, 31.7), "mxfp8": (30.6, 30.0, 29.9), "mxfp6": (30.9, 30.3, 30.0),
    "mxfp6_e3m2": (25.4, 25.2, 25.2), "fp8_e5m2": (25.6, 25.6, 25.7), "int4_g64": (20.9, 19.1, 18.6),
    "int4": (16.1, 11.8, 7.1), "nvfp4": (20.4, 20.7, 20.7), "mxfp4": (18.8, 17.9, 17.6), "int3_g64": (14.3, 12.5, 12.0),
}  # fmt: skip


def samples() -> dict[str, np.ndarray]:
    """The heavy tail needs all 512 rows: its largest values decide the scale."""
    rng = np.random.default_rng(0)
    few, many = (96, 4096), (512, 4096)
    return {"gauss": rng.normal(size=few), "laplace": rng.laplace(size=few), "t4": rng.standard_t(4, size=many)}


SAMPLES = samples()


def sqnr_db(values: np.ndarray, name: str) -> float:
    noise = fake_quantise(values, name) - values
    return float(10 * np.log10(np.sum(values**2) / np.sum(noise**2)))


@pytest.mark.parametrize("name", PUBLISHED_SQNR_DB)
def test_signal_to_noise_agrees_with_published_table_within_0_3_db(name: str) -> None:
    for values, published in zip(SAMPLES.values(), PUBLISHED_SQNR_DB[name], strict=True):
        assert sqnr_db(values, name) == pytest.approx(published, abs=0.3)


def test_absmax_integers_follow_the_closed_form_of_bits_and_crest_factor() -> None:
    # SQNR = 6.02 b + 4.77 - 20 log10(crest), uniform noise of one step of 2 max / (2^b - 2).
    values = SAMPLES["laplace"]
    crest = np.max(np.abs(values)) / np.sqrt(np.mean(values**2))
    assert sqnr_db(values, "int8_tensor") == pytest.approx(6.02 * 8 + 4.77 - 20 * np.log10(crest), abs=0.15)


@pytest.mark.parametrize("name", [n for n, f in FORMATS.items() if f.block > -2])
def test_stored_signal_to_noise_is_what_the_quantiser_makes(name: str) -> None:
    # A third of the rows of the stored measurement: sampling error below 0.05 dB.
    assert sqnr_db(SAMPLES["gauss"], name) == pytest.approx(FORMATS[name].gaussian_sqnr_db, abs=0.15)


def code_values(exponent_bits: int, mantissa_bits: int, largest: float) -> np.ndarray:
    """Every finite non-negative value of a small float, decoded code by code."""
    bias = 2 ** (exponent_bits - 1) - 1
    codes = itertools.product(range(2**exponent_bits), range(2**mantissa_bits))
    values = [
        m / 2**mantissa_bits * 2.0 ** (1 - bias) if e == 0 else (1 + m / 2**mantissa_bits) * 2.0 ** (e - bias)
        for e, m in codes
    ]
    return np.array([value for value in values if value <= largest])


@pytest.mark.parametrize("name", ["fp8_e4m3", "fp8_e5m2", "mxfp6", "mxfp6_e3m2", "nvfp4"])
def test_elements_are_the_nearest_code_with_ties_to_even(name: str) -> None:
    number = FORMATS[name]
    table = code_values(number.exponent_bits, number.mantissa_bits, number.max_value)
    middles = (table[1:] + table[:-1]) / 2
    assert round_to_float(table, number).tolist() == table.tolist()
    even = np.where(np.arange(len(middles)) % 2 == 0, table[:-1], table[1:])
    assert round_to_float(middles, number).tolist() == even.tolist()
    assert round_to_float(np.nextafter(middles, np.inf), number).tolist() == table[1:].tolist()
    assert round_to_float(np.array([1e9, -1e9]), number).tolist() == [number.max_value, -number.max_value]


def test_fp16_agrees_with_numpy_bit_for_bit() -> None:
    values = np.random.default_rng(0).normal(size=20_000) * np.exp2(np.random.default_rng(1).integers(-26, 15, 20_000))
    assert np.array_equal(fake_quantise(values, "fp16"), values.astype(np.float16).astype(np.float64))


def test_bf16_agrees_with_the_upper_half_of_float32_rounded_to_even() -> None:
    values = np.random.default_rng(0).normal(size=20_000).astype(np.float32)
    bits = values.view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    assert np.array_equal(fake_quantise(values, "bf16"), rounded.astype(np.float64))


def test_microscaling_rule_clips_the_largest_value_of_a_block() -> None:
    assert fake_quantise([7.0, 1.0], "mxfp4").tolist() == [6.0, 1.0]
    assert fake_quantise([7.0, 1.0], "nvfp4")[0] == pytest.approx(7.0, rel=0.04)


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(sorted(FORMATS)), st.integers(0, 2**32 - 1), st.integers(1, 70))
def test_rounding_twice_is_nearly_rounding_once_and_zero_stays(name: str, seed: int, width: int) -> None:
    values = np.random.default_rng(seed).normal(size=(3, width))
    values[0] = 0.0
    rounded = fake_quantise(values, name)
    assert rounded.shape == values.shape
    assert np.all(rounded[0] == 0.0) or FORMATS[name].block == -2
    assert relative_error(values[1:], rounded[1:]) < 1.0


def test_block_results_do_not_depend_on_other_rows() -> None:
    values = np.random.default_rng(5).normal(size=(4, 130))
    together = fake_quantise(values, "int4_g64")
    alone = np.stack([fake_quantise(row, "int4_g64") for row in values])
    assert np.array_equal(together, alone)


def test_relative_error_is_per_token_and_not_hidden_by_one_large_token() -> None:
    values = np.random.default_rng(0).normal(size=(50, 64))
    values[0] *= 100
    quantised = values + 0.1 * np.abs(values)
    quantised[0] = values[0]
    assert relative_error(values, quantised) == pytest.approx(0.1 * np.sqrt(49 / 50))


def test_rate_classes_of_every_format_are_known_and_end_wide() -> None:
    for number in FORMATS.values():
        assert set(number.classes) <= set(RATE_CLASSES)
        assert number.classes[-1] == "fp32"


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match=r"values to quantise must be a finite number, got (nan|inf) at index 1"):
        fake_quantise([0.0, bad], "int8")


def test_unknown_format_names_the_nearest_one() -> None:
    with pytest.raises(UnknownNameError, match="unknown number format 'fp8_e4m4', did you mean 'fp8_e4m3'"):
        number_format("fp8_e4m4")
