"""From a design to what the replay needs: its step time as small tables, and what its memory holds."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import optimize

from models.architectures.lowered import LoweredNetwork
from models.architectures.plans import ParallelPlan
from models.checks import FloatArray
from models.hardware.design import DesignBatch
from models.hardware.energy import EnergyPerAccess, energy_per_access
from models.operators.calibration import UNCALIBRATED, Calibration
from models.operators.factor_tables import FactorTables
from models.operators.step import StepProgram, run_step
from models.operators.step_energy import settle
from models.precision.mix import PrecisionMix
from models.serving.capacity import largest_batch, plan_memory_bytes
from models.serving.engine_step import BatchLimits, StepTime
from models.serving.engine_terms import EngineTraits
from models.serving.pipeline import Reach, handover_programs, pass_parts, stage_activity
from models.serving.programs import StepLoad, compile_step
from models.serving.scenario import Alternatives, Speculation
from models.serving.speculation import draft_program
from models.workload.distribution import RequestMoments

TOKEN_GRID = np.array(
    [1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 160, 192, 256, 320, 384, 512, 640, 768, 1024, 1536, 2048, 3072, 4096, 8192.0]
)
"""Tokens of a step at which its time is worked out; between them it is taken to be a straight line."""
_BATCHES, _CONTEXT_RATIOS = np.array([1.0, 8.0, 32.0, 64.0, 128.0, 256.0]), np.array([0.5, 1.0, 2.0])
"""Decodes, and contexts over the mean one, to which the attention of the decodes is fitted."""


@dataclass(frozen=True)
class EngineOperation:
    """How one engine, the chips of a plan, runs a network on the requests that each of its groups serves."""

    network: LoweredNetwork
    mix: PrecisionMix
    plan: ParallelPlan
    requests: RequestMoments
    step_overhead_s: float
    routing_skew: float = 0.0
    n_chips_per_node: int | None = None
    """Chips that share scale-up links; None for all of the engine."""
    traits: EngineTraits = EngineTraits()
    calibration: Calibration = UNCALIBRATED
    speculation: Speculation | None = None


def engine_step_times(
    operation: EngineOperation, designs: DesignBatch, tables: FactorTables | None = None
) -> list[StepTime]:
    """
    Return the step time of each design as the replay wants it.

    Everything but attention is worked out on `TOKEN_GRID`, the output head as what further sampled rows add. Decode
    attention is fitted (non-negative least squares of relative errors) on batches to 256 and contexts about the mean
    one; prefill attention is that of a prompt of the length that weighs most.

    Parameters
    ----------
    operation : EngineOperation
    designs : DesignBatch
        Of n_designs designs.
    tables : FactorTables, optional
        Rows shared with other calls.

    Returns
    -------
    list of n_designs StepTime
    """
    tables, access = tables or FactorTables(), energy_per_access(designs)
    grid, one = TOKEN_GRID, np.ones(len(TOKEN_GRID))
    rows = _settled_s(
        operation, _load(np.concatenate([grid, one]), np.concatenate([one, grid])), designs, access, tables
    )
    linear_s, sampled_s = rows[:, : len(grid)], rows[:, len(grid) :]
    head_s = np.maximum(sampled_s - sampled_s[:, :1], 0.0)
    decode = _decode_coefficients_s(operation, designs, access, tables)
    pair_s = _prefill_pair_s(operation, designs, access, tables)
    return [
        StepTime(
            tokens=grid,
            linear_s=linear_s[i],
            head_s=head_s[i],
            decode_step_s=float(decode[i, 0]),
            decode_sequence_s=float(decode[i, 1]),
            decode_context_s=float(decode[i, 2]),
            prefill_pair_s=float(pair_s[i]),
            host_s=operation.step_overhead_s * operation.plan.pipeline_parallel,
        )
        for i in range(designs.n_designs)
    ]


def engine_limits(
    operation: EngineOperation,
    designs: DesignBatch,
    *,
    token_budget: int,
    max_sequences: int,
    scheduling: Literal["chunked", "whole_prompt"] = "chunked",
) -> list[BatchLimits]:
    """
    Return what a step of each design may hold: the KV tokens follow from its memory.

    Returns
    -------
    list of n_designs BatchLimits
        With a capacity of 0 where the weights do not fit.
    """
    tokens, depth = operation.requests.reserved_tokens, operation.plan.pipeline_parallel
    draft = None if operation.speculation is None else operation.speculation.draft
    weights, cache = plan_memory_bytes(operation.network, operation.plan, [operation.mix], tokens, draft)
    held = np.maximum(largest_batch(designs, weights, cache)[:, 0], 0.0) * depth * tokens
    speculation = operation.speculation
    gained, verified = (1.0, 1) if speculation is None else (speculation.tokens_per_step, speculation.verified_tokens)
    return [
        BatchLimits(
            token_budget, max_sequences, float(capacity), scheduling, tokens_per_step=gained, verified_tokens=verified
        )
        for capacity in held
    ]


def _load(
    tokens: FloatArray,
    sampled: FloatArray,
    *,
    decoding: FloatArray | float = 0.0,
    context: FloatArray | float = 0.0,
    prompts: FloatArray | float = 0.0,
    prompt: FloatArray | float = 1.0,
) -> StepLoad:
    n = len(tokens)
    filled = (np.broadcast_to(np.asarray(v, dtype=np.float64), n).copy() for v in (decoding, context, prompts, prompt))
    return StepLoad(tokens, sampled, *filled)


def _settled_s(
    operation: EngineOperation,
    load: StepLoad,
    designs: DesignBatch,
    access: EnergyPerAccess,
    tables: FactorTables,
) -> FloatArray:
    """
    Time of each load at the settled clock, host time aside, shape (n_designs, n_loads) [s].

    In a pipeline the load is dealt to a micro-batch for each stage, and takes as long as one of them through all.
    """
    n, plan, node = len(load.tokens), operation.plan, operation.n_chips_per_node or operation.plan.n_chips
    one = np.ones(n, dtype=np.int64)
    choices = Alternatives(plan.tensor_parallel * one, plan.attention_data_parallel * one, 0 * one, load.tokens)
    micro = _micro_batch(load, plan.pipeline_parallel)
    program: StepProgram = compile_step(
        operation.network, [operation.mix], choices, micro, overhead_s=0.0, routing_skew=operation.routing_skew,
        n_chips_per_node=node, traits=operation.traits, calibration=operation.calibration,
    )  # fmt: skip
    traits = operation.traits
    handover = handover_programs(operation.network, choices, micro.tokens, node, traits, operation.calibration)
    reach = Reach(plan.pipeline_parallel > 1, plan.n_chips > node)
    parts = pass_parts(program, handover, operation.network.n_layers, designs, tables, None, reach)
    activity = stage_activity(parts, np.full((1, 1), plan.pipeline_parallel), np.full((1, 1), plan.stage_chips))
    return plan.pipeline_parallel * settle(activity, access, designs.tdp_w).time_s


def _drafted_s(
    operation: EngineOperation,
    load: StepLoad,
    designs: DesignBatch,
    access: EnergyPerAccess,
    tables: FactorTables,
) -> FloatArray | float:
    """Time in which a draft network makes the guesses of a step, shape (n_designs, n_loads); 0 without one [s]."""
    plan, one = operation.plan, np.ones(len(load.tokens), dtype=np.int64)
    choices = Alternatives(plan.tensor_parallel * one, plan.attention_data_parallel * one, 0 * one, load.tokens)
    program = draft_program(
        operation.speculation, [operation.mix], choices, _micro_batch(load, plan.pipeline_parallel),
        routing_skew=operation.routing_skew, n_chips_per_node=operation.n_chips_per_node or plan.n_chips,
        traits=operation.traits, calibration=operation.calibration,
    )  # fmt: skip
    if program is None or operation.speculation is None:
        return 0.0
    settled = settle(run_step(program, designs, tables), access, designs.tdp_w)
    return operation.speculation.draft_tokens * plan.pipeline_parallel * settled.time_s


def _micro_batch(load: StepLoad, depth: int) -> StepLoad:
    """One of `depth` equal parts of a load, with at least a whole row; a prompt is in one of them."""
    rows = {n: np.minimum(v := getattr(load, n), np.maximum(v / depth, 1.0)) for n in ("tokens", "sampled", "decoding")}
    return dataclasses.replace(load, prompts=load.prompts / depth, **rows)


def _decode_coefficients_s(
    operation: EngineOperation, designs: DesignBatch, access: EnergyPerAccess, tables: FactorTables
) -> FloatArray:
    """Attention of the decodes per step, per sequence and per token of context, shape (n_designs, 3) [s]."""
    contexts = np.maximum(operation.requests.context_tokens * _CONTEXT_RATIOS, 1.0)
    batch, context = (values.ravel() for values in np.meshgrid(_BATCHES, contexts, indexing="ij"))
    plain = _settled_s(operation, _load(batch, batch), designs, access, tables)
    loaded = _settled_s(operation, _load(batch, batch, decoding=batch, context=context), designs, access, tables)
    attention_s = np.maximum(loaded - plain, 0.0) + _drafted_s(
        operation, _load(batch, batch, decoding=batch, context=context), designs, access, tables
    )
    terms = np.column_stack([np.ones_like(batch), batch, batch * context])
    found = np.zeros((designs.n_designs, 3))
    for design, times_s in enumerate(attention_s):
        # one small system per design; only the few whose percentiles are wanted come here
        weight = 1.0 / np.maximum(times_s, 1e-9)
        scale = (terms * weight[:, None]).max(axis=0)
        found[design] = optimize.nnls(terms * weight[:, None] / scale, times_s * weight)[0] / scale
    return found


def _prefill_pair_s(
    operation: EngineOperation, designs: DesignBatch, access: EnergyPerAccess, tables: FactorTables
) -> FloatArray:
    """Attention of a prompt per query-key pair, shape (n_designs,) [s]."""
    prompt = np.array([max(operation.requests.effective_prompt_tokens, 1.0)])
    one = np.ones(1)
    plain = _settled_s(operation, _load(prompt, one), designs, access, tables)
    loaded = _settled_s(operation, _load(prompt, one, prompts=1.0, prompt=prompt), designs, access, tables)
    return np.asarray(np.maximum(loaded - plain, 0.0)[:, 0] / (prompt[0] ** 2 / 2), dtype=np.float64)
