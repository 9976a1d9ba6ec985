"""Quantities as people write them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.quantities import parse_quantity, write_quantity


@pytest.mark.parametrize(
    ("written", "unit", "expected"),
    [
        ("600 mm2", "mm**2", 600.0),
        ("6 cm2", "mm**2", 600.0),
        ("600mm2", "mm**2", 600.0),
        ("1e-4 m2", "mm**2", 100.0),
        ("500 W", "W", 500.0),
        ("0.5 kW", "W", 500.0),
        ("50 ms", "s", 0.05),
        ("1 min", "s", 60.0),
        ("250 µs", "s", 2.5e-4),
        ("600 mm^2", "mm**2", 600.0),
        (" 600  mm2 ", "mm**2", 600.0),
        ("1 / s", "1/s", 1.0),
        ("20/s", "1/s", 20.0),
        ("20 / s", "1/s", 20.0),
        ("1200 / min", "1/s", 20.0),
        ("192 MiB", "byte", 192 * 1024**2),
        ("192 MB", "byte", 192e6),
        ("3.35 TB/s", "byte/s", 3.35e12),
        ("1.6 GHz", "Hz", 1.6e9),
        ("4000 USD", "usd", 4000.0),
        ("4000 usd", "usd", 4000.0),
        ("-5 W", "W", -5.0),
    ],
)
def test_a_number_with_a_unit_becomes_the_unit_used_inside(written, unit, expected):
    assert parse_quantity(written, unit, "x") == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (600, "must carry a unit, such as '600 mm2', got 600"),
        ("600", "must carry a unit, such as '600 mm2', got '600'"),
        (None, "must carry a unit"),
        (True, "must carry a unit"),
        ([1], "must carry a unit"),
        ("600 mm", "must have the dimension of '600 mm2', got '600 mm'"),
        ("600 W", "must have the dimension of '600 mm2'"),
        ("600 bananas", "must be a number with a unit"),
        ("nan mm2", "must be finite, got 'nan mm2'"),
        ("inf mm2", "must be finite"),
        ("1e999 mm2", "must be finite"),
        ("mm2", "must be a number with a unit"),
        ("", "must be a number with a unit"),
        ("600 mm2 600 mm2", "must be a number with a unit"),
        ("600 mm 1 mm", "must be a number with a unit"),
        ("nan mm2 9**9**9**9", "must be a number with a unit"),
        ("10**10**10 mm2", "must be a number with a unit"),
        ("__import__('os') mm2", "must be a number with a unit"),
        ("6" * 50 + " mm2", "must be a number with a unit"),
    ],
)
def test_anything_else_is_refused_with_what_came(written, message):
    with pytest.raises(ValueError, match="^" + message.replace("(", r"\(").replace("*", r"\*")):
        parse_quantity(written, "mm**2", "600 mm2")


@given(st.floats(1e-12, 1e25), st.sampled_from(["mm**2", "W", "s", "1/s", "usd", "byte", "byte/s", "Hz"]))
@settings(max_examples=60)
def test_a_quantity_is_read_back_as_it_was_written(value, unit):
    assert parse_quantity(write_quantity(value, unit), unit, "") == value
