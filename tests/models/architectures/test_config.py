import copy
import json

import pytest

from models.architectures import ARCHITECTURES, load_network, network_names, read_network
from models.architectures.config import PREDICTION_KEYS
from models.architectures.fields import harmless_keys
from models.architectures.network import Attention, Experts, StateMixer
from models.checks import UnknownNameError
from models.tables import DATA

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "hidden_act": "silu",
    "rope_theta": 500000.0,
    "rope_scaling": {"factor": 8.0, "rope_type": "llama3"},
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def changed(**keys):
    config = copy.deepcopy(LLAMA) | keys
    return {key: value for key, value in config.items() if value != "absent"}


@pytest.mark.parametrize("name", network_names())
class TestEveryNetworkOfTheCatalogue:
    def test_loads_with_at_least_one_layer_and_a_context(self, name):
        network = load_network(name)
        assert network.n_layers > 0
        assert network.max_context_tokens > 0

    def test_is_of_a_known_family_and_keeps_its_name(self, name):
        network = load_network(name)
        assert network.name == name
        assert network.model_type in ARCHITECTURES

    def test_refuses_a_key_that_nobody_knows(self, name):
        config = json.loads((DATA / "networks" / f"{name}.json").read_text())
        inner = config.get("text_config", config)
        inner["number_of_wheels"] = 4
        path = "network.text_config" if "text_config" in config else "network"
        with pytest.raises(ValueError, match=rf"{path}\.number_of_wheels is not understood"):
            read_network(config, name)

    def test_refuses_every_size_that_is_negative(self, name):
        config = json.loads((DATA / "networks" / f"{name}.json").read_text())
        inner = config.get("text_config", config)
        free = {*harmless_keys(), *PREDICTION_KEYS}
        read = [key for key, value in inner.items() if type(value) is int and key not in free]
        assert len(read) >= 5
        for key in read:
            broken = copy.deepcopy(config)
            broken.get("text_config", broken)[key] = -1
            with pytest.raises(ValueError, match=rf"\.{key} must be between"):
                read_network(broken, name)


def test_the_catalogue_holds_all_published_networks():
    assert len(network_names()) == 36


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match=r"unknown network 'llama-3.1-80b', did you mean 'llama-3.1-8"):
        load_network("llama-3.1-80b")


def test_an_unknown_model_type_lists_the_known_ones():
    with pytest.raises(UnknownNameError, match=r"network\.model_type 'lama', did you mean 'llama'\? known: .*falcon"):
        read_network(changed(model_type="lama"), "mine")


BAD_VALUES = {
    "hidden_size": [0, -4096, 4096.0, True, "4096", 10**400, [4096], {}],
    "num_hidden_layers": [0, 10**6, False],
    "num_attention_heads": [0, 2**40],
    "vocab_size": [-1, 1e9],
    "max_position_embeddings": [0, 10**12],
}


@pytest.mark.parametrize(("key", "value"), [(k, v) for k, values in BAD_VALUES.items() for v in values], ids=repr)
def test_a_size_out_of_bounds_is_named(key, value):
    with pytest.raises(ValueError, match=rf"network\.{key} must be"):
        read_network(changed(**{key: value}), "mine")


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size"])
def test_a_missing_size_is_named(key):
    with pytest.raises(ValueError, match=rf"network\.{key} is missing"):
        read_network(changed(**{key: "absent"}), "mine")


def test_key_value_heads_must_divide_the_heads():
    with pytest.raises(ValueError, match=r"network\.num_key_value_heads must divide num_attention_heads \(32\), got 7"):
        read_network(changed(num_key_value_heads=7), "mine")


def test_a_flag_must_be_true_or_false():
    with pytest.raises(ValueError, match=r"network\.tie_word_embeddings must be true or false, got 'no'"):
        read_network(changed(tie_word_embeddings="no"), "mine")


def test_a_configuration_must_be_an_object():
    with pytest.raises(ValueError, match="network must be a JSON object, got list"):
        read_network([LLAMA], "mine")


def test_a_layer_pattern_must_have_one_entry_per_layer():
    with pytest.raises(ValueError, match=r"network\.layer_types must have 42 entries, one per layer, got 41"):
        config = json.loads((DATA / "networks" / "gemma-2-9b.json").read_text())
        config["layer_types"].pop()
        read_network(config, "mine")


def test_an_unknown_kind_of_layer_is_named_with_its_index():
    config = json.loads((DATA / "networks" / "gemma-2-9b.json").read_text())
    config["layer_types"][3] = "spiral_attention"
    with pytest.raises(ValueError, match=r"network\.layer_types\[3\] must be one of full_attention, sliding_attention"):
        read_network(config, "mine")


def test_more_experts_per_token_than_experts_are_refused():
    config = json.loads((DATA / "networks" / "mixtral-8x7b.json").read_text()) | {"num_experts_per_tok": 9}
    with pytest.raises(ValueError, match=r"num_experts_per_tok must be at most 8, the number of experts, got 9"):
        read_network(config, "mine")


def test_two_spellings_that_contradict_are_refused():
    config = json.loads((DATA / "networks" / "mixtral-8x7b.json").read_text()) | {"num_experts": 16}
    with pytest.raises(ValueError, match=r"network\.num_local_experts and network\.num_experts contradict each other"):
        read_network(config, "mine")


def test_a_key_harmless_at_one_value_is_refused_at_another():
    config = json.loads((DATA / "networks" / "bert-base.json").read_text())
    read_network(config | {"is_decoder": False}, "mine")
    with pytest.raises(ValueError, match=r"network\.is_decoder must be false, got True"):
        read_network(config | {"is_decoder": True}, "mine")


def test_a_file_with_the_keys_that_transformers_writes_is_read_as_it_is():
    extra = {"_name_or_path": "x", "bos_token_id": 1, "eos_token_id": [1, 2], "pretraining_tp": 1, "use_cache": True,
             "rms_norm_eps": 1e-5, "initializer_range": 0.02, "transformers_version": "4.43.0", "attention_bias": False,
             "attention_dropout": 0.0, "mlp_bias": False}  # fmt: skip
    assert read_network(changed(**extra), "x").layers == read_network(LLAMA, "x").layers


def test_a_text_model_is_read_from_its_wrapper_and_the_tower_is_noted():
    wrapped = {"model_type": "llava", "text_config": LLAMA, "vision_config": {"depth": 3}, "image_token_index": 5}
    network = read_network(wrapped, "x")
    assert network.layers == read_network(LLAMA, "x").layers
    assert network.notes == ("vision_config: left out, the text model alone is read",)


def test_an_unknown_key_beside_text_config_is_named():
    with pytest.raises(ValueError, match=r"network\.cross_layers is not understood"):
        read_network({"model_type": "llava", "text_config": LLAMA, "cross_layers": [3]}, "x")


def windows(network):
    return [layer.mixer.window_tokens for layer in network.layers]


def test_gemma_2_slides_in_every_other_layer_even_without_layer_types():
    config = json.loads((DATA / "networks" / "gemma-2-9b.json").read_text())
    del config["layer_types"]
    assert windows(read_network(config, "x")) == windows(load_network("gemma-2-9b"))
    assert windows(load_network("gemma-2-9b"))[:3] == [4096, 0, 4096]


def test_gemma_3_looks_everywhere_in_every_sixth_layer_even_without_layer_types():
    config = json.loads((DATA / "networks" / "gemma-3-12b.json").read_text())
    del config["layer_types"]
    assert windows(read_network(config, "x")) == windows(load_network("gemma-3-12b"))
    assert windows(load_network("gemma-3-12b"))[:7] == [1024] * 5 + [0, 1024]


def test_llama_4_attends_in_chunks_except_in_every_fourth_layer():
    layers = load_network("llama-4-scout").layers
    assert [layer.mixer.window_tokens for layer in layers[:5]] == [8192, 8192, 8192, 0, 8192]
    assert layers[0].mixer.chunked
    assert not layers[3].mixer.chunked
    assert [layer.mixer.rotary_dim for layer in layers[:5]] == [128, 128, 128, 0, 128]


def test_llama_4_maverick_alternates_dense_layers_and_experts():
    layers = load_network("llama-4-maverick").layers
    assert [isinstance(layer.feed_forward, Experts) for layer in layers[:4]] == [False, True, False, True]


def test_deepseek_begins_with_dense_layers():
    layers = load_network("deepseek-v3").layers
    assert [isinstance(layer.feed_forward, Experts) for layer in layers[:5]] == [False, False, False, True, True]
    assert layers[5].feed_forward.shared_intermediate_size == 2048


def test_qwen_uses_a_sliding_window_only_where_it_is_switched_on():
    config = {
        "model_type": "qwen2", "hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 16,
        "num_key_value_heads": 16, "intermediate_size": 2816, "vocab_size": 151936, "max_position_embeddings": 32768,
        "sliding_window": 4096, "max_window_layers": 2, "use_sliding_window": False,
    }  # fmt: skip
    assert windows(read_network(config, "x")) == [0, 0, 0, 0]
    assert windows(read_network(config | {"use_sliding_window": True}, "x")) == [0, 0, 4096, 4096]


def test_phi_rotates_part_of_each_head():
    config = json.loads((DATA / "networks" / "phi-4.json").read_text()) | {"partial_rotary_factor": 0.75}
    assert read_network(config, "x").layers[0].mixer.rotary_dim == 96


def test_a_hybrid_has_recurrent_layers_of_constant_state():
    config = {
        "model_type": "nemotron_h", "hidden_size": 1024, "num_hidden_layers": 4, "hybrid_override_pattern": "M-M*",
        "num_attention_heads": 8, "num_key_value_heads": 2, "attention_head_dim": 128, "mamba_num_heads": 32,
        "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128, "intermediate_size": 4096, "vocab_size": 1000,
        "max_position_embeddings": 4096,
    }  # fmt: skip
    mixers = [layer.mixer for layer in read_network(config, "x").layers]
    assert [type(mixer) for mixer in mixers] == [StateMixer, type(None), StateMixer, Attention]


def test_a_hybrid_pattern_of_wrong_length_is_refused():
    config = {"model_type": "nemotron_h", "hidden_size": 64, "num_hidden_layers": 3, "hybrid_override_pattern": "MX"}
    with pytest.raises(ValueError, match=r"network\.hybrid_override_pattern must be 3 letters of '\*-M', got 'MX'"):
        read_network(config, "x")


JUNK = [[], {}, "x", -1, 0, 1e300, float("nan"), True, [[1]], [None], {"a": [1]}, 10**5000]
ONE_OF_EACH_FAMILY = [
    "llama-3.1-8b", "gemma-3-12b", "gpt-oss-20b", "llama-4-maverick", "qwen3-30b-a3b", "deepseek-r1", "falcon-40b",
    "gpt-3-175b", "gpt-j-6b", "bert-base", "vit-b-16",
]  # fmt: skip


@pytest.mark.parametrize("name", ONE_OF_EACH_FAMILY)
def test_junk_in_any_key_is_a_clear_error_or_harmless(name):
    config = json.loads((DATA / "networks" / f"{name}.json").read_text())
    inner = config.get("text_config", config)
    for key in inner:
        for junk in JUNK:
            broken = copy.deepcopy(config)
            broken.get("text_config", broken)[key] = junk
            try:
                network = read_network(broken, name)
            except (ValueError, UnknownNameError) as error:
                assert key in str(error)
                assert len(str(error)) < 1200
            else:
                assert network.n_layers <= 512


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"mlp_only_layers": [3, [4]]}, r"mlp_only_layers\[1\] must be a layer from 0 to 47, got \[4\]"),
        ({"mlp_only_layers": [48]}, r"mlp_only_layers\[0\] must be a layer from 0 to 47, got 48"),
        ({"use_qk_norm": 1}, r"use_qk_norm must be true or false, got 1"),
    ],
    ids=str,
)
def test_bad_lists_and_flags_of_an_expert_network_are_named(keys, message):
    config = json.loads((DATA / "networks" / "qwen3-30b-a3b.json").read_text()) | keys
    with pytest.raises(ValueError, match=message):
        read_network(config, "x")
