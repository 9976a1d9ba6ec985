"""Spread of a step: levels between devices add within a group, errors within a device in squares."""

import math

import numpy as np
import pytest

from models.checks import UnknownNameError
from models.hardware.design import reference_design
from models.operators.factor_tables import FactorTables
from models.operators.intervals import operator_spread, spread_classes
from models.operators.step import run_step, step_program, term
from models.operators.term_spread import StepSpread, step_spread
from tests.models.operators.test_calibration import GEMM


def spread_of(*columns, overhead_s=0.0):
    terms = [term(f"it{i}", "gemm", "", 1.0, **{n: np.array([v]) for n, v in c.items()}) for i, c in enumerate(columns)]
    program, alternatives = step_program(terms, overhead_s), np.zeros((1, 1), dtype=np.int64)
    activity = run_step(program, reference_design(), FactorTables(), alternatives=alternatives, keep_terms=True)
    return step_spread(program, alternatives, activity.terms, activity.time_s)


def test_one_gemm_has_the_spread_of_its_class():
    assert spread_of(GEMM).half_width[0] == pytest.approx(operator_spread("gemm").half_width)


def test_equal_operators_share_their_level_but_not_their_own_errors():
    gemm = operator_spread("gemm")
    expected = math.hypot(gemm.between, gemm.within / math.sqrt(4))
    assert spread_of(GEMM, GEMM, GEMM, GEMM).half_width[0] == pytest.approx(expected)


def test_shares_are_those_of_the_step_and_the_host_takes_the_rest():
    found = spread_of(GEMM, overhead_s=1.0)
    assert found.groups == ("gemm", "host")
    assert found.shares.sum() == pytest.approx(1.0)
    assert found.shares[0, 1] > 0.99


def test_a_small_gemm_is_wider_than_a_large_one():
    assert spread_of(GEMM | {"n": 128.0}).half_width[0] > spread_of(GEMM).half_width[0]


def test_a_format_that_no_table_shows_is_wider_and_uncalibrated():
    measured, unseen = spread_of(GEMM), spread_of(GEMM | {"rate_class": 3.0})
    assert measured.uncalibrated_share[0] == 0.0
    assert unseen.uncalibrated_share[0] == pytest.approx(1.0)
    assert unseen.half_width[0] > 1.5 * operator_spread("gemm_narrow").half_width


def test_groups_are_independent():
    spread = StepSpread(
        ("a", "b"), np.array([[0.5, 0.5]]), np.array([[0.6, 0.8]]), np.zeros((1, 2)), np.ones((1, 2), bool)
    )
    assert spread.half_width[0] == pytest.approx(0.5)


def test_a_die_left_out_does_not_enter_its_own_spread():
    assert operator_spread("attention_prefill", "NVIDIA-7-826") != operator_spread("attention_prefill")


def test_every_class_has_a_positive_spread_and_one_die_is_not_calibrated():
    for name in spread_classes():
        assert operator_spread(name).half_width > 0
    assert not operator_spread("gemm_fp4").calibrated
    assert operator_spread("gemm").calibrated


def test_an_unknown_class_is_refused():
    with pytest.raises(UnknownNameError, match="unknown interval class 'gem'"):
        operator_spread("gem")
