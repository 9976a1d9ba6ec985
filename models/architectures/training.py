"""One training step of a decoder under a given plan: operators, collectives, optimizer traffic, memory per chip."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from models.architectures.lowered import (
    AttentionOperator,
    LinearOperator,
    LoweredNetwork,
    StateOperator,
    VectorOperator,
    matrix_elements,
)
from models.architectures.parallel import split
from models.architectures.plans import stage_share
from models.architectures.training_memory import (
    TrainingMemory,
    TrainingPlan,
    residual_bytes,
    stored_bits,
    training_formats,
    training_memory,
    weight_bytes,
)
from models.checks import require_at_least
from models.precision.mix import PrecisionMix

Pass = Literal["forward", "recompute", "backward"]
CollectiveOp = Literal["all_reduce", "all_gather", "reduce_scatter", "send_receive"]

BACKWARD_RATIO = 2.0
"""Work of a backward pass over its forward: one gradient for the input, one for the weight or second operand."""

SCORES_AGAIN_RATIO = 0.5
"""A fused attention keeps no scores and computes the first of its two products again in the backward pass."""


@dataclass(frozen=True)
class TrainingGemm:
    """A GEMM of one chip: m x k with k x n, `batch` of them at once (experts), `count` times in a step."""

    module: str
    part: Literal["forward", "recompute", "input_gradient", "weight_gradient"]
    m: float
    n: float
    k: float
    batch: float
    count: float

    @property
    def flop(self) -> float:
        """Multiplications and additions of the whole step on this chip [FLOP]."""
        return 2.0 * self.m * self.n * self.k * self.batch * self.count


@dataclass(frozen=True)
class TrainingOperator:
    """Attention, state or vector work of one chip: its operator on `sequences` of `tokens`, `count` times in a step."""

    part: Pass
    operator: AttentionOperator | StateOperator | VectorOperator
    sequences: float
    tokens: float
    count: float
    work_ratio: float = 1.0
    """Work over that of one forward pass."""


@dataclass(frozen=True)
class TrainingCollective:
    """Messages of one chip in one step; `message_bytes` is the whole vector that the group holds or makes."""

    op: CollectiveOp
    group: Literal["tensor", "pipeline", "data"]
    n_chips: int
    message_bytes: float
    count: float
    """Times in one step."""


@dataclass(frozen=True)
class TrainingStep:
    """Everything the busiest chip of the last pipeline stage does in one step, and what the step needs."""

    gemms: tuple[TrainingGemm, ...]
    operators: tuple[TrainingOperator, ...]
    collectives: tuple[TrainingCollective, ...]
    optimizer_bytes: float
    memory: TrainingMemory
    n_chips: int
    n_microbatches: int
    tokens_per_step: float
    bubble_ratio: float
    """Idle time of the pipeline over its busy time: (stages - 1) / (microbatches x interleave)."""


def training_step(
    lowered: LoweredNetwork,
    plan: TrainingPlan,
    mix: PrecisionMix,
    sequence_tokens: int,
    global_batch_sequences: int,
) -> TrainingStep:
    """
    Return one optimizer step.

    The backward pass of a GEMM is two GEMMs of the same FLOP, one for the gradient of its input and one for that of
    its weight. `full` recomputation repeats the forward pass of every layer, `selective` that of the attention core
    only. Experts are spread over the tensor-parallel group, whose chips all hold the tokens, so that they need no
    all-to-all; loads are even.

    Parameters
    ----------
    lowered : LoweredNetwork
        A decoder, uncut.
    plan : TrainingPlan
        Degrees, microbatch, sharding of the state, recomputation.
    mix : PrecisionMix
        Formats of the GEMMs, with `training` formats of what the optimizer keeps.
    sequence_tokens, global_batch_sequences : int
        Tokens of one sequence, sequences of one step over all chips.

    Raises
    ------
    ValueError
        If the network is no decoder, the mix has no training formats, the sequence is longer than the context, or the
        batch does not divide.

    References
    ----------
    .. [1] V. Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022,
       arXiv:2205.05198.
    .. [2] S. Rajbhandari et al., "ZeRO", 2020, arXiv:1910.02054.
    """
    n_microbatches = _n_microbatches(lowered, plan, sequence_tokens, global_batch_sequences)
    chip = _stage(split(lowered, plan.tensor_parallel), lowered, plan)
    passes = _Passes(plan, float(sequence_tokens), float(n_microbatches))
    return TrainingStep(
        gemms=tuple(gemm for linear in chip.linears for gemm in _gemms(linear, passes)),
        operators=tuple(work for operator in _others(chip) for work in _operator_passes(operator, passes)),
        collectives=tuple(_collectives(lowered, chip, plan, mix, passes)),
        optimizer_bytes=_optimizer_bytes(chip, plan, mix),
        memory=training_memory(chip, plan, mix, sequence_tokens, n_microbatches),
        n_chips=plan.n_chips,
        n_microbatches=n_microbatches,
        tokens_per_step=float(sequence_tokens) * global_batch_sequences,
        bubble_ratio=(plan.pipeline_parallel - 1) / (n_microbatches * plan.interleave),
    )


@dataclass(frozen=True)
class _Passes:
    """What every operator needs to know of the step."""

    plan: TrainingPlan
    sequence_tokens: float
    n_microbatches: float

    @property
    def tokens(self) -> float:
        return self.plan.microbatch_sequences * self.sequence_tokens


def _n_microbatches(lowered: LoweredNetwork, plan: TrainingPlan, sequence_tokens: int, sequences: int) -> int:
    if lowered.kind != "decoder":
        raise ValueError(f"network {lowered.name} must be a decoder to be trained here, got {lowered.kind}")
    require_at_least("sequence_tokens", sequence_tokens, 1, "tokens")
    require_at_least("global_batch_sequences", sequences, 1, "sequences")
    if sequence_tokens > lowered.max_context_tokens:
        raise ValueError(
            f"sequence_tokens must be at most {lowered.max_context_tokens}, the context of {lowered.name}, "
            f"got {sequence_tokens}"
        )
    at_once = plan.data_parallel * plan.microbatch_sequences
    if sequences % at_once:
        raise ValueError(
            f"global_batch_sequences must be a multiple of data_parallel x microbatch_sequences ({at_once}), "
            f"got {sequences}"
        )
    return sequences // at_once


def _stage(chip: LoweredNetwork, whole: LoweredNetwork, plan: TrainingPlan) -> LoweredNetwork:
    """Return the last pipeline stage: the most layers a stage holds, and the output head."""
    share = stage_share(whole.n_layers, plan.pipeline_parallel)

    def on_stage(module: str) -> float:
        if module in FIRST_STAGE_MODULES:
            return 1.0 if plan.pipeline_parallel == 1 else 0.0
        return 1.0 if module in EDGE_MODULES else share

    linears = tuple(replace(linear, count=linear.count * on_stage(linear.module)) for linear in chip.linears)
    other = chip.other_parameters * share
    embedding = chip.embedding_parameters if plan.pipeline_parallel == 1 else 0.0
    return replace(
        chip,
        linears=linears,
        attentions=tuple(replace(attention, count=attention.count * share) for attention in chip.attentions),
        states=tuple(replace(state, count=state.count * share) for state in chip.states),
        vectors=tuple(replace(vector, count=vector.count * on_stage(vector.module)) for vector in chip.vectors),
        n_layers=math.ceil(whole.n_layers / plan.pipeline_parallel),
        embedding_parameters=embedding,
        other_parameters=other,
        n_parameters=sum(map(matrix_elements, linears)) + embedding + other,
    )


EDGE_MODULES = frozenset({"output_head", "embedding", "final_norm", "patch_embedding"})
"""Modules outside the layers."""

FIRST_STAGE_MODULES = frozenset({"embedding", "patch_embedding"})
"""Modules outside the layers that the last stage of a pipeline does not hold."""


def _others(chip: LoweredNetwork) -> Iterator[AttentionOperator | StateOperator | VectorOperator]:
    yield from chip.attentions
    yield from chip.states
    yield from chip.vectors


def _gemms(linear: LinearOperator, passes: _Passes) -> Iterator[TrainingGemm]:
    rows, batch = passes.tokens, 1.0
    if linear.rows == "routed":
        rows, batch = passes.tokens * linear.top_k / linear.n_experts, float(linear.n_experts)
    count = linear.count * passes.n_microbatches
    forward = TrainingGemm(linear.module, "forward", rows, linear.n_out, linear.n_in, batch, count)
    yield forward
    if passes.plan.recompute == "full" and linear.module not in EDGE_MODULES:
        yield replace(forward, part="recompute")
    yield replace(forward, part="input_gradient", n=linear.n_in, k=linear.n_out)
    yield replace(forward, part="weight_gradient", m=linear.n_in, k=rows)


def _operator_passes(
    operator: AttentionOperator | StateOperator | VectorOperator, passes: _Passes
) -> Iterator[TrainingOperator]:
    attends = isinstance(operator, AttentionOperator)
    count = operator.count * passes.n_microbatches
    sequences = float(passes.plan.microbatch_sequences)
    forward = TrainingOperator(
        "forward", operator, sequences, passes.sequence_tokens / _token_split(operator, passes), count
    )
    yield forward
    repeated = passes.plan.recompute == "full" or (passes.plan.recompute == "selective" and attends)
    if repeated and getattr(operator, "module", "") not in EDGE_MODULES:
        yield replace(forward, part="recompute")
    again = SCORES_AGAIN_RATIO if attends and passes.plan.fused_attention else 0.0
    yield replace(forward, part="backward", work_ratio=BACKWARD_RATIO + again)


def _token_split(operator: AttentionOperator | StateOperator | VectorOperator, passes: _Passes) -> float:
    """Chips over which the tokens of an operator are split: with sequence parallelism norms and residuals are."""
    whole = isinstance(operator, VectorOperator) and operator.shard == "replicated"
    return float(passes.plan.tensor_parallel) if whole and passes.plan.sequence_parallel else 1.0


def _collectives(
    whole: LoweredNetwork, chip: LoweredNetwork, plan: TrainingPlan, mix: PrecisionMix, passes: _Passes
) -> Iterator[TrainingCollective]:
    row_bytes = passes.tokens * whole.hidden_size * residual_bytes(mix)
    if plan.tensor_parallel > 1:
        n_passes = 3.0 if plan.recompute == "full" else 2.0
        count = whole.all_reduces_per_layer * chip.n_layers * passes.n_microbatches * n_passes
        ops: tuple[CollectiveOp, ...] = ("reduce_scatter", "all_gather") if plan.sequence_parallel else ("all_reduce",)
        for op in ops:
            yield TrainingCollective(op, "tensor", plan.tensor_parallel, row_bytes, count)
    if plan.pipeline_parallel > 1:
        # every chip of a tensor-parallel group sends its share of the row, which the next stage gathers
        sent = row_bytes / plan.tensor_parallel
        count = 2.0 * passes.n_microbatches * plan.interleave
        yield TrainingCollective("send_receive", "pipeline", plan.pipeline_parallel, sent, count)
    if plan.data_parallel > 1:
        yield from _data_collectives(chip, plan, mix, passes.n_microbatches)


def _data_collectives(
    chip: LoweredNetwork, plan: TrainingPlan, mix: PrecisionMix, n_microbatches: float
) -> Iterator[TrainingCollective]:
    gradient = chip.n_parameters * stored_bits(training_formats(mix).gradient_storage) / 8.0
    weight = weight_bytes(chip, mix)
    if plan.zero_stage == 0:
        yield TrainingCollective("all_reduce", "data", plan.data_parallel, gradient, 1.0)
        return
    # ZeRO 2 and 3 keep only a shard of the gradient, so every microbatch is reduced.
    reductions = n_microbatches if plan.zero_stage >= 2 else 1.0
    yield TrainingCollective("reduce_scatter", "data", plan.data_parallel, gradient, reductions)
    gathers = 2.0 * n_microbatches if plan.zero_stage == 3 else 1.0
    yield TrainingCollective("all_gather", "data", plan.data_parallel, weight, gathers)


def _optimizer_bytes(chip: LoweredNetwork, plan: TrainingPlan, mix: PrecisionMix) -> float:
    """Traffic of one Adam update: gradient read, master and moments read and written, weight written [B]."""
    formats, shards = training_formats(mix), plan.data_parallel if plan.zero_stage >= 1 else 1
    state = (formats.master_weight, formats.first_moment, formats.second_moment)
    moved_bits = stored_bits(formats.gradient_storage) + 2.0 * sum(map(stored_bits, state))
    return (chip.n_parameters * moved_bits / 8.0 + weight_bytes(chip, mix)) / shards
