"""Decoders with layer norm and plain feed-forward parts: GPT-2, GPT-J, NeoX, BLOOM, OPT, Falcon, Phi, StarCoder2."""

from __future__ import annotations

from models.architectures.checkpoint import Checkpoint
from models.architectures.decoder import attention_with_window, require_divides
from models.architectures.fields import CONTEXT_LIMIT, LAYER_LIMIT, Fields
from models.architectures.network import Attention, FeedForward, Layer, Network


def read_gpt2(fields: Fields, name: str, checkpoint: Checkpoint) -> Network:
    """GPT-2 and GPT-3: learned positions, biases everywhere, tied head."""
    hidden, n_heads, n_layers = _gpt_sizes(fields)
    positions = fields.size("n_positions", "max_position_embeddings", maximum=CONTEXT_LIMIT)
    attention = _attention(fields, hidden, n_heads, n_heads, bias=True)
    part = FeedForward(fields.size("n_inner", default=4 * hidden), gated=False, bias=True)
    return Network(
        name, "gpt2", "decoder", hidden, fields.size("vocab_size"), positions, (Layer(attention, part),) * n_layers,
        checkpoint, tied_embeddings=fields.flag("tie_word_embeddings", True), norm_parameters_per_element=2,
        position_rows=positions,
    )  # fmt: skip


def read_gptj(fields: Fields, name: str, checkpoint: Checkpoint) -> Network:
    """GPT-J: attention and feed-forward part side by side behind one norm, partial rotary positions."""
    hidden, n_heads, n_layers = _gpt_sizes(fields)
    rotary = fields.size("rotary_dim", default=64)
    attention = _attention(fields, hidden, n_heads, n_heads, bias=False, rotary_dim=rotary)
    part = FeedForward(fields.size("n_inner", default=4 * hidden), gated=False, bias=True)
    return Network(
        name, "gptj", "decoder", hidden, fields.size("vocab_size"),
        fields.size("n_positions", "max_position_embeddings", maximum=CONTEXT_LIMIT),
        (Layer(attention, part, n_norms=1),) * n_layers, checkpoint,
        tied_embeddings=fields.flag("tie_word_embeddings", False), norm_parameters_per_element=2,
        parallel_residual=True, head_bias=True,
    )  # fmt: skip


def read_gpt_neox(fields: Fields, name: str, checkpoint: Checkpoint) -> Network:
    """GPT-NeoX and Pythia: parallel residual behind two norms."""
    hidden, n_heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    bias = fields.flag("attention_bias", True)
    rotary = int(fields.fraction("rotary_pct", 0.25) * (hidden // n_heads))
    attention = _attention(fields, hidden, n_heads, n_heads, bias, rotary)
    part = FeedForward(fields.size("intermediate_size"), gated=False, bias=True)
    return Network(
        name, "gpt_neox", "decoder", hidden, fields.size("vocab_size"),
        fields.size("max_position_embeddings", maximum=CONTEXT_LIMIT),
        (Layer(attention, part),) * fields.size("num_hidden_layers", maximum=LAYER_LIMIT), checkpoint,
        tied_embeddings=fields.flag("tie_word_embeddings", False), norm_parameters_per_element=2,
        parallel_residual=fields.flag("use_parallel_residual", True),
    )  # fmt: skip


def read_bloom(fields: Fields, name: str, checkpoint: Checkpoint) -> Network:
    """BLOOM: ALiBi positions, a norm behind the embedding, biases everywhere, tied head."""
    hidden, n_heads, n_layers = _gpt_sizes(fields)
    part = FeedForward(4 * hidden, gated=False, bias=True)
    return Network(
        name, "bloom", "decoder", hidden, fields.size("vocab_size"),
        fields.size("seq_length", default=2048, maximum=CONTEXT_LIMIT),
        (Layer(_attention(fields, hidden, n_heads, n_heads, bias=True), part),) * n_layers, checkpoint,
        tied_embeddings=fields.flag("tie_word_embeddings", True), norm_parameters_per_element=2, n_final_norms=2,
    )  # fmt: skip


def read_starcoder2(fields: Fields, name: str, checkpoint: Checkpoint) -> Network:
    """StarCoder2: grouped key and value heads, rotary positions, biases, a sliding window, tied head."""
    hidden, n_heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    n_kv_heads, bias = fields.size("num_key_value_heads", default=2), fields.flag("use_bias", True)
    attention = _attention(fields, hidden, n_heads, n_kv_heads, bias, hidden // n_heads)
    window = fields.size("sliding_window", default=0, minimum=0, maximum=CONTEXT_LIMIT)
    fields.text("norm_type", default="layer_norm"), fields.text("mlp_type", default="default")
    part = FeedForward(fields.size("intermediate_size"), gated=False, bias=bias)
    return Network(
        name, "starcoder2", "decoder", hidden, fields.size("vocab_size"),
        fields.size("max_position_embeddings", maximum=CONTEXT_LIMIT),
        (Layer(attention_with_window(attention, window), part),)
        * fields.size("num_hidden_layers", maximum=LAYER_LIMIT), checkpoint,
        tied_embeddings=fields.flag("tie_word_embeddings", True), norm_parameters_per_element=2,
    )  # fmt: skip


def read_phi(fields: Fields, name: str, checkpoint: Checkpoint) -> Network:
    """Phi-1 and Phi-2: parallel residual behind one norm, partial rotary positions, biases everywhere."""
    hidden, n_heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    n_kv_heads = fields.size("num_key_value_heads", default=n_heads)
    if fields.flag("qk_layernorm", False):
        raise ValueError(f"{fields.path}.qk_layernorm must be false, got true")
    rotary = int(fields.fraction("partial_rotary_factor", 0.5) * (hidden // n_heads))
    attention = _attention(fields, hidden, n_heads, n_kv_heads, True, rotary)
    part = FeedForward(fields.size("intermediate_size"), gated=False, bias=True)
    return Network(
        name, "phi", "decoder", hidden, fields.size("vocab_size"),
        fields.size("max_position_embeddings", maximum=CONTEXT_LIMIT),
        (Layer(attention, part, n_norms=1),) * fields.size("num_hidden_layers", maximum=LAYER_LIMIT), checkpoint,
        tied_embeddings=fields.flag("tie_word_embeddings", False), norm_parameters_per_element=2,
        parallel_residual=True, head_bias=True,
    )  # fmt: skip


def read_opt(fields: Fields, name: str, checkpoint: Checkpoint) -> Network:
    """OPT: learned positions with two more rows than the context, biases everywhere, tied head."""
    hidden, n_heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    if fields.size("word_embed_proj_dim", default=hidden) != hidden:
        raise ValueError(f"{fields.path}.word_embed_proj_dim must be the hidden_size ({hidden})")
    before = fields.flag("do_layer_norm_before", True)
    final = before and not fields.flag("_remove_final_layer_norm", False)
    bias = fields.flag("enable_bias", True)
    positions = fields.size("max_position_embeddings", maximum=CONTEXT_LIMIT)
    part = FeedForward(fields.size("ffn_dim"), gated=False, bias=bias)
    layer = Layer(_attention(fields, hidden, n_heads, n_heads, bias), part)
    return Network(
        name, "opt", "decoder", hidden, fields.size("vocab_size"), positions,
        (layer,) * fields.size("num_hidden_layers", maximum=LAYER_LIMIT), checkpoint,
        tied_embeddings=fields.flag("tie_word_embeddings", True), norm_parameters_per_element=2,
        n_final_norms=int(final), position_rows=positions + 2,
    )  # fmt: skip


def read_falcon(fields: Fields, name: str, checkpoint: Checkpoint) -> Network:
    """Falcon: one shared or few key and value heads, parallel residual, no gate."""
    hidden = fields.size("hidden_size", "n_embed")
    n_heads = fields.size("num_attention_heads", "n_head")
    parallel = fields.flag("parallel_attn", True)
    renewed = fields.flag("new_decoder_architecture", False)
    bias = fields.flag("bias", False)
    n_kv_heads = _falcon_kv_heads(fields, n_heads, renewed)
    head_dim = hidden // n_heads
    rotary = 0 if fields.flag("alibi", False) else head_dim
    part = FeedForward(fields.size("ffn_hidden_size", default=4 * hidden), gated=False, bias=bias)
    n_norms = fields.size("num_ln_in_parallel_attn", default=2 if renewed else 1, maximum=2) if parallel else 2
    layer = Layer(_attention(fields, hidden, n_heads, n_kv_heads, bias, rotary), part, n_norms=n_norms)
    return Network(
        name, "falcon", "decoder", hidden, fields.size("vocab_size"),
        fields.size("max_position_embeddings", default=2048, maximum=CONTEXT_LIMIT),
        (layer,) * fields.size("num_hidden_layers", "n_layer", maximum=LAYER_LIMIT), checkpoint,
        tied_embeddings=fields.flag("tie_word_embeddings", True), norm_parameters_per_element=2,
        parallel_residual=parallel,
    )  # fmt: skip


def _falcon_kv_heads(fields: Fields, n_heads: int, renewed: bool) -> int:
    given = fields.size("num_kv_heads", "n_head_kv", default=n_heads)
    multi_query = fields.flag("multi_query", True)
    if renewed:
        return given
    return 1 if multi_query else n_heads


def _gpt_sizes(fields: Fields) -> tuple[int, int, int]:
    hidden = fields.size("n_embd", "hidden_size", "n_embed")
    n_heads = fields.size("n_head", "num_attention_heads")
    return hidden, n_heads, fields.size("n_layer", "num_hidden_layers", maximum=LAYER_LIMIT)


def _attention(
    fields: Fields, hidden: int, n_heads: int, n_kv_heads: int, bias: bool, rotary_dim: int = 0
) -> Attention:
    heads_key = fields.first("num_attention_heads", "n_head")
    require_divides(fields, heads_key, n_heads, fields.first("hidden_size", "n_embd", "n_embed"), hidden)
    kv_heads_key = fields.first("num_key_value_heads", "num_kv_heads", "n_head_kv")
    require_divides(fields, kv_heads_key, n_kv_heads, heads_key, n_heads)
    head_dim = hidden // n_heads
    return Attention(n_heads, n_kv_heads, head_dim, head_dim, rotary_dim, qkv_bias=bias, output_bias=bias)
