"""Splits the operators of a network over the chips of a tensor-parallel group."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from models.architectures.lowered import (
    AttentionOperator,
    LinearOperator,
    LoweredNetwork,
    StateOperator,
    VectorOperator,
    active_parameters,
    bias_elements,
    matrix_elements,
)
from models.checks import FloatArray, require_positive


def split(lowered: LoweredNetwork, tensor_parallel: int, expert_parallel: int | None = None) -> LoweredNetwork:
    """
    Return what one chip of a tensor-parallel group executes and stores.

    Columns and rows are divided; where a size is not divisible every chip takes the largest share, so that its
    operators are those of the slowest chip (the padding). Key and value heads are replicated once there are fewer of
    them than chips, as is the MLA latent, all norms and the router. Routed experts are divided by
    `expert_parallel` as whole experts and the rest of the group cuts each expert's matrices; the rows of each remain
    those of the whole group. The head is cut by vocabulary.

    Parameters
    ----------
    lowered : LoweredNetwork
        The network on one chip.
    tensor_parallel : int
        Chips that share each layer.
    expert_parallel : int, optional
        Chips over which whole experts are spread, a divisor of `tensor_parallel`; by default the largest one that
        divides the number of experts.

    Returns
    -------
    LoweredNetwork
        Its parameters are those stored on this chip; `all_reduces_per_layer` is unchanged.

    Raises
    ------
    ValueError
        If a degree is not a positive whole number, exceeds the heads, or does not divide.
    """
    degree = _degree("tensor_parallel", tensor_parallel)
    for attention in lowered.attentions:
        if degree > attention.n_heads:
            raise ValueError(f"tensor_parallel must be at most {attention.n_heads}, the number of heads, got {degree}")
    if expert_parallel is not None and degree % _degree("expert_parallel", expert_parallel):
        raise ValueError(f"expert_parallel must divide tensor_parallel ({degree}), got {expert_parallel}")
    linears = tuple(_split_linear(linear, degree, expert_parallel) for linear in lowered.linears)
    embedding = lowered.embedding_parameters / degree
    biases = sum(map(bias_elements, lowered.linears)), sum(map(bias_elements, linears))
    other = lowered.other_parameters - biases[0] + biases[1]
    matrices = sum(matrix_elements(linear) for linear in linears)
    return replace(
        lowered,
        linears=linears,
        attentions=tuple(_split_attention(attention, degree) for attention in lowered.attentions),
        states=tuple(_split_state(state, degree) for state in lowered.states),
        vectors=tuple(_split_vector(vector, degree) for vector in lowered.vectors),
        embedding_parameters=embedding,
        other_parameters=other,
        n_parameters=matrices + embedding + other,
        n_active_parameters=active_parameters(linears, other),
    )


def kv_elements_per_token(lowered: LoweredNetwork) -> float:
    """
    Return what the cache of a whole network keeps for one token, windows ignored [elements].

    Cross attention caches the source, not the tokens, and is left out.
    """
    return sum(a.kv_elements_per_token * a.count for a in lowered.attentions if a.cached and a.over == "context")


def kv_bytes_per_token_per_chip(lowered: LoweredNetwork, tensor_parallel: ArrayLike, kv_bits: ArrayLike) -> FloatArray:
    """
    Return the KV cache one chip keeps for one token, windows ignored.

    Parameters
    ----------
    tensor_parallel, kv_bits : arrays that broadcast to shape (n_alternatives,)
        Chips that share the heads, and bits of a cached element. [1], [bits]

    Returns
    -------
    array of shape (n_alternatives,)
        Key and value bytes; a head is not divided, the MLA latent neither. [B]

    Examples
    --------
    DeepSeek-V3 keeps 576 elements in each of its 61 layers on every chip.

    >>> from models.architectures import load_network, lower
    >>> float(kv_bytes_per_token_per_chip(lower(load_network("deepseek-v3")), 8, 16))
    70272.0
    """
    degree = require_positive("tensor_parallel", tensor_parallel, "chips")
    bits = require_positive("kv_bits", kv_bits, "bits")
    elements = np.zeros(np.broadcast(degree, bits).shape)
    for attention in lowered.attentions:
        if attention.cached and attention.over == "context":
            held = 1.0 if attention.shared_latent else np.ceil(attention.n_kv_heads / degree) / attention.n_kv_heads
            elements = elements + attention.count * attention.kv_elements_per_token * held
    return np.asarray(elements * bits / 8.0)


def _degree(name: str, value: int) -> int:
    if isinstance(value, bool) or int(value) != value or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value}")
    return int(value)


def _share(size: float, degree: int, unit: int = 1) -> int:
    """Largest part when `size` is dealt out to `degree` chips in whole units."""
    return math.ceil(size / unit / degree) * unit


def _split_linear(linear: LinearOperator, degree: int, expert_parallel: int | None) -> LinearOperator:
    if linear.shard == "expert":
        spread = expert_parallel or math.gcd(degree, linear.n_experts)
        held = replace(linear, n_experts=_share(linear.n_experts, spread), top_k=_held_top_k(linear, spread))
        return _cut(held, degree // spread, "row" if linear.module == "expert_down" else "column")
    return _cut(linear, degree, linear.shard)


def _held_top_k(linear: LinearOperator, spread: int) -> float:
    """Experts a token meets on a chip that holds the largest share of them."""
    return linear.top_k * _share(linear.n_experts, spread) / linear.n_experts


def _cut(linear: LinearOperator, degree: int, shard: str) -> LinearOperator:
    if shard == "row":
        return replace(linear, n_in=_share(linear.n_in, degree, linear.unit))
    if shard != "column":
        return linear
    if linear.gated:
        return replace(linear, n_out=2 * _share(linear.n_out // 2, degree))
    kv_heads = _share(linear.kv_heads, degree)
    kv_columns = linear.kv_columns * kv_heads // max(linear.kv_heads, 1)
    queries = _share(linear.n_out - linear.kv_columns, degree, linear.unit)
    return replace(linear, n_out=queries + kv_columns, kv_heads=kv_heads, kv_columns=kv_columns)


def _split_attention(attention: AttentionOperator, degree: int) -> AttentionOperator:
    n_heads = _share(attention.n_heads, degree)
    if attention.shared_latent:
        return replace(attention, n_heads=n_heads, n_kv_heads=n_heads)
    n_kv_heads = _share(attention.n_kv_heads, degree)
    elements = attention.kv_elements_per_token * n_kv_heads // attention.n_kv_heads
    return replace(attention, n_heads=n_heads, n_kv_heads=n_kv_heads, kv_elements_per_token=elements)


def _split_state(state: StateOperator, degree: int) -> StateOperator:
    return replace(
        state, state_elements=_share(state.state_elements, degree), flop_per_token=state.flop_per_token / degree
    )


def _split_vector(vector: VectorOperator, degree: int) -> VectorOperator:
    if vector.shard == "replicated":
        return vector
    return replace(vector, elements_per_token=vector.elements_per_token / degree)
