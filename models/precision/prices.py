"""What a format saves on a range of machines and loads, so that only mixes some machine would choose are evaluated."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from models.checks import FloatArray
from models.precision.choices import Choice, ChoiceGroup, choice_in
from models.precision.formats import number_format
from models.precision.mix import PrecisionMix, rounding_ops
from models.tables import constants

if TYPE_CHECKING:
    from models.architectures.lowered import AttentionOperator, LinearOperator, LoweredNetwork

_VECTOR_OPS = {"norm": ("norm",), "residual": ("residual",), "ffn_hidden": ("activation",)}
"""Elementwise operators of a lowered network whose traffic follows a vector group."""


_UNLIMITED = 1e9
"""Operations per byte of a machine on which only bytes count."""


@dataclass(frozen=True)
class Load:
    """One machine and one step on it: how much work meets a byte of memory bandwidth."""

    tokens: float
    """New tokens of the step."""
    sequences: float
    """Sequences they belong to: as many as tokens in decode, one in prefill."""
    context_tokens: float
    flop_per_byte: float
    """bf16 peak over memory bandwidth."""
    vector_ops_per_byte: float
    """Vector-unit peak over memory bandwidth."""


DECODE_BATCHES = (1.0, 16.0, 128.0, 512.0)
"""Sequences that decode together, from one user to a full memory."""


def representative_loads(
    contexts: Sequence[float] = (1e3, 16e3), prompt_tokens: float = 2048.0, largest_batch: float = np.inf
) -> tuple[Load, ...]:
    """
    Return the steps that decide which mixes compete, on machines rich and poor in compute and vector lanes.

    Decode from one user to large batches, and prefill of one prompt. The last loads are machines that only memory
    limits: their cost is the bytes that weights and cache occupy.

    Parameters
    ----------
    contexts : sequence of float
        Tokens that a decoding sequence attends to. [tokens]
    prompt_tokens : float
        Tokens of a prompt. [tokens]
    largest_batch : float
        Sequences that decode together at most. [1]
    """
    batches = [batch for batch in DECODE_BATCHES if batch <= largest_batch]
    decode = [(batch, batch, float(context)) for batch in batches for context in contexts]
    machines = [*itertools.product((100.0, 400.0), (2.0, 16.0)), (200.0, 0.2)]
    steps = [*decode, (prompt_tokens, 1.0, prompt_tokens)]
    held = min(256.0, largest_batch)
    full = [Load(held, held, context, _UNLIMITED, _UNLIMITED) for context in (min(contexts) / 8.0, max(contexts) / 4.0)]
    return (*(Load(*step, *machine) for machine in machines for step in steps), *full)


def choice_costs(network: LoweredNetwork, groups: Sequence[ChoiceGroup], loads: Sequence[Load]) -> list[FloatArray]:
    """
    Return what each option of each group costs in a step, in bytes of memory bandwidth.

    Parameters
    ----------
    network : LoweredNetwork
    groups : sequence of ChoiceGroup
    loads : sequence of Load

    Returns
    -------
    list of arrays of shape (n_loads, n_options)
        Roofline time of the operators whose format the option decides, times the bandwidth. [B]
    """
    return [
        np.array([[_choice_cost(network, group, choice, load) for choice in group.choices] for load in loads])
        for group in groups
    ]


def mix_costs(
    network: LoweredNetwork,
    mixes: Sequence[PrecisionMix],
    groups: Sequence[ChoiceGroup],
    native: Collection[str],
    loads: Sequence[Load],
) -> FloatArray:
    """
    Return what whole mixes cost in a step on arrays of `native`, whichever arrays they were made for.

    Returns
    -------
    array of shape (n_loads, n_mixes)
        Of the same measure as `choice_costs`. [B]
    """
    known: dict[tuple[str, Choice], FloatArray] = {}
    total = np.zeros((len(loads), len(mixes)))
    for column, mix in enumerate(mixes):
        for group in groups:
            choice = choice_in(mix, group, native)
            if (group.name, choice) not in known:
                known[group.name, choice] = np.array([_choice_cost(network, group, choice, load) for load in loads])
            total[:, column] += known[group.name, choice]
    return total


def _choice_cost(network: LoweredNetwork, group: ChoiceGroup, choice: Choice, load: Load) -> float:
    if group.kind == "cache":
        return sum(_cache_cost(attention, choice, load, group.name) for attention in network.attentions)
    if group.kind == "vector":
        return _vector_cost(network, group.name, choice, load)
    if group.kind == "stored":
        capacity = constants("precision")["capacity_price_ratio"] * network.embedding_parameters
        return (load.tokens * network.hidden_size + capacity) * number_format(choice.stationary).weight_bits / 8.0
    linears = [linear for linear in network.linears if linear.module in group.modules]
    return sum(_linear_cost(linear, choice, load) for linear in linears)


def _linear_cost(linear: LinearOperator, choice: Choice, load: Load) -> float:
    """Roofline of a matrix product, widening and rounding beside it [B]."""
    rows = load.sequences if linear.rows == "sampled" else load.tokens * max(linear.top_k, 1)
    met = _experts_met(linear, load.tokens)
    stored = float(linear.n_in) * linear.n_out
    weight_bytes = met * stored * number_format(choice.stationary).weight_bits / 8.0
    input_bytes = rows * linear.n_in * number_format(choice.moving).activation_bits / 8.0
    compute = 2.0 * rows * stored / (_nominal_rate(choice.compute_class) * load.flop_per_byte)
    widening = choice.dequant_ops * met * stored / load.vector_ops_per_byte
    rounding = rounding_ops(number_format(choice.moving)) * rows * linear.n_in / load.vector_ops_per_byte
    return linear.count * (max(weight_bytes + input_bytes, compute, widening) + rounding)


def _experts_met(linear: LinearOperator, tokens: float) -> float:
    """Expected number of experts that some token is sent to [1]."""
    if linear.rows != "routed":
        return 1.0
    return float(linear.n_experts * -np.expm1(tokens * np.log1p(-linear.top_k / (linear.n_experts + 1e-9))))


def _cache_cost(attention: AttentionOperator, choice: Choice, load: Load, name: str) -> float:
    """Reading keys, values or the latent of both against multiplying them; widening is per cached element [B]."""
    context = min(load.context_tokens, attention.window_tokens or load.context_tokens)
    sizes = {"key": attention.head_dim_qk, "value": attention.head_dim_v}
    head_dim = sizes.get(name, sum(sizes.values()))
    half = 0.5 if name in sizes else 1.0
    elements = half * load.sequences * context * attention.kv_elements_per_token
    flop = 2.0 * load.tokens * context * attention.n_heads * head_dim
    cached = elements * number_format(choice.stationary).activation_bits / 8.0
    compute = flop / (_nominal_rate(choice.compute_class) * load.flop_per_byte)
    widening = choice.dequant_ops * elements / load.vector_ops_per_byte
    moving = load.tokens * attention.n_heads * head_dim * number_format(choice.moving).activation_bits / 8.0
    moving /= constants("precision")["on_chip_bandwidth_ratio"]
    return attention.count * (max(cached, compute, widening) + moving)


def _vector_cost(network: LoweredNetwork, name: str, choice: Choice, load: Load) -> float:
    """
    Elementwise traffic, which stays on chip, and rounding [B].

    Scores live in the accumulators of the product that made them, so a narrower format of theirs moves no byte less.
    """
    rounding = rounding_ops(number_format(choice.stationary)) / load.vector_ops_per_byte
    if name == "scores":
        elements = sum(a.count * a.n_heads for a in network.attentions) * load.context_tokens
        return load.tokens * elements * rounding
    value_bytes = number_format(choice.stationary).activation_bits / 8.0
    operators = [v for v in network.vectors if v.op in _VECTOR_OPS[name]]
    moved = value_bytes / constants("precision")["on_chip_bandwidth_ratio"]
    return load.tokens * sum(v.elements_per_token * v.count * (v.passes * moved + rounding) for v in operators)


def _nominal_rate(compute_class: str) -> float:
    return constants("precision")[f"nominal_{compute_class}_rate_ratio"]
