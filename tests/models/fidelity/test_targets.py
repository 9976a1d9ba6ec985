"""Promises beside figures: pooled over rows, worst device, verdict."""

import pytest

from models.fidelity.report import GroupReport
from models.fidelity.targets import TargetLine, error_figure, target_lines
from models.tables import DATA, read_rows


def report(device, rows, mape, left_out=None, **fields):
    chosen = {"table": "aic_attention_decode", "group": "decode", "dtype": "bfloat16", "quantity": "latency"} | fields
    return GroupReport(
        device=device, constants="global", rows=rows, mape=mape, leave_one_device_out_mape=left_out, **chosen
    )


def test_a_figure_weighs_rows_and_names_the_worst_device():
    figure = error_figure([report("a", 30, 0.1), report("b", 10, 0.3), report("b", 10, 0.2)], "mape")
    assert figure.mean == pytest.approx(0.16)
    assert (figure.worst, figure.worst_device) == (pytest.approx(0.25), "b")
    assert error_figure([report("a", 30, 0.1)], "roofline_mape") is None


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [((0.14, 0.2), (0.1, 0.1), "met"), ((0.16, 0.2), (0.1, 0.1), "met on average"), ((0.1, 0.5), (0.1, 0.1), "missed")],
)  # fmt: skip
def test_a_target_is_met_on_every_device_on_average_or_not(first, second, verdict):
    (line,) = target_lines([report("a", 10, *first), report("b", 10, *second)])
    assert line.label == "attention decode"
    assert line.verdict == verdict


def test_a_calibrated_error_counts_towards_the_verdict():
    good, bad = ({"calibrated_mape": value} for value in (0.09, 0.11))
    assert target_lines([report("a", 10, 0.1, 0.1, **good)])[0].verdict == "met"
    assert target_lines([report("a", 10, 0.1, 0.1, **bad)])[0].verdict == "missed"


def test_a_line_without_limits_is_reported():
    line = TargetLine("x", 1, error_figure([report("a", 1, 0.9)], "mape"), None, None, None, None, None, None, "")
    assert line.verdict == "reported"


def test_limits_are_fractions_and_labels_are_given_once():
    rows = read_rows(DATA / "accuracy_targets.csv")
    assert len({row["label"] for row in rows}) == len(rows)
    assert all(0 <= float(row[name]) < 1 for row in rows for name in ("fitted", "left_out", "calibrated") if row[name])
