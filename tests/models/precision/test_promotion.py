"""One home of promotions: which class stands in for one that a machine lacks, and when operands are widened."""

from __future__ import annotations

import numpy as np
import pytest

from models.precision.formats import FORMATS, RATE_CLASSES
from models.precision.promotion import (
    CLASS_CHAINS,
    NO_CLASS,
    class_code,
    contains,
    needs_widening,
    promoted_classes,
)


def rates(**ratio: float) -> np.ndarray:
    return np.array([[ratio.get(name, 0.0) for name in RATE_CLASSES]])


def test_all_formats_of_a_class_are_contained_in_the_same_wider_classes() -> None:
    assert set(CLASS_CHAINS) == set(RATE_CLASSES)
    assert all(number.classes == CLASS_CHAINS[number.rate_class] for number in FORMATS.values())


def test_wider_classes_of_a_class_form_one_chain() -> None:
    for chain in CLASS_CHAINS.values():
        assert all(CLASS_CHAINS[wider] == chain[i:] for i, wider in enumerate(chain))


@pytest.mark.parametrize(
    ("native", "asked", "computed"),
    [
        ({"bf16": 1.0}, "fp8", "bf16"),
        ({"bf16": 1.0, "fp8": 2.0}, "fp4", "fp8"),
        ({"bf16": 1.0, "fp8": 2.0}, "int8", "bf16"),
        ({"bf16": 1.0, "fp8": 2.0, "fp4": 4.0}, "fp6", "fp8"),
        ({"bf16": 1.0, "int8": 0.5}, "int8", "bf16"),
        ({"bf16": 1.0, "fp8": 1.0}, "fp8", "fp8"),
    ],
)
def test_class_is_promoted_to_the_fastest_that_contains_it(native, asked, computed) -> None:
    found = promoted_classes(rates(**native))[0, class_code(asked)]
    assert RATE_CLASSES[found] == computed


def test_small_block_scaled_operands_mix_with_wider_ones_only_where_their_class_is_native() -> None:
    fp4, fp8, bf16 = (class_code(name) for name in ("fp4", "fp8", "bf16"))
    needed = needs_widening(fp4, fp4, np.array([fp4, fp8, fp8, bf16]), np.array([True, True, False, True]))
    assert needed.tolist() == [False, False, True, True]


def test_integers_below_eight_bits_have_no_port_and_are_always_widened() -> None:
    int8 = class_code("int8")
    assert class_code(FORMATS["int4_g128"].native_class) == NO_CLASS
    assert bool(needs_widening(NO_CLASS, int8, int8, True))


def test_wide_classes_contain_narrow_ones_and_not_the_reverse() -> None:
    assert contains("bf16", "int8")
    assert not contains("int8", "bf16")
    assert not contains("fp8", "int8")
