"""Decoders with rotary positions, RMS norms and gated feed-forward parts, dense and with experts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from models.architectures.checkpoint import Checkpoint
from models.architectures.fields import CONTEXT_LIMIT, LAYER_LIMIT, Fields, shown
from models.architectures.network import Attention, Experts, FeedForward, Layer, Network

FeedForwards = tuple[FeedForward | Experts, ...]
Windows = tuple[int, ...]


@dataclass(frozen=True)
class Traits:
    """What tells one family of gated decoders from another; keys of the file override the defaults here."""

    windows: Callable[[Fields, int], Windows]
    feed_forwards: Callable[[Fields, int], FeedForwards]
    qkv_bias: bool = False
    output_bias: Literal["same", "never"] = "same"
    qk_norm: Literal["none", "unweighted", "head", "width"] = "none"
    sinks: bool = False
    chunked: bool = False
    n_norms: int = 2
    tied_embeddings: bool = False
    default_kv_heads: int = 0
    """Key and value heads where the file has none (0: as many as heads)."""
    default_head_dim: int = 0
    """Size of a head where the file has none (0: hidden size over heads)."""
    default_heads: int | None = None
    default_vocabulary: int | None = None


def read_gated_decoder(fields: Fields, name: str, checkpoint: Checkpoint, traits: Traits) -> Network:
    """Return a network of the families that differ from Llama only by `traits`."""
    n_layers = fields.size("num_hidden_layers", maximum=LAYER_LIMIT)
    hidden = fields.size("hidden_size")
    attention = read_attention(fields, hidden, traits)
    windows, parts = traits.windows(fields, n_layers), traits.feed_forwards(fields, n_layers)
    layers = tuple(
        Layer(attention_with_window(attention, window, traits.chunked), part, n_norms=traits.n_norms)
        for window, part in zip(windows, parts, strict=True)
    )
    return Network(
        name=name,
        model_type=fields.text("model_type", default=""),
        kind="decoder",
        hidden_size=hidden,
        vocabulary_size=fields.size("vocab_size", default=traits.default_vocabulary),
        max_context_tokens=fields.size("max_position_embeddings", maximum=CONTEXT_LIMIT),
        layers=layers,
        checkpoint=checkpoint,
        tied_embeddings=fields.flag("tie_word_embeddings", traits.tied_embeddings),
    )


def read_attention(fields: Fields, hidden: int, traits: Traits) -> Attention:
    """Return the attention of a layer that sees the whole context."""
    n_heads = fields.size("num_attention_heads", default=traits.default_heads)
    n_kv_heads = fields.size("num_key_value_heads", default=traits.default_kv_heads or n_heads)
    require_divides(fields, "num_key_value_heads", n_kv_heads, "num_attention_heads", n_heads)
    head_dim = read_head_dim(fields, hidden, n_heads, traits.default_head_dim)
    bias = fields.flag(fields.first("attention_bias", "qkv_bias"), traits.qkv_bias)
    return Attention(
        n_heads, n_kv_heads, head_dim, head_dim,
        rotary_dim=read_rotary_dim(fields, head_dim),
        qkv_bias=bias, output_bias=bias and traits.output_bias == "same",
        qk_norm=_read_qk_norm(fields, traits), sinks=traits.sinks,
    )  # fmt: skip


def read_rotary_dim(fields: Fields, head_dim: int) -> int:
    """Return how many elements of a head are rotated, from any of the keys that say so."""
    nested = fields.object("rope_parameters") if fields.has("rope_parameters") else None
    default = nested.fraction("partial_rotary_factor", 1.0) if nested else 1.0
    part = int(head_dim * fields.fraction("partial_rotary_factor", default))
    return fields.size("rotary_dim", default=part, minimum=0, maximum=head_dim)


def _read_qk_norm(fields: Fields, traits: Traits) -> Literal["none", "unweighted", "head", "width"]:
    if not fields.flag("use_qk_norm", traits.qk_norm != "none"):
        return "none"
    if traits.qk_norm == "none":
        raise ValueError(f"{fields.path}.use_qk_norm must be false for this family, got true")
    return traits.qk_norm


def read_head_dim(fields: Fields, hidden: int, n_heads: int, default: int = 0) -> int:
    """Return the size of one head: its key, the default of the family, or hidden size over heads."""
    if fields.has("head_dim") or default:
        return fields.size("head_dim", default=default)
    require_divides(fields, "num_attention_heads", n_heads, "hidden_size", hidden)
    return hidden // n_heads


def require_divides(fields: Fields, key: str, divisor: int, other_key: str, value: int) -> None:
    """Refuse a size that does not divide another."""
    if value % divisor:
        raise ValueError(f"{fields.path}.{key} must divide {other_key} ({value}), got {divisor}")


def attention_with_window(attention: Attention, window_tokens: int, chunked: bool = False) -> Attention:
    """Return the attention limited to a window (0: not limited); beside chunks, layers without limit do not rotate."""
    if chunked and not window_tokens:
        return replace(attention, rotary_dim=0)
    return replace(attention, window_tokens=window_tokens, chunked=chunked)


def pattern_of_layers(fields: Fields, n_layers: int, kinds: tuple[str, ...]) -> list[str]:
    """Return `layer_types` where the file has it, each entry one of `kinds`; empty where it has not."""
    types = fields.items("layer_types", n_layers) if fields.has("layer_types") else []
    for index, kind in enumerate(types):
        if kind not in kinds:
            raise ValueError(f"{fields.path}.layer_types[{index}] must be one of {', '.join(kinds)}, got {shown(kind)}")
    return types


def windows_from_types(fields: Fields, n_layers: int, window: int, default: Callable[[int], bool]) -> Windows:
    """Return one window per layer, sliding where `layer_types` says so, else where `default(layer)` does."""
    types = pattern_of_layers(fields, n_layers, ("full_attention", "sliding_attention"))
    slides = [kind == "sliding_attention" for kind in types] or [default(layer) for layer in range(n_layers)]
    return tuple(window if slide else 0 for slide in slides)


def sliding_if_given(fields: Fields, n_layers: int) -> Windows:
    """Every layer slides where `sliding_window` is a number (Mistral, Mixtral, Phi-3)."""
    window = _window(fields)
    return windows_from_types(fields, n_layers, window, lambda layer: True)


def sliding_if_used(fields: Fields, n_layers: int) -> Windows:
    """Layers from `max_window_layers` on slide where `use_sliding_window` is set (Qwen)."""
    window = _window(fields)
    first = fields.size("max_window_layers", default=0, minimum=0)
    used = fields.flag("use_sliding_window", False)
    return windows_from_types(fields, n_layers, window if used else 0, lambda layer: layer >= first)


def full_only(fields: Fields, n_layers: int) -> Windows:
    """No layer slides (Llama)."""
    pattern_of_layers(fields, n_layers, ("full_attention",))
    for index, kind in enumerate(fields.items("attn_type_list")):
        if kind != 1:
            raise ValueError(f"{fields.path}.attn_type_list[{index}] must be 1, full attention, got {shown(kind)}")
    return (0,) * n_layers


def alternating(period: int, default_window: int) -> Callable[[Fields, int], Windows]:
    """Every `period`-th layer sees the whole context, the others a window (Gemma 2 and 3, gpt-oss)."""

    def windows(fields: Fields, n_layers: int) -> Windows:
        every = fields.size("sliding_window_pattern", "_sliding_window_pattern", default=period)
        window = _window(fields) or default_window
        return windows_from_types(fields, n_layers, window, lambda layer: (layer + 1) % every > 0)

    return windows


def chunked_but_every_fourth(fields: Fields, n_layers: int) -> Windows:
    """Layers with rotary positions look within a chunk, those without (every fourth) everywhere (Llama 4)."""
    chunk = fields.size("attention_chunk_size", default=8192, maximum=CONTEXT_LIMIT)
    every = fields.size("no_rope_layer_interval", default=4)
    types = pattern_of_layers(fields, n_layers, ("full_attention", "chunked_attention"))
    rotary = fields.items("no_rope_layers", n_layers) if fields.raw("no_rope_layers") else []
    if types:
        return tuple(chunk if kind == "chunked_attention" else 0 for kind in types)
    for index, flag in enumerate(rotary):
        if flag not in (0, 1):
            raise ValueError(f"{fields.path}.no_rope_layers[{index}] must be 0 or 1, got {shown(flag)}")
    return tuple(chunk if (rotary[i] if rotary else (i + 1) % every) else 0 for i in range(n_layers))


def dense(fields: Fields, n_layers: int) -> FeedForwards:
    """The same gated part in every layer."""
    part = FeedForward(fields.size("intermediate_size"), bias=fields.flag("mlp_bias", False))
    return (part,) * n_layers


def experts_with_routing_bias(fields: Fields, n_layers: int) -> FeedForwards:
    """Experts of `intermediate_size` in every layer with a learned correction of the router (MiniMax M2)."""
    n_experts, top_k = read_routing(fields)
    part = Experts(
        n_experts, top_k, fields.size("intermediate_size"), router_bias=fields.flag("use_routing_bias", False),
        shared_intermediate_size=fields.size("shared_intermediate_size", default=0, minimum=0),
    )  # fmt: skip
    return (part,) * n_layers


def experts_everywhere(bias: bool) -> Callable[[Fields, int], FeedForwards]:
    """Experts of `intermediate_size` in every layer (Mixtral; gpt-oss with biases)."""

    def feed_forwards(fields: Fields, n_layers: int) -> FeedForwards:
        n_experts, top_k = read_routing(fields)
        part = Experts(n_experts, top_k, fields.size("intermediate_size"), bias=bias, router_bias=bias)
        return (part,) * n_layers

    return feed_forwards


def sparse_steps(fields: Fields, n_layers: int) -> FeedForwards:
    """Experts in every `decoder_sparse_step`-th layer that `mlp_only_layers` does not name (Qwen)."""
    n_experts, top_k = read_routing(fields)
    step = fields.size("decoder_sparse_step", default=1)
    only_dense = read_layer_numbers(fields, "mlp_only_layers", n_layers)
    shared = fields.size("shared_expert_intermediate_size", default=0, minimum=0)
    experts = Experts(
        n_experts, top_k, fields.size("moe_intermediate_size"),
        shared_intermediate_size=shared, shared_gate=shared > 0,
    )  # fmt: skip
    dense_part = FeedForward(fields.size("intermediate_size", default=1))
    sparse = [layer not in only_dense and (layer + 1) % step == 0 for layer in range(n_layers)]
    if not all(sparse) and not fields.has("intermediate_size"):
        raise ValueError(f"{fields.path}.intermediate_size is missing, the dense layers need it")
    return tuple(experts if is_sparse else dense_part for is_sparse in sparse)


def interleaved(fields: Fields, n_layers: int) -> FeedForwards:
    """Experts with one shared expert in every `interleave_moe_layer_step`-th layer (Llama 4)."""
    n_experts, top_k = read_routing(fields)
    width = fields.size("intermediate_size")
    step = fields.size("interleave_moe_layer_step", default=1)
    named = read_layer_numbers(fields, "moe_layers", n_layers)
    experts = Experts(n_experts, top_k, width, shared_intermediate_size=width)
    sparse = [layer in named if named else (layer + 1) % step == 0 for layer in range(n_layers)]
    dense_part = FeedForward(fields.size("intermediate_size_mlp", default=1 if all(sparse) else None))
    return tuple(experts if is_sparse else dense_part for is_sparse in sparse)


def read_layer_numbers(fields: Fields, key: str, n_layers: int) -> frozenset[int]:
    """Return a list of layers, counted from 0."""
    numbers = fields.items(key)
    for index, number in enumerate(numbers):
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < n_layers:
            rule = f"must be a layer from 0 to {n_layers - 1}"
            raise ValueError(f"{fields.path}.{key}[{index}] {rule}, got {shown(number)}")
    return frozenset(numbers)


def read_routing(fields: Fields) -> tuple[int, int]:
    """Return the number of experts and how many of them a token meets."""
    n_experts = fields.size("num_local_experts", "num_experts", "n_routed_experts", maximum=2**16)
    top_k = fields.size("num_experts_per_tok", "experts_per_token", maximum=2**16)
    if top_k > n_experts:
        raise ValueError(
            f"{fields.path}.num_experts_per_tok must be at most {n_experts}, the number of experts, got {top_k}"
        )
    return n_experts, top_k


def _window(fields: Fields) -> int:
    return fields.size("sliding_window", default=0, minimum=0, maximum=CONTEXT_LIMIT)


LLAMA = Traits(full_only, dense)

TRAITS: dict[str, Traits] = {
    "llama": LLAMA,
    "mistral": Traits(sliding_if_given, dense),
    "ministral": Traits(sliding_if_given, dense),
    "phi3": Traits(sliding_if_given, dense),
    "qwen2": Traits(sliding_if_used, dense, qkv_bias=True, output_bias="never"),
    "qwen3": Traits(sliding_if_used, dense, qk_norm="head", default_head_dim=128),
    "olmo2": Traits(full_only, dense, qk_norm="width"),
    "gemma": Traits(full_only, dense, default_head_dim=256, tied_embeddings=True),
    "gemma2": Traits(alternating(2, 4096), dense, n_norms=4, default_head_dim=256, tied_embeddings=True),
    "gemma3_text": Traits(
        alternating(6, 4096), dense, n_norms=4, qk_norm="head", default_head_dim=256, tied_embeddings=True,
        default_kv_heads=4, default_heads=8, default_vocabulary=262208,
    ),
    "mixtral": Traits(sliding_if_given, experts_everywhere(bias=False)),
    "qwen2_moe": Traits(sliding_if_used, sparse_steps, qkv_bias=True, output_bias="never"),
    "qwen3_moe": Traits(sliding_if_used, sparse_steps, qk_norm="head"),
    "gpt_oss": Traits(
        alternating(2, 128), experts_everywhere(bias=True), qkv_bias=True, sinks=True, default_head_dim=64
    ),
    "llama4_text": Traits(
        chunked_but_every_fourth, interleaved, qk_norm="unweighted", chunked=True, default_head_dim=128
    ),
}  # fmt: skip
TRAITS["granite"] = LLAMA
TRAITS["mimo"] = TRAITS["qwen2"]
TRAITS["olmoe"] = Traits(full_only, experts_everywhere(bias=False), qk_norm="width")
TRAITS["qwen2_vl"] = TRAITS["qwen2_vl_text"] = TRAITS["qwen2_5_vl"] = TRAITS["qwen2_5_vl_text"] = TRAITS["qwen2"]
TRAITS["qwen3_vl_text"] = TRAITS["qwen3"]
TRAITS["qwen3_vl_moe_text"] = TRAITS["qwen3_moe"]
TRAITS["minimax_m2"] = Traits(full_only, experts_with_routing_bias, qk_norm="width")
TRAITS["gemma3"] = TRAITS["gemma3_text"]
TRAITS["llama4"] = TRAITS["llama4_text"]
