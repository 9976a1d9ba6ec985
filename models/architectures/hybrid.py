"""Networks with recurrent mixers of constant state: Mamba-2, Nemotron-H, Qwen3-Next."""

from __future__ import annotations

from models.architectures.checkpoint import Checkpoint
from models.architectures.decoder import (
    LLAMA,
    Traits,
    dense,
    full_only,
    pattern_of_layers,
    read_attention,
    read_routing,
    sparse_steps,
)
from models.architectures.fields import CONTEXT_LIMIT, LAYER_LIMIT, Fields, shown
from models.architectures.network import Attention, Experts, FeedForward, Layer, Network, StateMixer
from models.checks import require_known

MAMBA2_FLOP_PER_STATE_ELEMENT = 5.0
"""Decay (1), outer product of input and B (1) and its addition (1), multiply-add with C (2): eq. 16 of [1]."""

DELTA_FLOP_PER_STATE_ELEMENT = 7.0
"""Decay (1), read of the old value (2), rank-one correction (2), read with the query (2): eq. 10 of [2]."""

UNBOUNDED_CONTEXT_TOKENS = 2**20
"""A recurrent network has no longest context; the context it is judged at ends here."""


def mamba2_mixer(
    n_heads: int, head_dim: int, n_groups: int, state_dim: int, kernel: int, bias: bool, conv_bias: bool
) -> StateMixer:
    """
    Return the Mamba-2 mixer in its recurrent form.

    The chunked form used for prefill trades some of these operations for GEMMs of the chunk length; its result and,
    within a factor of two, its operations are those counted here.

    Parameters
    ----------
    n_heads, head_dim, n_groups, state_dim, kernel : int
        Sizes of the mixer; the inner width is n_heads times head_dim. [elements]

    References
    ----------
    .. [1] T. Dao, A. Gu, "Transformers are SSMs", 2024, arXiv:2405.21060.
    """
    inner = n_heads * head_dim
    convolved = inner + 2 * n_groups * state_dim
    return StateMixer(
        op="mamba2",
        projection_out=inner + convolved + n_heads,
        inner=inner,
        state_elements=inner * state_dim + convolved * kernel,
        flop_per_token=MAMBA2_FLOP_PER_STATE_ELEMENT * inner * state_dim + 2.0 * convolved * kernel,
        small_parameters=convolved * (kernel + conv_bias) + 3 * n_heads + inner,
        bias=bias,
    )


def gated_delta_mixer(n_key_heads: int, n_value_heads: int, key_dim: int, value_dim: int, kernel: int) -> StateMixer:
    """
    Return the gated delta net in its recurrent form: one key_dim x value_dim state per value head.

    References
    ----------
    .. [2] S. Yang, J. Kautz, A. Hatamizadeh, "Gated Delta Networks", 2024, arXiv:2412.06464.
    """
    convolved = 2 * n_key_heads * key_dim + n_value_heads * value_dim
    state = n_value_heads * key_dim * value_dim
    return StateMixer(
        op="gated_delta",
        projection_out=convolved + n_value_heads * value_dim + 2 * n_value_heads,
        inner=n_value_heads * value_dim,
        state_elements=state + convolved * kernel,
        flop_per_token=DELTA_FLOP_PER_STATE_ELEMENT * state + 2.0 * convolved * kernel,
        small_parameters=convolved * kernel + 2 * n_value_heads + value_dim,
    )


def read_mamba2(fields: Fields, name: str, checkpoint: Checkpoint) -> Network:
    """Mamba-2: every layer is one mixer behind one norm."""
    hidden = fields.size("hidden_size")
    n_heads, head_dim = fields.size("num_heads"), fields.size("head_dim", default=64)
    expand = fields.size("expand", default=2)
    if n_heads * head_dim != expand * hidden:
        raise ValueError(f"{fields.path}.num_heads times head_dim must be expand times hidden_size ({expand * hidden})")
    mixer = mamba2_mixer(
        n_heads, head_dim, fields.size("n_groups", default=8), fields.size("state_size", default=128),
        fields.size("conv_kernel", default=4), fields.flag("use_bias", False), fields.flag("use_conv_bias", True),
    )  # fmt: skip
    return Network(
        name, "mamba2", "decoder", hidden, fields.size("vocab_size"),
        fields.size("max_position_embeddings", default=UNBOUNDED_CONTEXT_TOKENS, maximum=CONTEXT_LIMIT),
        (Layer(mixer, None, n_norms=1),) * fields.size("num_hidden_layers", maximum=LAYER_LIMIT), checkpoint,
        tied_embeddings=fields.flag("tie_word_embeddings", False),
    )  # fmt: skip


def read_nemotron_h(fields: Fields, name: str, checkpoint: Checkpoint) -> Network:
    """Nemotron-H: each layer is one of a Mamba-2 mixer, an attention, a plain feed-forward part, or experts."""
    hidden, pattern = fields.size("hidden_size"), _nemotron_pattern(fields)
    mixer = mamba2_mixer(
        fields.size("mamba_num_heads"), fields.size("mamba_head_dim"), fields.size("n_groups"),
        fields.size("ssm_state_size"), fields.size("conv_kernel", default=4), fields.flag("mamba_proj_bias", False),
        fields.flag("use_conv_bias", True),
    )  # fmt: skip
    fields.size("expand", default=2), fields.flag("use_bias", False), fields.text("mamba_hidden_act", default="silu")
    head_dim = fields.size("attention_head_dim", "head_dim", default=128)
    attention = read_attention(fields, hidden, Traits(full_only, LLAMA.feed_forwards, default_head_dim=head_dim))
    width, bias = fields.size("intermediate_size"), fields.flag("mlp_bias", False)
    fields.text("mlp_hidden_act", default="relu2")
    layers = {
        "M": Layer(mixer, None, n_norms=1),
        "*": Layer(attention, None, n_norms=1),
        "-": Layer(None, FeedForward(width, gated=False, bias=bias), n_norms=1),
        "E": Layer(None, _nemotron_experts(fields, bias), n_norms=1),
    }
    return Network(
        name, "nemotron_h", "decoder", hidden, fields.size("vocab_size"),
        fields.size("max_position_embeddings", maximum=CONTEXT_LIMIT), tuple(layers[letter] for letter in pattern),
        checkpoint, tied_embeddings=fields.flag("tie_word_embeddings", False),
    )  # fmt: skip


NEMOTRON_BLOCKS = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}


def _nemotron_pattern(fields: Fields) -> str:
    """One letter per layer, from `layers_block_type` or `hybrid_override_pattern`."""
    blocks = fields.items("layers_block_type")
    for index, block in enumerate(blocks):
        require_known(f"{fields.path}.layers_block_type[{index}]", block, NEMOTRON_BLOCKS)
    spelled = "".join(NEMOTRON_BLOCKS[block] for block in blocks)
    pattern = fields.text("hybrid_override_pattern", default=spelled or None)
    n_layers = fields.size("num_hidden_layers", default=len(pattern), maximum=LAYER_LIMIT)
    letters = set(NEMOTRON_BLOCKS.values()) - (set() if fields.has("n_routed_experts") else {"E"})
    if not pattern or len(pattern) != n_layers or set(pattern) - letters:
        raise ValueError(
            f"{fields.path}.hybrid_override_pattern must be {n_layers} letters of '{''.join(sorted(letters))}', "
            f"got {shown(pattern)}"
        )
    return pattern


def _nemotron_experts(fields: Fields, bias: bool) -> Experts | None:
    if not fields.has("n_routed_experts"):
        return None
    if fields.has("moe_latent_size"):
        raise ValueError(f"{fields.path}.moe_latent_size must be null: experts in a latent space are not understood")
    n_experts, top_k = read_routing(fields)
    shared = fields.size("n_shared_experts", default=0, minimum=0, maximum=2**16)
    shared_width = fields.size("moe_shared_expert_intermediate_size", default=0, minimum=0)
    return Experts(
        n_experts, top_k, fields.size("moe_intermediate_size"), gated=False, bias=bias, router_bias=True,
        shared_intermediate_size=shared * shared_width,
    )  # fmt: skip


def read_qwen3_next(fields: Fields, name: str, checkpoint: Checkpoint) -> Network:
    """Qwen3-Next and Qwen3.5: gated delta nets with a gated attention in every fourth layer; dense or experts."""
    hidden, n_layers = fields.size("hidden_size"), fields.size("num_hidden_layers", maximum=LAYER_LIMIT)
    every = fields.size("full_attention_interval", default=4)
    types = pattern_of_layers(fields, n_layers, ("linear_attention", "full_attention"))
    attends = [kind == "full_attention" for kind in types] or [(i + 1) % every == 0 for i in range(n_layers)]
    delta = gated_delta_mixer(
        fields.size("linear_num_key_heads"), fields.size("linear_num_value_heads"), fields.size("linear_key_head_dim"),
        fields.size("linear_value_head_dim"), fields.size("linear_conv_kernel_dim", default=4),
    )  # fmt: skip
    attention = _gated_attention(fields, hidden)
    parts = sparse_steps(fields, n_layers) if fields.has("num_experts") else dense(fields, n_layers)
    return Network(
        name, fields.text("model_type"), "decoder", hidden, fields.size("vocab_size"),
        fields.size("max_position_embeddings", maximum=CONTEXT_LIMIT),
        tuple(Layer(attention if full else delta, part) for full, part in zip(attends, parts, strict=True)),
        checkpoint, tied_embeddings=fields.flag("tie_word_embeddings", False),
    )  # fmt: skip


def _gated_attention(fields: Fields, hidden: int) -> Attention:
    traits = Traits(full_only, sparse_steps, qk_norm="head", default_head_dim=256)
    plain = read_attention(fields, hidden, traits)
    return Attention(
        plain.n_heads, plain.n_kv_heads, plain.head_dim_qk, plain.head_dim_v, plain.rotary_dim,
        qkv_bias=plain.qkv_bias, output_bias=plain.output_bias, qk_norm="head",
        output_gate=fields.flag("attn_output_gate", True),
    )  # fmt: skip
