"""Decoders with multi-head latent attention and fine-grained experts: DeepSeek-V2, V3, R1, Kimi K2."""

from __future__ import annotations

from models.architectures.checkpoint import Checkpoint
from models.architectures.decoder import FeedForwards, read_routing
from models.architectures.fields import CONTEXT_LIMIT, LAYER_LIMIT, Fields
from models.architectures.network import Attention, Experts, FeedForward, Latent, Layer, Network


def read_latent_decoder(fields: Fields, name: str, checkpoint: Checkpoint) -> Network:
    """Return a DeepSeek network; its multi-token-prediction layers are left out."""
    n_layers = fields.size("num_hidden_layers", maximum=LAYER_LIMIT)
    attention = _latent_attention(fields)
    return Network(
        name=name,
        model_type=fields.text("model_type"),
        kind="decoder",
        hidden_size=fields.size("hidden_size"),
        vocabulary_size=fields.size("vocab_size"),
        max_context_tokens=fields.size("max_position_embeddings", maximum=CONTEXT_LIMIT),
        layers=tuple(Layer(attention, part) for part in first_dense_then_experts(fields, n_layers)),
        checkpoint=checkpoint,
        tied_embeddings=fields.flag("tie_word_embeddings", False),
    )


def _latent_attention(fields: Fields) -> Attention:
    n_heads = fields.size("num_attention_heads")
    fields.size("num_key_value_heads", default=n_heads)
    latent = Latent(
        q_rank=fields.size("q_lora_rank", default=0, minimum=0),
        kv_rank=fields.size("kv_lora_rank"),
        nope_dim=fields.size("qk_nope_head_dim"),
        rope_dim=fields.size("qk_rope_head_dim"),
    )
    for key in ("head_dim", "qk_head_dim"):
        if fields.has(key):
            fields.size(key)
    bias = fields.flag("attention_bias", False)
    return Attention(
        n_heads, n_heads, latent.nope_dim + latent.rope_dim, fields.size("v_head_dim"),
        rotary_dim=latent.rope_dim, qkv_bias=bias, output_bias=bias, latent=latent,
    )  # fmt: skip


def first_dense_then_experts(fields: Fields, n_layers: int) -> FeedForwards:
    """Dense in the first `first_k_dense_replace` layers, then routed and shared experts (DeepSeek, GLM-4.5)."""
    dense_part = FeedForward(fields.size("intermediate_size"))
    if not fields.has("n_routed_experts"):
        return (dense_part,) * n_layers
    n_experts, top_k = read_routing(fields)
    width = fields.size("moe_intermediate_size")
    n_shared = fields.size("n_shared_experts", default=0, minimum=0, maximum=2**16)
    has_correction = fields.text("topk_method", default="noaux_tc" if _corrects(fields) else "") == "noaux_tc"
    experts = Experts(n_experts, top_k, width, router_bias=has_correction, shared_intermediate_size=n_shared * width)
    first, step = fields.size("first_k_dense_replace", default=0, minimum=0), fields.size("moe_layer_freq", default=1)
    return tuple(experts if layer >= first and layer % step == 0 else dense_part for layer in range(n_layers))


def _corrects(fields: Fields) -> bool:
    """Whether the family balances experts with a learned correction of the router (all but V2)."""
    return fields.text("model_type") != "deepseek_v2"
