"""Mixes of formats: stored bits, array rates with promotion, widening work, named recipes."""

from __future__ import annotations

import numpy as np
import pytest

from models.checks import UnknownNameError
from models.hardware.design import concatenate, reference_design, replace
from models.precision.formats import RATE_CLASSES
from models.precision.mix import (
    ATTENTION_MODULES,
    GEMM_MODULES,
    RECIPES,
    compute_rate_ratio,
    dequantisation_ops,
    precision_mix,
    recipe,
)


def designs_with(**rates: float):  # type: ignore[no-untyped-def]
    return replace(reference_design(), **({"fp8_rate_ratio": 0.0} | {f"{n}_rate_ratio": r for n, r in rates.items()}))


@pytest.mark.parametrize("mix", RECIPES.values(), ids=RECIPES)
class TestEveryRecipe:
    def test_states_bits_and_a_known_class_for_every_module(self, mix) -> None:  # type: ignore[no-untyped-def]
        for module in GEMM_MODULES:
            assert 1.5 < mix.weight_bits(module) <= 32
            assert 1.5 < mix.activation_bits(module) <= 32
            assert mix.compute_class(module) in RATE_CLASSES
        for module in ATTENTION_MODULES:
            assert mix.compute_class(module) in RATE_CLASSES
        assert 1.5 < mix.kv_bits <= 32

    def test_names_its_source_and_keeps_the_expert_gate_wide(self, mix) -> None:  # type: ignore[no-untyped-def]
        assert mix.source
        assert mix.weight_bits("moe_gate") >= 16

    def test_batch_of_designs_equals_one_at_a_time(self, mix) -> None:  # type: ignore[no-untyped-def]
        parts = [designs_with(), designs_with(fp8=2.0), designs_with(int8=2.0), designs_with(fp8=2.0, fp4=4.0)]
        for function in (compute_rate_ratio, dequantisation_ops):
            together = function(mix, "ffn_up", concatenate(parts))
            alone = np.concatenate([function(mix, "ffn_up", part) for part in parts])
            assert np.array_equal(together, alone)


def test_fp8_weights_take_half_the_bytes_of_bf16() -> None:
    assert recipe("fp8").weight_bits("ffn_up") == pytest.approx(8.0, rel=0.002)
    assert recipe("bf16").weight_bits("ffn_up") == 16


def test_operation_is_promoted_to_the_fastest_native_class_that_contains_both_operands() -> None:
    mix = recipe("nvfp4")
    assert compute_rate_ratio(mix, "ffn_up", designs_with(fp8=2.0, fp4=4.0)).tolist() == [4.0]
    assert compute_rate_ratio(mix, "ffn_up", designs_with(fp8=2.0)).tolist() == [2.0]
    assert compute_rate_ratio(mix, "ffn_up", designs_with(int8=2.0)).tolist() == [1.0]


def test_four_bit_weights_with_bf16_inputs_run_at_the_bf16_rate_and_are_widened() -> None:
    mix = recipe("w4a16")
    designs = designs_with(int8=2.0)
    assert compute_rate_ratio(mix, "ffn_up", designs).tolist() == [1.0]
    assert dequantisation_ops(mix, "ffn_up", designs).tolist() == [2.0]


def test_block_scaled_operands_mix_without_widening_on_an_array_that_runs_them() -> None:
    mix = precision_mix("w4a8", weights={"linears": "nvfp4"}, activations={"linears": "mxfp8"})
    assert dequantisation_ops(mix, "ffn_up", designs_with(fp8=2.0, fp4=4.0)).tolist() == [0.0]
    assert dequantisation_ops(mix, "ffn_up", designs_with(fp8=2.0)).tolist() == [2.0]


def test_no_native_class_that_contains_the_operands_gives_rate_zero() -> None:
    only_int8 = designs_with(bf16=0.0, int8=1.0)
    assert compute_rate_ratio(recipe("bf16"), "ffn_up", only_int8).tolist() == [0.0]
    assert compute_rate_ratio(recipe("w8a8_kv8"), "ffn_up", only_int8).tolist() == [1.0]


def test_blend_of_q4_k_m_raises_the_mean_bits_of_the_down_projection() -> None:
    mix = recipe("q4_k_m")
    assert mix.weight_bits("ffn_down") == pytest.approx(0.5 * (4.5 + 6.5625))
    assert 4.5 < mix.weight_bits("attention_qkv") < mix.weight_bits("ffn_down")


def test_training_state_of_deepseek_v3_takes_twelve_bytes_beside_the_weights() -> None:
    # arXiv 2412.19437: fp32 gradients and master weights, bf16 moments; 1 byte of fp8 weights makes 13.
    training = recipe("deepseek_v3_training").training
    assert training is not None
    assert training.state_bytes_per_parameter == 12


def test_expert_gate_below_bf16_is_refused() -> None:
    with pytest.raises(ValueError, match="moe_gate weight format must be at least bf16, got fp8_e4m3 in mix 'bad'"):
        precision_mix("bad", weights={"moe_gate": "fp8_e4m3"})


def test_unknown_module_and_recipe_are_named() -> None:
    with pytest.raises(UnknownNameError, match="unknown module 'ffn_upp', did you mean 'ffn_up'"):
        precision_mix("bad", weights={"ffn_upp": "int8"})
    with pytest.raises(UnknownNameError, match="unknown precision recipe 'deepseek', did you mean 'deepseek_v3'"):
        recipe("deepseek")


def test_blend_whose_shares_do_not_add_to_one_is_refused() -> None:
    with pytest.raises(ValueError, match="shares of blend w_v must add to 1"):
        precision_mix("bad", blends={"w_v": {"q6_k": 0.5, "q4_k": 0.4}})
