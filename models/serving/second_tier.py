"""
What a second, slower memory holds where the main memory has no room: cold weights, experts, cache; and its price.

Of what a chip keeps, the embedding table is read a row a token, an expert where a token is routed to it, the cache of a
micro-batch once for every pass of all of them, and all other weights in every step. Reads that are known beforehand run
beside the step; those of experts follow the router and wait. With t the step without them, B the bandwidth of the tier,
P bytes read beforehand and x bytes of experts of which a step meets the share f, a step takes

    max(t, P / B) + f x / B.

What must move is the overflow o of the main memory. The placement that makes this least is exact: the embedding goes
first; cache, of which a step reads the share g, and then other weights fill what the tier reads beside the step; beyond
that whichever of cache and experts is met less goes first. P is convex in the bytes placed and the cost of experts
linear, so no other placement is faster. More main memory, capacity or bandwidth never makes a step longer.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.architectures.lowered import LoweredNetwork, matrix_elements, weight_elements_per_module
from models.architectures.parallel import split
from models.architectures.plans import ParallelPlan, stage_share
from models.checks import FloatArray, IntArray
from models.hardware.design import DesignBatch
from models.hardware.memory import (
    second_tier_bandwidth_bytes_per_s,
    second_tier_capacity_bytes,
    second_tier_column,
)
from models.operators.moe import expected_distinct_experts
from models.operators.step_energy import SettledStep
from models.precision.mix import PrecisionMix
from models.serving.capacity import needed_memory_bytes, usable_memory_bytes, usable_memory_fraction
from models.tables import constants


@dataclass(frozen=True)
class ColdContents:
    """What one chip keeps that not every step reads whole, arrays of shape (n_alternatives,) or as taken from it."""

    embedding_bytes: FloatArray
    expert_bytes: FloatArray
    expert_share: FloatArray
    """Share of the experts that a step meets."""
    cache_share: FloatArray
    """Share of the cache that a step reads: of one micro-batch among those of a pipeline."""

    def take(self, index: IntArray) -> ColdContents:
        """The contents at `index`, in its shape."""
        return ColdContents(*[getattr(self, field.name)[index] for field in dataclasses.fields(self)])


@dataclass(frozen=True)
class Placement:
    """What lies in the second tier, and what a step reads of it; arrays of shape (n_designs, n_alternatives)."""

    embedding_bytes: FloatArray
    expert_bytes: FloatArray
    cache_bytes: FloatArray
    weight_bytes: FloatArray
    """Weights that every step reads."""
    read_bytes: FloatArray
    """In a step."""
    time_s: FloatArray
    """Of a step, reads included."""

    @property
    def held_bytes(self) -> FloatArray:
        """All of it [B]."""
        return self.embedding_bytes + self.expert_bytes + self.cache_bytes + self.weight_bytes


def cold_contents(
    network: LoweredNetwork,
    plans: Sequence[ParallelPlan],
    mixes: Sequence[PrecisionMix],
    plan_index: IntArray,
    mix_index: IntArray,
    tokens: FloatArray,
    routing_skew: float,
) -> ColdContents:
    """
    Return the cold contents of each alternative.

    Parameters
    ----------
    network : LoweredNetwork
        Uncut.
    plans, mixes : sequences
        What `plan_index` and `mix_index`, arrays of shape (n_alternatives,), stand for.
    tokens : array of shape (n_alternatives,)
        Tokens of one group in a step. [1]
    routing_skew : float
        Zipf exponent of the popularity of experts; those in the tier count as popular as the mean. [1]
    """
    held = np.array([[_held_bytes(network, plan, mix) for mix in mixes] for plan in plans])[plan_index, mix_index]
    routed = [o for o in network.linears if o.rows == "routed"]
    groups = np.array([plan.attention_data_parallel for plan in plans], dtype=np.float64)[plan_index]
    share = np.ones(len(tokens))
    if routed:
        met = expected_distinct_experts(routed[0].n_experts, routed[0].top_k, tokens * groups, routing_skew)
        share = np.minimum(met / routed[0].n_experts, 1.0)
    depth = np.array([plan.pipeline_parallel for plan in plans], dtype=np.float64)[plan_index]
    return ColdContents(held[:, 0], held[:, 1], share, 1.0 / depth)


def _held_bytes(network: LoweredNetwork, plan: ParallelPlan, mix: PrecisionMix) -> tuple[float, float]:
    """Embedding table and routed experts on the fullest chip of a plan [B]."""
    elements = weight_elements_per_module(split(network, plan.tensor_parallel))
    embedding = 0.0
    if plan.pipeline_parallel == 1:  # in a deeper one the last stage, with the output head, is as full
        embedding = elements.get("embedding", 0.0) * _bytes(mix, "embedding")
    experts = 0.0
    for linear in (o for o in network.linears if o.rows == "routed"):
        dealt = math.ceil(linear.n_experts / plan.stage_chips) / linear.n_experts
        whole = matrix_elements(linear) * dealt if plan.attention_data_parallel > 1 else None
        experts += (elements[linear.module] if whole is None else whole) * _bytes(mix, linear.module)
    return embedding, experts * stage_share(network.n_layers, plan.pipeline_parallel)


def _bytes(mix: PrecisionMix, module: str) -> float:
    return (mix.weight_bits(module) if module in mix.weight_format else 16.0) / 8.0


def tier_bytes(designs: DesignBatch) -> FloatArray:
    """Second tier left for what the main memory has no room for, shape (n_designs,) [B]."""
    return second_tier_capacity_bytes(designs) * usable_memory_fraction()


def best_placement(
    designs: DesignBatch,
    contents: ColdContents,
    weight_bytes: FloatArray,
    sequence_bytes: FloatArray,
    batch: FloatArray,
    step_s: FloatArray,
) -> Placement:
    """
    Return the placement under which a step is shortest.

    Parameters
    ----------
    designs : DesignBatch
        Of n_designs designs.
    contents : ColdContents
        Of the alternatives.
    weight_bytes, sequence_bytes, batch : arrays that broadcast to shape (n_designs, n_alternatives)
        Weights of a chip, cache of a sequence, and sequences. [B], [B], [1]
    step_s : array of shape (n_designs, n_alternatives)
        A step whose every byte comes from the main memory. [s]

    Returns
    -------
    Placement
        Nothing is placed where the main memory holds all.
    """
    needed = needed_memory_bytes(weight_bytes, sequence_bytes, batch)
    overflow = np.maximum(needed - usable_memory_bytes(designs)[:, None], 0.0)
    rate = np.maximum(second_tier_bandwidth_bytes_per_s(designs), 1e-9)[:, None]
    cache = needed - weight_bytes - constants("serving")["activation_reserve_bytes"]
    embedding = np.minimum(overflow, contents.embedding_bytes)
    rest = overflow - embedding
    g, f = contents.cache_share, contents.expert_share
    hidden = step_s * rate
    # stored bytes whose reads fit beside the step: cache first, then other weights
    free = np.where(hidden < g * cache, hidden / g, cache + np.maximum(hidden - g * cache, 0.0))
    wanted = np.maximum(free, np.where(g <= f, cache, 0.0))
    others = np.maximum(weight_bytes - contents.embedding_bytes - contents.expert_bytes, 0.0)
    wanted = np.minimum(wanted, cache + others)
    known = np.clip(wanted, np.maximum(rest - contents.expert_bytes, 0.0), rest)
    experts, in_cache = rest - known, np.minimum(known, cache)
    weights = known - in_cache
    ahead = g * in_cache + weights
    read = ahead + f * experts
    latency_s = np.where(read > 0, second_tier_column("latency_s", designs.second_tier)[:, None], 0.0)
    time_s = np.maximum(step_s, ahead / rate) + f * experts / rate + latency_s
    return Placement(embedding, experts, in_cache, weights, read, time_s)


def with_reads(
    settled: SettledStep, time_s: FloatArray, read_bytes: FloatArray, j_per_byte: FloatArray, static_w: FloatArray
) -> SettledStep:
    """
    Return a settled step that takes `time_s` and reads the second tier beside the main memory.

    Bytes of the tier pass through the main memory, whose traffic stays as it is. Waiting takes static power alone.
    """
    more_j = read_bytes * j_per_byte[:, None] + static_w[:, None] * (time_s - settled.time_s)
    return SettledStep(time_s, settled.energy_j + more_j, settled.slowdown)


def prompt_read_s(designs: DesignBatch, placement: Placement, prompt_s: FloatArray) -> FloatArray:
    """Time of a prompt in a stage that reads all weights in the tier: those of experts wait for the router [s]."""
    rate = np.maximum(second_tier_bandwidth_bytes_per_s(designs), 1e-9)[:, None]
    return np.asarray(np.maximum(prompt_s, placement.weight_bytes / rate) + placement.expert_bytes / rate)
