"""Lowers a network to the operators of one forward pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from models.architectures.checkpoint import bits_per_element, format_name
from models.architectures.lowered import (
    AttentionOperator,
    LinearOperator,
    LoweredNetwork,
    Rows,
    StateOperator,
    StoredModule,
    VectorOperator,
    active_parameters,
    bias_elements,
    matrix_elements,
)
from models.architectures.network import Attention, Experts, FeedForward, Latent, Layer, Network, StateMixer

MergedOperator = TypeVar("MergedOperator", LinearOperator, AttentionOperator, StateOperator, VectorOperator)

Operator = LinearOperator | AttentionOperator | StateOperator | VectorOperator

READ_WRITE = 2.0
"""One read and one write of each element."""

TWO_READS_WRITE = 3.0
"""Two operands read, one result written: residual addition, product of gate and up."""


def lower(network: Network) -> LoweredNetwork:
    """
    Return the operators of one forward pass, with parameter counts.

    Layers that are alike become one operator with a count. Parameters of the operators, of the tables and of all
    small vectors sum to the published total of the network.

    Examples
    --------
    >>> from models.architectures.config import load_network
    >>> f"{lower(load_network('llama-3.1-8b')).n_parameters:.0f}"
    '8030261248'
    """
    operators: list[Operator] = []
    other = _norm_parameters(network, network.n_final_norms)
    for layer, count in Counter(network.layers).items():
        operators += [replace(operator, count=operator.count * count) for operator in _layer_operators(network, layer)]
        other += count * _small_parameters(network, layer)
    operators += _edge_operators(network)
    linears = _merged([operator for operator in operators if isinstance(operator, LinearOperator)])
    other += sum(bias_elements(linear) for linear in linears)
    matrices = sum(matrix_elements(linear) for linear in linears)
    embedding = _embedding_parameters(network)
    return LoweredNetwork(
        name=network.name,
        linears=linears,
        attentions=_merged([operator for operator in operators if isinstance(operator, AttentionOperator)]),
        states=_merged([operator for operator in operators if isinstance(operator, StateOperator)]),
        vectors=_merged([operator for operator in operators if isinstance(operator, VectorOperator)]),
        n_layers=network.n_layers,
        hidden_size=network.hidden_size,
        vocabulary_size=network.vocabulary_size,
        max_context_tokens=network.max_context_tokens,
        all_reduces_per_layer=sum(_all_reduces(network, layer) for layer in network.layers) / network.n_layers,
        n_parameters=matrices + embedding + other,
        n_active_parameters=active_parameters(linears, other),
        embedding_parameters=embedding,
        other_parameters=other,
        kind=network.kind,
        stored=_stored(network, {linear.module for linear in linears}),
        tied_embeddings=network.tied_embeddings,
    )


def _layer_operators(network: Network, layer: Layer) -> Iterator[Operator]:
    hidden = network.hidden_size
    yield VectorOperator("norm", "layer_norm", hidden, READ_WRITE, layer.n_norms, rows=layer.stack)
    n_residuals = _n_parts(layer)
    yield VectorOperator("residual", "layer_residual", hidden, TWO_READS_WRITE, n_residuals, rows=layer.stack)
    if isinstance(layer.mixer, Attention):
        yield from _attention_operators(hidden, layer.mixer, layer.stack)
    elif isinstance(layer.mixer, StateMixer):
        yield from _state_operators(hidden, layer.mixer)
    if layer.cross_attention is not None:
        yield from _cross_attention_operators(hidden, layer.cross_attention)
    if isinstance(layer.feed_forward, Experts):
        yield from _expert_operators(hidden, layer.feed_forward)
    elif layer.feed_forward is not None:
        yield from _feed_forward_operators(hidden, layer.feed_forward, layer.stack)


def _attention_operators(hidden: int, attention: Attention, rows: Rows) -> Iterator[Operator]:
    n_heads, n_kv_heads, head_dim = attention.n_heads, attention.n_kv_heads, attention.head_dim_qk
    width_out = n_heads * attention.head_dim_v
    if attention.latent is not None:
        yield from _latent_projections(hidden, attention, attention.latent)
    else:
        unit = head_dim * (2 if attention.output_gate else 1)
        width_kv = n_kv_heads * (head_dim + attention.head_dim_v)
        yield LinearOperator(
            "attention_qkv", hidden, n_heads * unit + width_kv, 1.0, rows, bias=attention.qkv_bias,
            unit=unit, kv_heads=n_kv_heads, kv_columns=width_kv,
        )  # fmt: skip
    yield LinearOperator(
        "attention_output", width_out, hidden, 1.0, rows, "row", bias=attention.output_bias, unit=attention.head_dim_v
    )
    n_rotated = n_heads + (1 if attention.latent else n_kv_heads)
    if attention.rotary_dim:
        rotated = n_rotated * attention.rotary_dim
        yield VectorOperator("rope", "attention_rope", rotated, READ_WRITE, 1.0, "column", rows)
    if attention.qk_norm != "none":
        elements = (n_heads + n_kv_heads) * head_dim
        yield VectorOperator("norm", "attention_qk_norm", elements, READ_WRITE, 1.0, "column", rows)
    if attention.output_gate:
        yield VectorOperator("activation", "attention_gate", width_out, TWO_READS_WRITE, 1.0, "column", rows)
    yield _attention_operator(attention, rows)


def _attention_operator(attention: Attention, rows: Rows) -> AttentionOperator:
    latent = attention.latent
    per_token = attention.n_kv_heads * (attention.head_dim_qk + attention.head_dim_v)
    return AttentionOperator(
        n_heads=attention.n_heads,
        n_kv_heads=attention.n_kv_heads,
        head_dim_qk=attention.head_dim_qk,
        head_dim_v=attention.head_dim_v,
        kv_elements_per_token=latent.kv_rank + latent.rope_dim if latent else per_token,
        count=1.0,
        window_tokens=attention.window_tokens,
        causal=attention.causal,
        shared_latent=latent is not None,
        latent_dim_v=latent.kv_rank if latent else 0,
        chunked=attention.chunked,
        cached=attention.causal,
        rows=rows,
        over="source" if rows == "source" else "context",
    )


def _latent_projections(hidden: int, attention: Attention, latent: Latent) -> Iterator[Operator]:
    width_q = attention.n_heads * attention.head_dim_qk
    if latent.q_rank:
        yield LinearOperator("attention_q_a", hidden, latent.q_rank, 1.0, shard="replicated", bias=attention.qkv_bias)
        yield LinearOperator("attention_q_b", latent.q_rank, width_q, 1.0, unit=attention.head_dim_qk)
    else:
        yield LinearOperator("attention_q_b", hidden, width_q, 1.0, unit=attention.head_dim_qk)
    width_latent = latent.kv_rank + latent.rope_dim
    yield LinearOperator("attention_kv_a", hidden, width_latent, 1.0, shard="replicated", bias=attention.qkv_bias)
    unit = latent.nope_dim + attention.head_dim_v
    yield LinearOperator("attention_kv_b", latent.kv_rank, attention.n_heads * unit, 1.0, unit=unit)
    yield VectorOperator("norm", "attention_latent_norm", latent.q_rank + latent.kv_rank, READ_WRITE, 1.0)


def _cross_attention_operators(hidden: int, attention: Attention) -> Iterator[Operator]:
    width = attention.n_heads * attention.head_dim_qk
    width_kv = attention.n_kv_heads * (attention.head_dim_qk + attention.head_dim_v)
    width_out = attention.n_heads * attention.head_dim_v
    yield LinearOperator("cross_attention_q", hidden, width, 1.0, bias=attention.qkv_bias, unit=attention.head_dim_qk)
    yield LinearOperator(
        "cross_attention_kv", hidden, width_kv, 1.0, "source", bias=attention.qkv_bias,
        kv_heads=attention.n_kv_heads, kv_columns=width_kv,
    )  # fmt: skip
    yield LinearOperator(
        "cross_attention_output", width_out, hidden, 1.0, shard="row", bias=attention.output_bias,
        unit=attention.head_dim_v,
    )  # fmt: skip
    yield replace(_attention_operator(attention, "tokens"), cached=True, over="source")


def _state_operators(hidden: int, mixer: StateMixer) -> Iterator[Operator]:
    yield LinearOperator("state_in", hidden, mixer.projection_out, 1.0, bias=mixer.bias)
    yield LinearOperator("state_out", mixer.inner, hidden, 1.0, shard="row", bias=mixer.bias)
    yield StateOperator(mixer.op, mixer.state_elements, mixer.flop_per_token, 1.0)
    yield VectorOperator("norm", "state_norm", mixer.inner, TWO_READS_WRITE, 1.0, "column")


def _feed_forward_operators(hidden: int, part: FeedForward, rows: Rows) -> Iterator[Operator]:
    width = part.intermediate_size
    halves = 2 if part.gated else 1
    yield LinearOperator("ffn_up", hidden, halves * width, 1.0, rows, "column", bias=part.bias, gated=part.gated)
    yield LinearOperator("ffn_down", width, hidden, 1.0, rows, "row", bias=part.bias)
    passes = TWO_READS_WRITE if part.gated else READ_WRITE
    yield VectorOperator("activation", "ffn_activation", width, passes, 1.0, "column", rows)


def _expert_operators(hidden: int, part: Experts) -> Iterator[Operator]:
    width, halves = part.intermediate_size, 2 if part.gated else 1
    passes = TWO_READS_WRITE if part.gated else READ_WRITE
    yield LinearOperator("moe_gate", hidden, part.n_experts, 1.0, shard="replicated", bias=part.router_bias)
    up = LinearOperator(
        "expert_up", hidden, halves * width, 1.0, "routed", "expert", part.n_experts, part.top_k, part.bias, part.gated
    )
    yield up
    yield replace(up, module="expert_down", n_in=width, n_out=hidden, gated=False)
    yield VectorOperator("router", "moe_gate", part.n_experts, READ_WRITE, 1.0)
    yield VectorOperator("activation", "expert_activation", part.top_k * width, passes, 1.0, "expert")
    yield VectorOperator("router", "moe_dispatch", part.top_k * hidden, READ_WRITE, 1.0, "expert")
    yield VectorOperator("router", "moe_combine", part.top_k * hidden, READ_WRITE, 1.0, "expert")
    if part.shared_intermediate_size:
        shared = part.shared_intermediate_size
        yield LinearOperator("shared_expert_up", hidden, halves * shared, 1.0, gated=part.gated)
        yield LinearOperator("shared_expert_down", shared, hidden, 1.0, shard="row")
        yield VectorOperator("activation", "shared_expert_activation", shared, passes, 1.0, "column")
    if part.shared_gate:
        yield LinearOperator("moe_gate", hidden, 1, 1.0, shard="replicated")


def _edge_operators(network: Network) -> Iterator[Operator]:
    hidden = network.hidden_size
    if network.patch_elements:
        yield LinearOperator("patch_embedding", network.patch_elements, hidden, 1.0, shard="replicated", bias=True)
    else:
        yield VectorOperator("embedding", "embedding", hidden, READ_WRITE, 1.0)
    if network.kind == "encoder_decoder":
        yield VectorOperator("embedding", "embedding", hidden, READ_WRITE, 1.0, rows="source")
        yield VectorOperator("norm", "final_norm", hidden, READ_WRITE, 1.0, rows="source")
    yield VectorOperator("norm", "final_norm", hidden, READ_WRITE, 1.0, rows="sampled")
    columns = network.head_size or network.vocabulary_size
    if network.has_head:
        yield LinearOperator("output_head", hidden, columns, 1.0, "sampled", "column", bias=network.head_bias)
        if network.kind != "encoder":
            yield VectorOperator("softmax", "output_head", columns, READ_WRITE, 1.0, "column", "sampled")


def _embedding_parameters(network: Network) -> float:
    rows = network.position_rows + (0 if network.tied_embeddings else network.vocabulary_size)
    return float(rows) * network.hidden_size


def _norm_parameters(network: Network, n_norms: float, elements: int | None = None) -> float:
    return float(n_norms) * (elements or network.hidden_size) * network.norm_parameters_per_element


def _small_parameters(network: Network, layer: Layer) -> float:
    """Parameters of a layer that are no matrix and no bias: norms, sinks, tables, convolutions of a state mixer."""
    total = _norm_parameters(network, layer.n_norms)
    if isinstance(layer.mixer, StateMixer):
        return total + layer.mixer.small_parameters
    for attention in (layer.mixer, layer.cross_attention):
        if attention is not None:
            total += _attention_small_parameters(attention)
    return total


def _attention_small_parameters(attention: Attention) -> float:
    heads = attention.n_heads + attention.n_kv_heads
    norms = {"head": 2, "width": heads}.get(attention.qk_norm, 0) * attention.head_dim_qk
    latent = attention.latent.q_rank + attention.latent.kv_rank if attention.latent else 0
    return float(norms + latent + attention.sinks * attention.n_heads + attention.relative_buckets * attention.n_heads)


def _n_parts(layer: Layer) -> int:
    parts = [layer.mixer, layer.cross_attention, layer.feed_forward]
    return sum(part is not None for part in parts)


def _all_reduces(network: Network, layer: Layer) -> int:
    return 1 if network.parallel_residual else _n_parts(layer)


def _stored(network: Network, modules: Iterable[str]) -> tuple[StoredModule, ...]:
    stored = []
    for module in [*sorted(modules), "embedding", "other"]:
        bits = bits_per_element(network.checkpoint, module, network.n_layers)
        stored.append(StoredModule(module, format_name(network.checkpoint, bits), bits))
    return tuple(stored)


def _merged(operators: list[MergedOperator]) -> tuple[MergedOperator, ...]:
    """Add the counts of operators that are otherwise alike, in order of their first appearance."""
    counts: dict[MergedOperator, float] = {}
    for operator in operators:
        key = replace(operator, count=1.0)
        counts[key] = counts.get(key, 0.0) + operator.count
    return tuple(replace(operator, count=count) for operator, count in counts.items() if count)
