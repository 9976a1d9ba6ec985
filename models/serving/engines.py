"""Engines of many designs side by side: the time of their passes under a parallel plan each, and what they hold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.architectures.lowered import LoweredNetwork
from models.architectures.training import EDGE_MODULES
from models.checks import FloatArray, IntArray
from models.hardware.design import DesignBatch, peak_flop_per_s
from models.hardware.energy import EnergyPerAccess, energy_per_access
from models.hardware.rates import RATE_CLASSES, rate_ratios
from models.operators.collective import collective_latency_ratio, collective_time_s
from models.operators.factor_tables import FactorTables
from models.operators.step import StepActivity, StepProgram, run_step
from models.operators.step_energy import settle
from models.precision.mix import PrecisionMix
from models.serving.capacity import largest_batch, sequence_bytes_per_chip, weight_bytes_per_chip
from models.serving.engine_terms import EngineTraits
from models.serving.expert_exchange import ACTIVATION_BYTES
from models.serving.programs import StepLoad, compile_step
from models.serving.scenario import Alternatives


@dataclass(frozen=True)
class Engines:
    """
    Engines that run one network, each on a group of equal chips; arrays of shape (n_engines,).

    A group is `tensor_parallel` x `pipeline_parallel` chips, or with `attention_data_parallel` above 1 that many
    chips with sequences of their own among which whole experts are spread.
    """

    network: LoweredNetwork
    mixes: tuple[PrecisionMix, ...]
    designs: DesignBatch
    mix: IntArray
    tensor_parallel: IntArray
    pipeline_parallel: FloatArray
    attention_data_parallel: FloatArray
    decode_on_lanes: FloatArray
    """1 where the engine has no decode attention for these heads that uses the matrix arrays."""
    step_overhead_s: float
    routing_skew: float = 0.0
    host_sharing_exponent: float | None = None
    """How fast the host's links collapse with the chips that share them; None for an unknown host."""
    scheduled: bool = True
    """Whether the engine decides before every step what is in it; a static batch runs through as it began."""

    @property
    def n_engines(self) -> int:
        """Number of engines."""
        return len(self.mix)


@dataclass(frozen=True)
class PassTime:
    """
    One pass over the network, arrays of shape (n_engines, n_points).

    `time_s` is that of all stages one after the other, each with the host time of a step; `bound_s` what no chip of
    these data-sheet rates beats.
    """

    time_s: FloatArray
    bound_s: FloatArray
    slowdown: FloatArray


def pass_time(
    engines: Engines, load: StepLoad, tables: FactorTables, access: EnergyPerAccess | None = None
) -> PassTime:
    """
    Return the time of one pass of a microbatch through all layers of each engine, at the settled clock.

    Layers are dealt evenly to the stages of a pipeline; the output head sits in the last, and every stage takes as
    long as that one, since they run in step. The pass then costs `pipeline_parallel` such stages.

    Parameters
    ----------
    engines : Engines
        Of n_engines engines.
    load : StepLoad
        Of one microbatch, arrays of shape (n_engines, n_points); with attention data parallel of one chip.
    tables : FactorTables
        Shared rows.
    access : EnergyPerAccess, optional
        Of the designs, worked out where left out.

    Returns
    -------
    PassTime
        Arrays of shape (n_engines, n_points).
    """
    shape = load.tokens.shape
    program = _program(engines, load)
    index = np.arange(load.tokens.size).reshape(shape)
    activity = run_step(program, engines.designs, tables, alternatives=index, keep_terms=True)
    settled = settle(activity, access or energy_per_access(engines.designs), engines.designs.tdp_w)
    stages = engines.pipeline_parallel[:, None]
    edge_s = sum((t.time_s for name, t in activity.terms.items() if _is_edge(name)), np.zeros(shape))
    last_s = (activity.time_s - edge_s) / stages + edge_s
    between_s = _handover_s(engines, load.tokens)
    time_s = stages * (last_s * settled.slowdown + between_s + engines.step_overhead_s)
    return PassTime(time_s, _bound_s(engines.designs, activity), settled.slowdown)


def _program(engines: Engines, load: StepLoad) -> StepProgram:
    """The passes of all engines as alternatives of one program, engine after engine."""
    shape = load.tokens.shape
    degree, mix = (np.broadcast_to(v[:, None], shape).ravel() for v in (engines.tensor_parallel, engines.mix))
    groups, on_lanes = (
        np.broadcast_to(v[:, None], shape).ravel() for v in (engines.attention_data_parallel, engines.decode_on_lanes)
    )
    traits = EngineTraits(engines.host_sharing_exponent, engines.scheduled, on_lanes, dispatched=False)
    choices = Alternatives(degree, groups.astype(np.int64), mix, load.tokens.ravel())
    return compile_step(
        engines.network, engines.mixes, choices, _flat(load), overhead_s=0.0, routing_skew=engines.routing_skew,
        traits=traits,
    )  # fmt: skip


def _flat(load: StepLoad) -> StepLoad:
    return StepLoad(*(np.asarray(getattr(load, name)).ravel() for name in load.__dataclass_fields__))


def _is_edge(term_name: str) -> bool:
    return term_name.startswith(tuple(EDGE_MODULES))


def _handover_s(engines: Engines, tokens: FloatArray) -> FloatArray:
    """Activations of a microbatch from one stage to the next, shape (n_engines, n_points) [s]."""
    chips = np.where(engines.pipeline_parallel > 1, 2.0, 1.0)[:, None]
    message = tokens * engines.network.hidden_size * ACTIVATION_BYTES / engines.tensor_parallel[:, None]
    return collective_time_s(
        "send_recv", chips, message, engines.designs.scale_up_bytes_per_s,
        host_bytes_per_s=engines.designs.host_bytes_per_s,
        latency_scale_ratio=collective_latency_ratio(engines.designs),
    )  # fmt: skip


def _bound_s(designs: DesignBatch, activity: StepActivity) -> FloatArray:
    """Arithmetic at the peaks or the least traffic at the bandwidth, what is slower, (n_engines, n_points) [s]."""
    rates = dict(zip(RATE_CLASSES, rate_ratios(designs).T, strict=True))
    peak = peak_flop_per_s(designs)
    busy_s = np.zeros(activity.time_s.shape)
    for name, macs in activity.macs.items():
        busy_s += 2.0 * macs / np.where(rates[name] > 0, peak * rates[name], peak)[:, None]
    traffic_s = sum((each.memory_s for each in activity.terms.values()), np.zeros(activity.time_s.shape))
    return np.maximum(busy_s, traffic_s)


def sequences_held(engines: Engines, tokens: FloatArray) -> FloatArray:
    """
    Return how many sequences of `tokens` tokens (shape (n_engines,)) the memory of each engine holds, not rounded.

    Whole lengths are reserved. Stages of a pipeline share layers and cache evenly; with attention data parallel
    every chip keeps sequences of its own.

    Returns
    -------
    array of shape (n_engines,)
        Below 1 where the network does not fit. [1]
    """
    degrees, place = np.unique(engines.tensor_parallel, return_inverse=True)
    weights = weight_bytes_per_chip(engines.network, [int(t) for t in degrees], engines.mixes)[place, engines.mix]
    experts = _expert_bytes(engines)
    share = engines.attention_data_parallel
    weights = (weights - experts + experts / share) / engines.pipeline_parallel
    held = np.array([
        sequence_bytes_per_chip(engines.network, [int(t)], [engines.mixes[m]], float(n))[0, 0]
        for t, m, n in zip(engines.tensor_parallel, engines.mix, tokens, strict=True)
    ])  # fmt: skip
    batch = largest_batch(engines.designs, weights[:, None], (held / engines.pipeline_parallel)[:, None])
    return np.asarray(batch[:, 0] * share)


def _expert_bytes(engines: Engines) -> FloatArray:
    """Routed expert weights of one chip before they are spread over the data-parallel chips, shape (n_engines,) [B]."""
    return np.array([
        sum(o.n_in * o.n_out * max(o.n_experts, 1) * o.count * engines.mixes[m].weight_bits(o.module) / 8.0
            for o in engines.network.linears if o.rows == "routed")
        for m in engines.mix
    ]) * (engines.attention_data_parallel > 1)  # fmt: skip
