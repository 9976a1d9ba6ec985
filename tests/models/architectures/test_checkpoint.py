import time

import pytest

from models.architectures import load_network, lower, read_network
from models.architectures.lowered import checkpoint_bits, checkpoint_bytes
from models.checks import UnknownNameError
from tests.models.architectures.test_config import changed


def bits(quantization, **keys):
    return checkpoint_bits(lower(read_network(changed(quantization_config=quantization, **keys), "x")))


def test_the_published_size_of_gpt_oss_is_met():
    # gpt-oss model card (arXiv 2508.10925) table 1: 60.8 GiB and 12.8 GiB.
    assert checkpoint_bytes(lower(load_network("gpt-oss-120b"))) / 2**30 == pytest.approx(60.8, rel=0.005)
    assert checkpoint_bytes(lower(load_network("gpt-oss-20b"))) / 2**30 == pytest.approx(12.8, rel=0.005)


def test_experts_of_gpt_oss_take_4_25_bits_and_its_attention_16():
    stored = checkpoint_bits(lower(load_network("gpt-oss-20b")))
    assert stored["expert_up"] == stored["expert_down"] == 4 + 8 / 32
    assert stored["attention_qkv"] == stored["output_head"] == stored["moe_gate"] == 16


def test_block_scaled_fp8_leaves_head_and_router_in_16_bit():
    stored = checkpoint_bits(lower(load_network("deepseek-v3")))
    assert stored["expert_up"] == stored["attention_kv_b"] == 8 + 32 / 128**2
    assert stored["output_head"] == stored["embedding"] == stored["moe_gate"] == 16


def test_awq_adds_a_scale_and_a_zero_point_to_each_group():
    stored = bits({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"})
    assert stored["ffn_up"] == 4 + (16 + 4) / 128
    assert stored["output_head"] == 16


def test_gptq_with_one_group_per_column_adds_nothing_to_speak_of():
    stored = bits({"quant_method": "gptq", "bits": 8, "group_size": -1, "desc_act": False, "sym": True})
    assert stored["attention_qkv"] == 8


def test_compressed_tensors_read_strategy_targets_and_exceptions():
    weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 64, "symmetric": False}
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None}
    method = {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0": group}}
    stored = bits(method | {"ignore": ["lm_head", "re:.*down_proj"]})
    assert stored["ffn_up"] == 4 + (16 + 4) / 64
    assert stored["ffn_down"] == stored["output_head"] == 16


def test_double_quantised_nf4_takes_4_127_bits():
    # T. Dettmers et al., QLoRA, arXiv 2305.14314, section 3: double quantisation takes 0.127 bits a parameter.
    stored = bits({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4",
                   "bnb_4bit_use_double_quant": True})  # fmt: skip
    assert stored["ffn_up"] == pytest.approx(4.127, abs=5e-4)


def test_an_exception_for_one_layer_weighs_as_one_layer():
    stored = bits({"quant_method": "fp8", "modules_to_not_convert": ["model.layers.0.mlp", "lm_head"]})
    assert stored["ffn_up"] == pytest.approx((31 * 8 + 16) / 32)
    assert stored["attention_qkv"] == 8


def test_gate_names_the_router_and_not_the_gate_projection():
    stored = bits({"quant_method": "awq", "bits": 4, "group_size": 128, "modules_to_not_convert": ["gate"]})
    assert stored["ffn_up"] < 5


def test_an_exception_that_names_nothing_is_noted():
    config = changed(quantization_config={"quant_method": "fp8", "ignored_layers": ["vision_tower", "lm_head"]})
    assert read_network(config, "x").notes == ("quantization_config: 'vision_tower' names no module of a known name",)


def test_plain_types_set_the_bits_of_everything():
    stored = checkpoint_bits(lower(read_network(changed(torch_dtype="float32"), "x")))
    assert set(stored.values()) == {32.0}


@pytest.mark.parametrize(
    ("quantization", "message"),
    [
        ({"quant_method": "awk"}, r"quantization_config\.quant_method 'awk', did you mean 'awq'"),
        ({}, r"network\.quantization_config\.quant_method is missing"),
        ({"quant_method": "awq", "bits": 40, "group_size": 64}, r"quantization_config\.bits must be between 1 and 16"),
        ({"quant_method": "awq", "bits": 4, "group_size": 0}, r"group_size must be positive, or -1"),
        ({"quant_method": "awq", "bits": 4, "group_size": 64, "wheels": 4}, r"\.wheels is not understood"),
        ({"quant_method": "fp8", "weight_block_size": [128, 0]}, r"block_size must be two positive whole numbers"),
        ({"quant_method": "fp8", "ignored_layers": ["re:("]}, r"pattern 're:\(' is not understood: missing"),
        ({"quant_method": "fp8", "ignored_layers": ["re:(a+)+$"]}, r"only one repetition besides"),
        ({"quant_method": "fp8", "ignored_layers": [3]}, r"must be a string of at most 300, got 3"),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, r"config_groups must name at least one group"),
        ({"quant_method": "gptq", "bits": 4, "dynamic": {"x": {}}}, r"quantization_config\.dynamic must be {}"),
    ],
    ids=str,
)  # fmt: skip
def test_a_bad_quantisation_is_named(quantization, message):
    with pytest.raises((ValueError, UnknownNameError), match=message):
        bits(quantization)


def test_an_unknown_type_is_refused():
    with pytest.raises(UnknownNameError, match=r"network\.torch_dtype 'bfloat61', did you mean 'bfloat16'"):
        read_network(changed(torch_dtype="bfloat61"), "x")


@pytest.mark.parametrize(
    ("pattern", "excluded"),
    [
        ("re:.*mlp\\.(gate|up)_proj$", True),
        ("re:model\\.layers\\.\\d+\\.mlp.*", True),
        ("re:.*self_attn.*", False),
        ("model.layers.*.mlp", True),
        ("layers.?.mlp", False),
        ("mlp.gate_proj", True),
        ("gate", False),
        ("model.layers*", True),
        ("language_model.model.layers.1*", False),
    ],
)
def test_patterns_of_all_kinds_name_modules(pattern, excluded):
    # A pattern that reaches single layers only leaves the mean between both formats.
    stored = bits({"quant_method": "fp8", "ignored_layers": [pattern]})["ffn_up"]
    assert (stored == 16) == excluded


def test_a_hostile_configuration_is_read_in_seconds():
    hostile = {
        "quant_method": "fp8",
        "ignored_layers": [f"re:{'.*a' * n}.*z0" for n in range(1, 60, 2)] + [f"m{i}*" for i in range(1000)],
    }
    began = time.perf_counter()
    bits(hostile, num_hidden_layers=128)
    # A backtracking matcher would take years.
    assert time.perf_counter() - began < 60
