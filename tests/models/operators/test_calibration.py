"""Calibrated constants: ratios reach every operator of a step, keep it monotone and above its roofline."""

import dataclasses

import numpy as np
import pytest

from models.checks import UnknownNameError
from models.hardware.design import peak_flop_per_s, reference_design
from models.operators.calibration import UNCALIBRATED, Calibration, calibrated_constants
from models.operators.factor_tables import FactorTables
from models.operators.step import run_step, step_program, term
from models.tables import DATA, constants
from tests.models.random_designs import random_designs

GEMM = {"m": 512.0, "n": 8192.0, "k": 8192.0, "weight_bytes": 2.0, "input_bytes": 2.0, "output_bytes": 2.0,
        "rate_class": 2.0, "dequant_ops": 0.0, "instances": 1.0, "copies": 1e9, "useful_fraction": 1.0}  # fmt: skip


def gemm_time_s(designs, calibration=UNCALIBRATED, **sizes):
    columns = {name: np.array([value]) for name, value in (GEMM | sizes).items()}
    program = step_program([term("it", "gemm", "", 1.0, **columns)], 0.0, calibration=calibration)
    return run_step(program, designs, FactorTables()).time_s[:, 0]


def test_a_ratio_multiplies_the_constants_it_names_and_no_others():
    used = Calibration({"gemm": {"tile_overhead": 2.0}}).constants("gemm")
    changed = {name for name, value in used.items() if value != constants("gemm")[name]}
    assert changed == {"tile_cycles", "tile_cycles_without_bulk_copy"}
    assert used["tile_cycles"] == 2.0 * constants("gemm")["tile_cycles"]


def test_a_profile_without_ratios_changes_nothing():
    designs = random_designs(20, 3)
    np.testing.assert_array_equal(gemm_time_s(designs, Calibration({})), gemm_time_s(designs))


def test_less_memory_efficiency_slows_a_memory_bound_gemm_in_proportion():
    slow = Calibration({"gemm": {"memory_efficiency": 0.5}})
    ratio = gemm_time_s(reference_design(), slow, m=1.0) / gemm_time_s(reference_design(), m=1.0)
    assert 1.7 < ratio[0] <= 2.0


def test_a_share_never_exceeds_one_so_that_no_gemm_beats_its_roofline():
    fast = Calibration({"gemm": {"memory_efficiency": 1.25, "operand_port": 6.0, "operand_exposed": 0.1}})
    design = random_designs(40, 5)
    bound_s = 2.0 * GEMM["m"] * GEMM["n"] * GEMM["k"] / peak_flop_per_s(design)
    assert (gemm_time_s(design, fast) >= bound_s * (1 - 1e-9)).all()
    assert fast.constants("gemm")["memory_efficiency_fraction"] <= 1.0


@pytest.mark.parametrize("resource", ["memory_bandwidth_bytes_per_s", "n_cores", "clock_hz", "l2_bytes"])
def test_more_of_a_resource_is_never_slower_under_a_profile(resource):
    used = Calibration({"gemm": {"wave_rounding": 5.0, "overlap": 0.5, "operand_port": 0.3, "array_efficiency": 0.7}})
    designs = random_designs(60, 11)
    more = dataclasses.replace(designs, **{resource: getattr(designs, resource) * 2.0})
    assert (gemm_time_s(more, used) <= gemm_time_s(designs, used) * (1 + 1e-9)).all()


def test_every_name_scales_a_constant_that_exists():
    for family, known in calibrated_constants().items():
        for name in known:
            low = Calibration({family: {name: known[name].low}}).constants(family)
            assert low != UNCALIBRATED.constants(family), f"{family}.{name}"


@pytest.mark.parametrize(
    ("ratios", "error", "match"),
    [
        ({"gem": {"start": 1.0}}, UnknownNameError, "unknown operator family 'gem', did you mean 'gemm'"),
        ({"gemm": {"stat": 1.0}}, UnknownNameError, "unknown constant of gemm 'stat'"),
        ({"gemm": {"start": 0.0}}, ValueError, "gemm.start must be positive"),
        ({"gemm": {"start": 1e4}}, ValueError, "gemm.start must be between 0.05 and 60, got 10000"),
        ({"gemm": dict.fromkeys(list(calibrated_constants()["gemm"])[:9], 1.0)}, ValueError, "at most 8 constants"),
    ],
    ids=["family", "name", "zero", "range", "too many"],
)
def test_a_wrong_profile_is_refused(ratios, error, match):
    with pytest.raises(error, match=match):
        Calibration(ratios)


def test_the_table_of_constants_states_a_range_around_one():
    for row in (each for known in calibrated_constants().values() for each in known.values()):
        assert row.low <= 1.0 <= row.high, row
    assert (DATA / "calibrated_constants.csv").exists()
