import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.architectures import load_network, lower, network_names, read_network
from models.architectures.lowered import weight_elements_per_module
from models.architectures.parallel import kv_elements_per_token
from models.tables import DATA, read_rows

COUNTS = {row["model"]: row for row in read_rows(DATA / "networks" / "parameter_counts.csv")}
NETWORK_COUNTS = {name: row for name, row in COUNTS.items() if name in network_names()}


def test_every_network_of_the_catalogue_has_a_published_count():
    assert set(NETWORK_COUNTS) == set(network_names())


@pytest.mark.parametrize("name", [n for n, row in NETWORK_COUNTS.items() if row["total_is_exact"] == "1"])
def test_total_parameters_equal_the_published_ones(name):
    # Published totals have three to six digits: half a percent covers their rounding.
    assert lower(load_network(name)).n_parameters == pytest.approx(float(COUNTS[name]["total_params"]), rel=0.005)


@pytest.mark.parametrize("name", NETWORK_COUNTS)
def test_total_parameters_equal_an_independent_formula(name):
    assert lower(load_network(name)).n_parameters == float(COUNTS[name]["formula_total"])


def test_names_that_round_are_the_only_ones_left_out():
    left_out = {name for name, row in NETWORK_COUNTS.items() if row["total_is_exact"] == "0"}
    assert left_out == {"falcon-7b", "falcon-40b", "falcon-180b", "kimi-k2", "llama-4-scout"}


@pytest.mark.parametrize("name", [n for n, row in NETWORK_COUNTS.items() if row["active_is_exact"] == "1"])
def test_active_parameters_equal_the_published_ones_under_their_definition(name):
    lowered, row = lower(load_network(name)), COUNTS[name]
    with_embedding = row["active_definition"].startswith("includes embedding")
    active = lowered.n_active_parameters + (lowered.embedding_parameters if with_embedding else 0.0)
    assert active == pytest.approx(float(row["active_params"]), rel=0.005)


MOE = [name for name, row in NETWORK_COUNTS.items() if row["active_params"]]


@pytest.mark.parametrize("name", MOE)
def test_active_parameters_of_experts_equal_an_independent_formula_in_both_definitions(name):
    lowered, row = lower(load_network(name)), COUNTS[name]
    assert lowered.n_active_parameters == float(row["formula_active_no_input_embedding"])
    with_embedding = lowered.n_active_parameters + lowered.embedding_parameters
    assert with_embedding == float(row["formula_active_with_embedding"])


@pytest.mark.parametrize("name", network_names())
def test_elements_of_all_modules_sum_to_the_total(name):
    lowered = lower(load_network(name))
    assert sum(weight_elements_per_module(lowered).values()) == pytest.approx(lowered.n_parameters, rel=1e-12)


# Numbers of `num_parameters()` of the named checkpoints in huggingface/transformers, from memory; equality of all
# digits is what confirms them.
GOLDEN = {
    "gpt2": (
        {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257},
        124_439_808,
    ),
    "opt-125m": (
        {"model_type": "opt", "hidden_size": 768, "ffn_dim": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
         "vocab_size": 50272, "max_position_embeddings": 2048, "word_embed_proj_dim": 768},
        125_239_296,
    ),
    "pythia-2.8b": (
        {"model_type": "gpt_neox", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 32,
         "num_attention_heads": 32, "vocab_size": 50304, "max_position_embeddings": 2048, "rotary_pct": 0.25},
        2_775_208_960,
    ),
    "phi-2": (
        {"model_type": "phi", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 32,
         "num_attention_heads": 32, "vocab_size": 51200, "max_position_embeddings": 2048, "partial_rotary_factor": 0.4},
        2_779_683_840,
    ),
    "bloom-176b": (
        {"model_type": "bloom", "n_embed": 14336, "n_layer": 70, "num_attention_heads": 112, "vocab_size": 250880,
         "seq_length": 2048, "apply_residual_connection_post_layernorm": False},
        176_247_271_424,
    ),
    "roberta-base": (
        {"model_type": "roberta", "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
         "num_attention_heads": 12, "vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1},
        124_645_632,
    ),
    "olmoe-1b-7b": (
        {"model_type": "olmoe", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 16,
         "num_key_value_heads": 16, "intermediate_size": 1024, "num_experts": 64, "num_experts_per_tok": 8,
         "vocab_size": 50304, "max_position_embeddings": 4096},
        6_919_161_856,
    ),
    "starcoder2-3b": (
        {"model_type": "starcoder2", "hidden_size": 3072, "num_hidden_layers": 30, "num_attention_heads": 24,
         "num_key_value_heads": 2, "intermediate_size": 12288, "vocab_size": 49152, "max_position_embeddings": 16384,
         "sliding_window": 4096, "use_bias": True},
        3_030_371_328,
    ),
    "t5-base": (
        {"model_type": "t5", "d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12,
         "vocab_size": 32128},
        222_903_552,
    ),
    "flan-t5-base": (
        {"model_type": "t5", "d_model": 768, "d_kv": 64, "d_ff": 2048, "num_layers": 12, "num_heads": 12,
         "vocab_size": 32128, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        247_577_856,
    ),
    "mamba2-2.7b": (
        {"model_type": "mamba2", "hidden_size": 2560, "num_hidden_layers": 64, "num_heads": 80, "head_dim": 64,
         "n_groups": 1, "state_size": 128, "vocab_size": 50288, "tie_word_embeddings": True},
        2_702_599_680,
    ),
    "qwen1.5-moe-a2.7b": (
        {"model_type": "qwen2_moe", "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 16,
         "num_key_value_heads": 16, "intermediate_size": 5632, "moe_intermediate_size": 1408,
         "shared_expert_intermediate_size": 5632, "num_experts": 60, "num_experts_per_tok": 4, "vocab_size": 151936,
         "max_position_embeddings": 8192},
        14_315_784_192,
    ),
    "olmo-2-7b": (
        {"model_type": "olmo2", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
         "num_key_value_heads": 32, "intermediate_size": 11008, "vocab_size": 100352, "max_position_embeddings": 4096},
        7_298_617_344,
    ),
    "qwen3-next-80b-a3b": (
        {"model_type": "qwen3_next", "hidden_size": 2048, "num_hidden_layers": 48, "intermediate_size": 5120,
         "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "vocab_size": 151936,
         "max_position_embeddings": 262144, "partial_rotary_factor": 0.25, "linear_num_key_heads": 16,
         "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "num_experts": 512,
         "num_experts_per_tok": 10, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512},
        79_674_391_296,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GOLDEN)
def test_other_families_have_the_published_number_of_parameters(name):
    config, published = GOLDEN[name]
    assert lower(read_network(config, name)).n_parameters == published


# Totals and active counts with embedding as the model cards and names give them, to two or three digits; the sizes
# are those of the published files in ai-dynamo/aiconfigurator `model_configs`, commit 095f58a5, Apache-2.0.
ROUNDED = {
    "nemotron-3-nano-30b-a3b": (
        {"model_type": "nemotron_h", "hidden_size": 2688, "num_hidden_layers": 52,
         "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", "num_attention_heads": 32,
         "num_key_value_heads": 2, "head_dim": 128, "mamba_num_heads": 64, "mamba_head_dim": 64, "n_groups": 8,
         "ssm_state_size": 128, "intermediate_size": 1856, "moe_intermediate_size": 1856, "n_routed_experts": 128,
         "num_experts_per_tok": 6, "n_shared_experts": 1, "moe_shared_expert_intermediate_size": 3712,
         "vocab_size": 131072, "max_position_embeddings": 262144},
        31.6e9, 3.6e9,
    ),
    "qwen3-coder-480b-a35b": (
        {"model_type": "qwen3_moe", "hidden_size": 6144, "num_hidden_layers": 62, "num_attention_heads": 96,
         "num_key_value_heads": 8, "head_dim": 128, "moe_intermediate_size": 2560, "num_experts": 160,
         "num_experts_per_tok": 8, "vocab_size": 151936, "max_position_embeddings": 262144, "qkv_bias": False,
         "use_qk_norm": True, "shared_expert_intermediate_size": 0},
        480e9, 35e9,
    ),
    "minimax-m2.5": (
        {"model_type": "minimax_m2", "hidden_size": 3072, "num_hidden_layers": 62, "num_attention_heads": 48,
         "num_key_value_heads": 8, "head_dim": 128, "rotary_dim": 64, "intermediate_size": 1536,
         "num_local_experts": 256, "num_experts_per_tok": 8, "vocab_size": 200064, "max_position_embeddings": 196608,
         "use_qk_norm": True, "qk_norm_type": "per_layer", "use_routing_bias": True, "shared_intermediate_size": 0},
        229e9, 11e9,
    ),
    "qwen3.5-35b-a3b": (
        {"model_type": "qwen3_5_moe_text", "hidden_size": 2048, "num_hidden_layers": 40, "num_attention_heads": 16,
         "num_key_value_heads": 2, "head_dim": 256, "attn_output_gate": True, "linear_num_key_heads": 16,
         "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "num_experts": 256,
         "num_experts_per_tok": 8, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
         "vocab_size": 248320, "max_position_embeddings": 262144},
        35e9, 3.5e9,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ROUNDED)
def test_hybrids_and_experts_have_the_size_of_their_model_cards(name):
    config, total, active = ROUNDED[name]
    lowered = lower(read_network(config, name))
    # Half a unit of the second digit of the names.
    assert lowered.n_parameters == pytest.approx(total, rel=0.015)
    assert lowered.n_active_parameters + lowered.embedding_parameters == pytest.approx(active, rel=0.015)


def test_glm_4_5_air_has_106_billion_parameters_of_which_a_token_meets_12_without_tables():
    config = {"model_type": "glm4_moe", "hidden_size": 4096, "num_hidden_layers": 46, "num_attention_heads": 96,
        "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 10944, "moe_intermediate_size": 1408,
        "n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 1,
        "vocab_size": 151552, "max_position_embeddings": 131072, "attention_bias": True, "use_qk_norm": False,
        "partial_rotary_factor": 0.5}  # fmt: skip
    lowered = lower(read_network(config, "glm-4.5-air"))
    # Its report (arXiv 2508.06471, table 1) leaves embedding and output head out of the active count.
    assert lowered.n_parameters == pytest.approx(106e9, rel=0.01)
    head = 151552 * 4096
    assert lowered.n_active_parameters - head == pytest.approx(12e9, rel=0.02)


# Elements of one token: 61 layers of a 576-element latent; 2 x kv heads x head size x layers elsewhere.
KV_ELEMENTS = {
    "deepseek-v3": 61 * 576,
    "kimi-k2": 61 * 576,
    "llama-3.1-70b": 80 * 2 * 8 * 128,
    "llama-2-7b": 32 * 2 * 32 * 128,
    "falcon-7b": 32 * 2 * 64,
    "gpt-oss-120b": 36 * 2 * 8 * 64,
    "gemma-3-27b": 62 * 2 * 16 * 128,
    "bert-base": 0,
    "vit-b-16": 0,
}


@pytest.mark.parametrize("name", KV_ELEMENTS)
def test_the_cache_keeps_the_right_number_of_elements(name):
    assert kv_elements_per_token(lower(load_network(name))) == KV_ELEMENTS[name]


def test_latent_attention_decodes_over_the_latent_and_prefills_over_heads():
    (attention,) = lower(load_network("deepseek-v3")).attentions
    assert attention.shared_latent
    assert (attention.head_dim_qk, attention.head_dim_v) == (192, 128)
    assert (attention.kv_elements_per_token, attention.latent_dim_v) == (576, 512)


def test_sliding_and_full_layers_are_separate_operators():
    counts = {a.window_tokens: a.count for a in lower(load_network("gpt-oss-120b")).attentions}
    assert counts == {128: 18.0, 0: 18.0}


@pytest.mark.parametrize(
    ("name", "all_reduces"), [("llama-3.1-8b", 2.0), ("gpt-j-6b", 1.0), ("falcon-40b", 1.0), ("gpt-3-175b", 2.0)]
)
def test_a_parallel_residual_needs_one_all_reduce_per_layer(name, all_reduces):
    assert lower(load_network(name)).all_reduces_per_layer == all_reduces


def test_a_recurrent_network_has_no_cache_but_a_state_of_constant_size():
    config, _ = GOLDEN["mamba2-2.7b"]
    lowered = lower(read_network(config, "x"))
    # State of 80 heads x 64 x 128, and four columns of the convolved 5120 + 2 x 128 channels.
    assert [state.state_elements for state in lowered.states] == [80 * 64 * 128 + 4 * 5376]
    assert lowered.attentions == ()
    assert lowered.all_reduces_per_layer == 1.0


def test_a_hybrid_caches_only_in_its_attention_layers():
    config, _ = GOLDEN["qwen3-next-80b-a3b"]
    lowered = lower(read_network(config, "x"))
    assert kv_elements_per_token(lowered) == 12 * 2 * 2 * 256
    assert sum(state.count for state in lowered.states) == 36


def test_an_encoder_decoder_runs_its_encoder_over_the_source():
    lowered = lower(read_network(GOLDEN["t5-base"][0], "x"))
    rows = {(linear.module, linear.rows): linear.count for linear in lowered.linears}
    assert rows["attention_qkv", "source"] == rows["attention_qkv", "tokens"] == 12
    assert rows["cross_attention_kv", "source"] == rows["cross_attention_q", "tokens"] == 12
    assert lowered.kind == "encoder_decoder"
    assert {(a.rows, a.over, a.causal) for a in lowered.attentions} == {
        ("source", "source", False), ("tokens", "context", True), ("tokens", "source", False)
    }  # fmt: skip


def test_a_tied_table_is_stored_once_and_used_as_head():
    lowered = lower(load_network("gemma-2-9b"))
    elements = weight_elements_per_module(lowered)
    assert elements["output_head"] == 256000 * 3584
    assert elements["embedding"] == 0


def test_modules_come_from_the_fixed_vocabulary():
    vocabulary = {
        "attention_qkv", "attention_output", "attention_q_a", "attention_q_b", "attention_kv_a", "attention_kv_b",
        "ffn_up", "ffn_down", "expert_up", "expert_down", "shared_expert_up", "shared_expert_down", "moe_gate",
        "output_head", "patch_embedding", "state_in", "state_out", "cross_attention_q", "cross_attention_kv",
        "cross_attention_output",
    }  # fmt: skip
    networks = [load_network(name) for name in network_names()]
    networks += [read_network(config, name) for name, (config, _) in GOLDEN.items()]
    lowered = [lower(network) for network in networks]
    assert {linear.module for each in lowered for linear in each.linears} <= vocabulary
    operations = {vector.op for each in lowered for vector in each.vectors}
    assert operations <= {"norm", "rope", "activation", "residual", "embedding", "softmax", "router"}


@settings(max_examples=25, deadline=None)
@given(
    layers=st.integers(1, 12), head_dim=st.sampled_from([32, 64]), kv_heads=st.sampled_from([1, 2, 4]),
    groups=st.integers(1, 4), width=st.integers(1, 4096), vocabulary=st.integers(1, 1000), tied=st.booleans(),
)  # fmt: skip
def test_any_llama_has_the_parameters_of_the_closed_form(layers, head_dim, kv_heads, groups, width, vocabulary, tied):
    heads = kv_heads * groups
    hidden = heads * head_dim
    config = {
        "model_type": "llama", "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "intermediate_size": width, "vocab_size": vocabulary,
        "max_position_embeddings": 128, "tie_word_embeddings": tied,
    }  # fmt: skip
    attention = hidden * (heads + 2 * kv_heads) * head_dim + hidden * hidden
    total = layers * (attention + 3 * hidden * width + 2 * hidden) + hidden + (2 - tied) * vocabulary * hidden
    assert lower(read_network(config, "x")).n_parameters == total
