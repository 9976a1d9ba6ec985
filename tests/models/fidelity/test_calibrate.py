"""Fits of calibration profiles: known constants are found again, bad rows are named by line."""

import csv

import numpy as np
import pytest

from models.fidelity.calibrate import calibrate
from models.fidelity.calibration_rows import calibration_rows
from models.fidelity.profiles import (
    profile_document,
    profile_from_document,
    profile_text,
    read_profile,
    shipped_profiles,
)
from models.fidelity.report import TableError
from models.operators.calibration import MOST_CONSTANTS, Calibration

TRUE = Calibration({"gemm": {"memory_efficiency": 0.7, "start": 4.0}})
SIZES = [
    (m, n, k)
    for m in (1, 256, 4096)
    for n, k in ((2048, 2048), (4096, 8192), (8192, 4096), (28672, 8192), (1024, 8192))
]


def write(path, rows, columns=("device", "m", "n", "k", "dtype", "latency_us")):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerows([columns, *rows])
    return path


def measured(tmp_path, sizes=SIZES, device="h100_sxm", factor=1.0, name="mine.csv"):
    """GEMM times as hardware with the constants `TRUE` would show them."""
    path = write(tmp_path / name, [[device, *size, "bf16", 1.0] for size in sizes])
    times_s = np.concatenate([part.predictor(TRUE) for part in calibration_rows(path)])
    rows = [[device, *size, "bf16", t * 1e6 * factor] for size, t in zip(sizes, times_s, strict=True)]
    return rows, path


def test_the_constants_that_made_the_times_are_found_again(tmp_path):
    rows, path = measured(tmp_path)
    report = calibrate(write(path, rows))
    found = report.profile.constants["gemm"]
    assert found["memory_efficiency"] == pytest.approx(0.7, rel=0.03)
    assert found["start"] == pytest.approx(4.0, rel=0.1)
    fit = report.profile.fit["gemm"]
    assert fit.mape_after < 0.01 < fit.mape_before
    assert fit.mape_held_out < 0.02


def test_a_fit_keeps_at_most_eight_constants_and_one_for_three_rows(tmp_path):
    rows, path = measured(tmp_path)
    few = calibrate(write(path, rows[:12]))
    assert sum(map(len, few.profile.constants.values())) <= 4
    assert any("12 rows allow 4 constants at most" in each.rule for each in few.findings)
    assert all(len(values) <= MOST_CONSTANTS for values in calibrate(write(path, rows)).profile.constants.values())


def test_a_time_faster_than_the_hardware_is_named_by_line_and_left_out(tmp_path):
    rows, path = measured(tmp_path)
    rows[13][-1] /= 20
    report = calibrate(write(path, rows))
    named = [each for each in report.findings if each.refused]
    assert [each.line for each in named] == [15]
    assert "faster than the hardware can be" in named[0].rule
    assert report.profile.fit["gemm"].rows == len(rows) - 1


def test_a_time_in_another_unit_is_named_by_line_and_left_out(tmp_path):
    rows, path = measured(tmp_path)
    rows[3][-1] *= 1000
    named = [each for each in calibrate(write(path, rows)).findings if each.refused]
    assert [each.line for each in named] == [5]
    assert "as a time in another unit is" in named[0].rule


def test_rows_of_two_devices_need_a_named_one(tmp_path):
    rows, path = measured(tmp_path)
    other, _ = measured(tmp_path, device="a100_sxm", name="other.csv")
    both = write(path, rows + other)
    with pytest.raises(TableError, match=r"mine\.csv line \d+: rows must be of one device, got a100_sxm, h100_sxm"):
        calibrate(both)
    assert calibrate(both, "h100_sxm").profile.device == "h100_sxm"
    with pytest.raises(TableError, match="no row is of device b200_sxm"):
        calibrate(both, "b200_sxm")


def test_too_few_rows_are_refused(tmp_path):
    rows, path = measured(tmp_path)
    with pytest.raises(TableError, match="gemm needs at least 10 usable rows to be fitted, got 9"):
        calibrate(write(path, rows[:9]))


def test_one_shape_only_is_refused(tmp_path):
    rows, path = measured(tmp_path)
    with pytest.raises(TableError, match=r"line 2: gemm needs at least 4 different shapes to be fitted, got 1"):
        calibrate(write(path, [rows[0]] * 20))


def test_narrow_rows_are_told(tmp_path):
    rows, path = measured(tmp_path, sizes=[(m, 4096, 4096) for m in range(1, 15)])
    assert any("span a factor of" in each.rule for each in calibrate(write(path, rows)).findings)


def test_a_column_in_another_unit_is_refused(tmp_path):
    columns = ("device", "m", "n", "k", "dtype", "latency_ms")
    path = write(tmp_path / "mine.csv", [["h100_sxm", 1, 2048, 2048, "bf16", 0.1]], columns)
    with pytest.raises(TableError, match="columns are those of no measured table"):
        calibrate(path)


def test_a_profile_survives_its_file(tmp_path):
    rows, path = measured(tmp_path)
    profile = calibrate(write(path, rows), name="mine").profile
    file = tmp_path / "mine.toml"
    file.write_text(profile_text(profile), encoding="utf-8")
    again = read_profile(file)
    assert again.constants == profile.constants
    assert profile_from_document(profile_document(profile)) == profile


@pytest.mark.parametrize(
    ("document", "match"),
    [
        ({"name": "x", "device": "y"}, "constants must map a family to its ratios"),
        ({"device": "y", "constants": {"gemm": {"start": 1}}}, "name must be a name, got None"),
        (
            {"name": "x", "device": "y", "constants": {"gemm": {"start": "fast"}}},
            "gemm.start must be a positive number",
        ),
        ({"name": "x", "device": "y", "constants": {"gemm": {"start": -1}}}, "gemm.start must be positive"),
        ({"name": "x", "device": "y", "constants": {"gemm": 3}}, "constants of gemm must map a name to its ratio"),
    ],
    ids=["constants", "name", "text", "negative", "shape"],
)
def test_a_document_that_is_no_profile_is_refused(document, match):
    with pytest.raises(ValueError, match=match):
        profile_from_document(document)


@pytest.mark.parametrize("name", shipped_profiles())
class TestEveryShippedProfile:
    def test_holds_few_constants_and_predicts_shapes_it_did_not_see_better_than_before(self, name):
        profile = shipped_profiles()[name]
        assert profile.constants and profile.tables
        for family, values in profile.constants.items():
            assert 1 <= len(values) <= MOST_CONSTANTS
            if family in profile.fit and profile.fit[family].mape_held_out is not None:
                assert profile.fit[family].mape_held_out <= profile.fit[family].mape_before * 1.02
