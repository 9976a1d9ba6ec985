"""What fits in main memory: weights, activations, and the KV cache that bounds the batch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from models.architectures.lowered import LoweredNetwork, matrix_elements, weight_elements_per_module
from models.architectures.parallel import split
from models.architectures.plans import ParallelPlan, divisors, pipeline_depths, stage_plans, stage_share
from models.checks import FloatArray
from models.hardware.design import DesignBatch
from models.precision.mix import PrecisionMix
from models.serving.programs import STATE_BYTES
from models.serving.scenario import ServingScenario
from models.tables import constants

CAPACITY_CRITICAL_FRACTION = 0.1
"""Share of free memory below which one GB of memory estimate changes the batch by a third and more."""


def usable_memory_bytes(designs: DesignBatch) -> FloatArray:
    """Main memory left for weights, activations and cache, shape (n_designs,) [B]."""
    return designs.memory_capacity_bytes * usable_memory_fraction()


def usable_memory_fraction() -> float:
    """Share of main memory that weights, activations and cache can fill [1]."""
    c = constants("serving")
    return c["addressable_memory_fraction"] * c["memory_utilization_fraction"]


def weight_bytes_per_chip(network: LoweredNetwork, degrees: Sequence[int], mixes: Sequence[PrecisionMix]) -> FloatArray:
    """Stored weights of one chip of a tensor-parallel group, shape (n_degrees, n_mixes) [B]."""
    return np.stack([stage_weight_bytes(network, ParallelPlan(degree), mixes) for degree in degrees])


def stage_weight_bytes(network: LoweredNetwork, plan: ParallelPlan, mixes: Sequence[PrecisionMix]) -> FloatArray:
    """
    Return the stored weights of the fullest chip of a plan, shape (n_mixes,) [B].

    Further groups with tokens of their own hold all but the routed experts again; experts are dealt whole. A stage
    of a pipeline holds the most layers that any does and the larger of embedding and output head. What is no matrix
    stays in 16 bit.
    """
    cut = split(network, plan.tensor_parallel)
    elements = weight_elements_per_module(cut)
    if plan.attention_data_parallel > 1:
        elements |= _dealt_experts(network, plan.stage_chips)
    share = stage_share(network.n_layers, plan.pipeline_parallel)
    stored = []
    for mix in mixes:
        of_module = {name: count * _bits(mix, name) / 8.0 for name, count in elements.items()}
        ends = [of_module.pop(name, 0.0) for name in ("embedding", "output_head")]
        at_ends = sum(ends) if plan.pipeline_parallel == 1 else max(ends)
        stored.append(sum(of_module.values()) * share + at_ends)
    return np.array(stored)


def _dealt_experts(network: LoweredNetwork, n_chips: int) -> dict[str, float]:
    """Elements of the routed experts on the fullest of the chips that they are dealt to whole, by module."""
    elements: dict[str, float] = {}
    for linear in (o for o in network.linears if o.rows == "routed"):
        held = math.ceil(linear.n_experts / n_chips) / linear.n_experts
        elements[linear.module] = elements.get(linear.module, 0.0) + matrix_elements(linear) * held
    return elements


def plans_that_fit(scenario: ServingScenario) -> dict[ParallelPlan, list[int]]:
    """
    Return the ways to share a stage and for each the depths of a pipeline, of those that may hold the network.

    Depths at which not even the largest memory holds one sequence in some mix are left out, and ways that no depth
    is left of. All of them where none does, so that the excess shows, and where the largest memory is not known.
    """
    network, system = scenario.network, scenario.system
    pools = 2 if scenario.scheduling == "disaggregated" else 1
    rooms = {
        plan: system.n_chips // plan.stage_chips
        for plan in stage_plans(network, system.n_chips, system.n_chips_per_node)
    }
    found = {
        plan: [p for p in pipeline_depths(network.n_layers, room) if p * pools <= room]
        for plan, room in rooms.items()
        if pools <= room
    }
    if not found:
        raise ValueError(f"disaggregated scheduling needs chips for an engine of either pool, got {system.n_chips}")
    if scenario.largest_memory_bytes is None:
        return found
    usable = scenario.largest_memory_bytes * usable_memory_fraction()
    fitting = {
        plan: [p for p in depths if _holds_one(scenario, dataclasses.replace(plan, pipeline_parallel=p), usable)]
        for plan, depths in found.items()
    }
    return {plan: depths for plan, depths in fitting.items() if depths} or found


def _holds_one(scenario: ServingScenario, plan: ParallelPlan, usable_bytes: float) -> bool:
    """Whether a sequence for each stage fits beside the weights in some mix."""
    return bool(_sequences_held(usable_bytes, *scenario_memory_bytes(scenario, plan)).max() >= 1.0)


def scenario_memory_bytes(scenario: ServingScenario, plan: ParallelPlan) -> tuple[FloatArray, FloatArray]:
    """What the fullest chip of a plan keeps, as `plan_memory_bytes`."""
    draft = None if scenario.speculation is None else scenario.speculation.draft
    return plan_memory_bytes(scenario.network, plan, scenario.mixes, scenario.requests.reserved_tokens, draft)


def draft_degree(draft: LoweredNetwork, tensor_parallel: int) -> int:
    """Largest divisor of a group's chips that leaves a head of a draft network to each; the rest repeat its work."""
    heads = min((a.n_heads for a in draft.attentions), default=tensor_parallel)
    return max(t for t in divisors(tensor_parallel) if t <= heads)


def plan_memory_bytes(
    network: LoweredNetwork,
    plan: ParallelPlan,
    mixes: Sequence[PrecisionMix],
    tokens: float,
    draft: LoweredNetwork | None = None,
) -> tuple[FloatArray, FloatArray]:
    """
    Return what the fullest chip of a plan keeps; a draft network is whole on the last stage, with its own cache.

    Returns
    -------
    weights, cache : arrays of shape (n_mixes,)
        Stored weights, and what sequences of `tokens` tokens keep on one chip, one for each stage: the micro-batches
        of a pipeline are all of one size. [B]
    """
    depth = plan.pipeline_parallel
    sequence = sequence_bytes_per_chip(network, [plan.tensor_parallel], mixes, tokens)[0]
    weights, cache = stage_weight_bytes(network, plan, mixes), sequence * depth * stage_share(network.n_layers, depth)
    if draft is None:
        return weights, cache
    own = ParallelPlan(draft_degree(draft, plan.tensor_parallel))
    more, kept = plan_memory_bytes(draft, own, mixes, tokens)
    return weights + more, cache + kept * depth


def _bits(mix: PrecisionMix, module: str) -> float:
    return mix.weight_bits(module) if module in mix.weight_format else 16.0


def sequence_bytes_per_chip(
    network: LoweredNetwork, degrees: Sequence[int], mixes: Sequence[PrecisionMix], tokens: float
) -> FloatArray:
    """
    Return what one sequence of `tokens` tokens keeps on one chip: cache, cut by windows, and recurrent states.

    Returns
    -------
    array of shape (n_degrees, n_mixes)
        [B]
    """
    table = np.empty((len(degrees), len(mixes)))
    for i, degree in enumerate(degrees):
        cut = split(network, degree)
        cached = [a for a in cut.attentions if a.cached]
        elements = sum(
            a.count * a.kv_elements_per_token * (min(tokens, a.window_tokens) if a.window_tokens else tokens)
            for a in cached
        )
        state_bytes = sum(s.count * s.state_elements for s in cut.states) * STATE_BYTES
        table[i] = [elements * mix.kv_bits / 8.0 + state_bytes for mix in mixes]
    return table


def free_memory_fraction(designs: DesignBatch, weight_bytes: FloatArray) -> FloatArray:
    """
    Return the share of the usable memory that weights and reserve leave, shape (n_designs, n_alternatives) [1].

    Below `CAPACITY_CRITICAL_FRACTION` the batch follows from a small difference of large numbers.
    """
    taken = weight_bytes + constants("serving")["activation_reserve_bytes"]
    return np.asarray(1.0 - taken / usable_memory_bytes(designs)[:, None])


def largest_batch(designs: DesignBatch, weight_bytes: FloatArray, sequence_bytes: FloatArray) -> FloatArray:
    """
    Return how many sequences the memory of one group holds, each with its whole length reserved.

    Parameters
    ----------
    designs : DesignBatch
        Of n_designs designs.
    weight_bytes, sequence_bytes : arrays of shape (n_alternatives,)
        On one chip. [B]

    Returns
    -------
    array of shape (n_designs, n_alternatives)
        Not rounded; below 1 (or negative) where the network does not fit. [1]
    """
    return _sequences_held(usable_memory_bytes(designs)[:, None], weight_bytes, sequence_bytes)


def memory_excess_fraction(
    designs: DesignBatch,
    weight_bytes: FloatArray,
    sequence_bytes: FloatArray,
    batch: FloatArray,
    further_bytes: FloatArray | None = None,
) -> FloatArray:
    """
    Return by which share weights, activations and the cache of `batch` sequences exceed the usable memory.

    At most 0 exactly where `batch` is at most `largest_batch`, with `further_bytes` of shape (n_designs,) of another
    memory beside it.

    Parameters
    ----------
    designs : DesignBatch
        Of n_designs designs.
    weight_bytes, sequence_bytes, batch : arrays of shape (n_alternatives,) or (n_designs, n_alternatives)
        On one chip [B], and sequences of its group [1].

    Returns
    -------
    array of shape (n_designs, n_alternatives)
        [1]
    """
    usable = usable_memory_bytes(designs) if further_bytes is None else usable_memory_bytes(designs) + further_bytes
    needed = needed_memory_bytes(weight_bytes, sequence_bytes, batch)
    return np.asarray(needed / np.maximum(usable[:, None], 1.0) - 1.0)


def needed_memory_bytes(weight_bytes: FloatArray, sequence_bytes: FloatArray, batch: FloatArray) -> FloatArray:
    """Return weights, activations and the cache of `batch` sequences on one chip, of the broadcast shape [B]."""
    c = constants("serving")
    cache = batch * np.maximum(sequence_bytes, 1.0) / c["kv_pool_fraction"]
    return np.asarray(weight_bytes + c["activation_reserve_bytes"] + cache)


def _sequences_held(
    usable_bytes: FloatArray | float, weight_bytes: FloatArray, sequence_bytes: FloatArray
) -> FloatArray:
    """Sequences that find room beside weights and activations, not rounded [1]."""
    c = constants("serving")
    free = usable_bytes - weight_bytes - c["activation_reserve_bytes"]
    return np.asarray(free * c["kv_pool_fraction"] / np.maximum(sequence_bytes, 1.0))
