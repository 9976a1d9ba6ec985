"""Published schemes read from their names."""

from __future__ import annotations

import pytest

from models.precision.scheme import SchemeRow, scheme_kl_nats


def kl_nats(scheme: str, scope: str = "linears W", bits: tuple = (None, 16, 16), block: str = "") -> float:
    return scheme_kl_nats(SchemeRow(scheme, scope, *bits, block))


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ("Q8_0", "Q6_K"), ("Q6_K", "Q5_K_M"), ("Q5_K_M", "Q5_K_S"), ("Q5_1", "Q5_0"), ("Q5_0", "Q4_K_M"),
        ("Q4_K_M", "Q4_K_S"), ("Q4_K_S+imatrix", "Q4_K_S"), ("Q4_K_S", "Q4_0"), ("Q4_K_S", "Q3_K_L"),
        ("Q3_K_L", "Q3_K_M"), ("Q3_K_M", "Q3_K_S"), ("Q3_K_S", "Q2_K"), ("Q2_K attn_v 5bit", "Q2_K attn_v low"),
        ("KV fp8_e4m3", "KV mxfp4-like e2m1"), ("W f16/K f16/V q8_0", "W f16/K q8_0/V f16"),
        ("W q6_K/K f16/V f16", "W q4_K_M/K f16/V f16"), ("W f16/K q8_0/V q8_0", "W f16/K q4_0/V q4_0"),
    ],
)  # fmt: skip
def test_better_known_scheme_has_less_error(better: str, worse: str) -> None:
    bits = (None, None, None)
    assert kl_nats(better, bits=bits) < kl_nats(worse, bits=bits)


def test_unknown_scheme_is_judged_by_its_columns() -> None:
    by_bits = [kl_nats("SomeNewMethod", bits=(b, 16, 16), block="64") for b in (8, 6, 5, 4, 3, 2)]
    assert by_bits == sorted(by_bits)
    assert kl_nats("SomeNewMethod", bits=(4, 16, 16)) < kl_nats("SomeNewMethod", bits=(4, 8, 16))
    assert kl_nats("SomeNewMethod", bits=(4, 16, 16)) < kl_nats("SomeNewMethod", bits=(4, 16, 4))


def test_finer_groups_and_error_compensation_help_at_equal_bits() -> None:
    assert kl_nats("RTN W4", bits=(4, 16, 16), block="128") < kl_nats("RTN W4", bits=(4, 16, 16), block="channel")
    assert kl_nats("GPTQ W4", bits=(4, 16, 16), block="128") < kl_nats("RTN W4", bits=(4, 16, 16), block="128")


def test_sixteen_bits_everywhere_costs_what_bf16_costs() -> None:
    assert kl_nats("FP16", bits=(16, 16, 16)) < 0.002
