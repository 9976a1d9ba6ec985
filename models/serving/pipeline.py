"""
Pipelines of a serving engine: how deep each design needs one, and what a stage of it does.

A pipeline of p stages runs p micro-batches at once, so it is never empty: while one stage works on a micro-batch the
others work on theirs, and each sequence gains a token once its micro-batch has passed all of them. Against the same
micro-batch on an engine of fewer stages a deeper pipeline has only one advantage, the memory that fewer layers a chip
leave. Proof, for depths p < q of `pipeline_depths` and a stage that takes

    S(p) = ceil(L/p)/L layers + edge + handover(p)

with the time of all layers, of what a pass does once (head, host) and of handing rows on, all independent of p but
for handover(p), which does not fall with p. Then p S(p) <= q S(q), since p ceil(L/p) rises along the depths. A token
takes p S(p), so time per token and the pass of a prompt are no longer with p stages; a chip serves b / (p S(p))
sequences' tokens a second, so rate per chip is no lower; activity p x (that of a stage) is no higher, and the settled
time and energy of a step rise with both its time and its activity. So the shallowest pipeline whose memory holds the
micro-batches is best in every rate, latency and energy, and no other is evaluated. It gets no deeper with more
memory, so a box of designs is bounded by that of its upper corner.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.architectures.lowered import LoweredNetwork
from models.architectures.plans import ParallelPlan
from models.checks import FloatArray, IntArray
from models.hardware.design import DesignBatch
from models.operators.calibration import UNCALIBRATED, Calibration
from models.operators.collective_terms import Place, path_columns, two_level_terms
from models.operators.factor_tables import FactorTables
from models.operators.step import StepActivity, StepProgram, run_parts, run_step, step_program, term
from models.serving.capacity import memory_excess_fraction, scenario_memory_bytes
from models.serving.engine_terms import EngineTraits
from models.serving.expert_exchange import ACTIVATION_BYTES
from models.serving.scenario import Alternatives, ServingScenario


@dataclass(frozen=True)
class PipelineOptions:
    """
    Depths that each alternative may have, shallowest first; arrays of shape (n_alternatives, n_depths).

    A shorter list repeats its last entry. `weight_bytes` are those of the fullest chip, `sequence_bytes` what the
    sequences of all micro-batches keep on one chip for each sequence of one micro-batch.
    """

    depth: IntArray
    weight_bytes: FloatArray
    sequence_bytes: FloatArray
    stage_chips: IntArray
    """Chips that share a stage, shape (n_alternatives, 1)."""

    def take(self, index: IntArray) -> PipelineOptions:
        """The options of some alternatives, in the shape of `index` and then n_depths."""
        return PipelineOptions(
            self.depth[index], self.weight_bytes[index], self.sequence_bytes[index], self.stage_chips[index]
        )


@dataclass(frozen=True)
class Pipelines:
    """The shallowest pipelines that fit, arrays of shape (n_designs, n_alternatives)."""

    depth: IntArray
    weight_bytes: FloatArray
    sequence_bytes: FloatArray
    stage_chips: IntArray


def pipeline_options(
    scenario: ServingScenario, choices: Alternatives, depths: Sequence[tuple[ParallelPlan, Sequence[int]]]
) -> PipelineOptions:
    """
    Return the depths of every alternative, and their memory.

    Parameters
    ----------
    choices : Alternatives
        As many for each plan, in the order of `depths`.
    depths : sequence
        Plan of a stage and its depths, rising. Those at which a group would run more than the scenario's largest batch
        are left out, the first is always there.
    """
    width, n_each = max(len(several) for _, several in depths), len(choices) // len(depths)
    parts = []
    for i, (plan, several) in enumerate(depths):
        own = choices.take(np.arange(i * n_each, (i + 1) * n_each))
        fits = own.batch[:, None] * np.array(several) <= scenario.max_batch
        place = np.minimum(np.arange(width), np.maximum(fits.sum(axis=1), 1)[:, None] - 1)
        memory = [scenario_memory_bytes(scenario, dataclasses.replace(plan, pipeline_parallel=p)) for p in several]
        held, kept = (np.array([each[which] for each in memory]) for which in (0, 1))
        mix = own.mix[:, None]
        parts.append((np.array(several)[place], held[place, mix], kept[place, mix]))
    stage_chips = (choices.tensor_parallel * choices.attention_data_parallel)[:, None]
    depth, weights, cache = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return PipelineOptions(depth, weights, cache, stage_chips)


def shallowest_pipelines(options: PipelineOptions, designs: DesignBatch, batch: FloatArray) -> Pipelines:
    """
    Return for each design the first depth whose memory holds a micro-batch for every stage, else the last.

    Parameters
    ----------
    options : PipelineOptions
        Of shape (n_alternatives, n_depths) or (n_designs, n_alternatives, n_depths).
    designs : DesignBatch
        Of n_designs designs.
    batch : array of shape (n_alternatives,) or (n_designs, n_alternatives)
        Sequences of a micro-batch. [1]
    """
    last = options.depth.shape[-1] - 1
    shape = (designs.n_designs, options.depth.shape[-2])
    chosen = np.full(shape, last)
    for k in range(last - 1, -1, -1):
        excess = memory_excess_fraction(designs, options.weight_bytes[..., k], options.sequence_bytes[..., k], batch)
        chosen = np.where(excess <= 0, k, chosen)

    def pick(values: NDArray[Any]) -> NDArray[Any]:
        full = np.broadcast_to(values, (*shape, last + 1))
        return np.take_along_axis(full, chosen[..., None], axis=-1)[..., 0]

    return Pipelines(
        pick(options.depth), pick(options.weight_bytes), pick(options.sequence_bytes),
        np.broadcast_to(options.stage_chips[..., 0], shape),
    )  # fmt: skip


@dataclass(frozen=True)
class Handover:
    """Programs that send a micro-batch's rows to the next stage: inside a node, and to another."""

    inside: StepProgram
    outside: StepProgram
    n_chips_per_node: int


def handover_programs(
    network: LoweredNetwork,
    choices: Alternatives,
    tokens: FloatArray,
    n_chips_per_node: int,
    traits: EngineTraits,
    calibration: Calibration = UNCALIBRATED,
) -> Handover:
    """
    Return the hand-over of `tokens` rows of shape (n_alternatives,).

    Each chip of a tensor-parallel group sends its share of the rows, which the group that takes them in gathers. No
    other work covers it.
    """
    host, lie = traits.host_columns, dataclasses.replace(traits.interconnect, overlap_fraction=0.0)
    rows_bytes = tokens * network.hidden_size * ACTIVATION_BYTES
    degree, node = choices.tensor_parallel.astype(np.float64), float(n_chips_per_node)
    stage = choices.tensor_parallel * choices.attention_data_parallel
    gather = two_level_terms(
        "handover_gather", "all_gather", 1.0, n_chips=degree, place=Place(node), message_bytes=rows_bytes,
        interconnect=lie, **host,
    )  # fmt: skip
    inside, outside = (
        step_program(
            [
                term(
                    "handover", "collective", "send_recv", 1.0, n_chips=np.full(len(choices), 2.0),
                    message_bytes=rows_bytes / degree, scale_out=place, exposed_fraction=1.0, **host,
                    **path_columns(lie, "send_recv", 2.0, np.maximum(stage // apart, 1), scale_out=place > 0),
                ),
                *gather,
            ],
            overhead_s=0.0,
            calibration=calibration,
        )
        for place, apart in ((0.0, 1), (1.0, n_chips_per_node))
    )  # fmt: skip
    return Handover(inside, outside, n_chips_per_node)


@dataclass(frozen=True)
class Reach:
    """How far the pipelines of a batch of designs reach."""

    deep: bool
    """Whether some have several stages."""
    beyond_node: bool
    """Whether some have stages in several nodes."""


@dataclass(frozen=True)
class PassParts:
    """What a micro-batch asks of a stage, arrays of shape (n_designs, n_alternatives) each."""

    layers: StepActivity
    """All layers of the network."""
    edge: StepActivity
    """What a pass does once."""
    inside: StepActivity | None
    """Hand-over to a stage of the same node; None where no pipeline is deeper than one stage."""
    outside: StepActivity | None
    """Hand-over to a stage of another node; None where no pipeline leaves its node."""
    n_layers: int
    n_chips_per_node: int


def pass_parts(
    program: StepProgram,
    handover: Handover,
    n_layers: int,
    designs: DesignBatch,
    tables: FactorTables,
    alternatives: IntArray | None,
    reach: Reach,
) -> PassParts:
    """The parts of a pass on each design, those of a hand-over where pipelines reach so far."""
    layers, edge = run_parts(program, designs, tables, alternatives=alternatives)
    inside, outside = (
        run_step(each, designs, tables, alternatives=alternatives) if wanted else None
        for each, wanted in ((handover.inside, reach.deep), (handover.outside, reach.deep and reach.beyond_node))
    )
    return PassParts(layers, edge, inside, outside, n_layers, handover.n_chips_per_node)


def stage_activity(parts: PassParts, depth: IntArray, stage_chips: IntArray) -> StepActivity:
    """
    Return what the busiest chip of a stage does for one micro-batch.

    The last stage holds as many layers as any and the output head; all stages keep in step with it, and each is
    charged its work.

    Parameters
    ----------
    depth, stage_chips : arrays that broadcast to shape (n_designs, n_alternatives)
        Stages, and chips of one stage. [1]
    """
    share = np.ceil(parts.n_layers / depth) / parts.n_layers
    layers, edge = parts.layers, parts.edge
    time_s, link = layers.time_s * share + edge.time_s, layers.link_bytes * share + edge.link_bytes
    if parts.inside is not None:
        slowest_s = parts.inside.time_s
        if parts.outside is not None:
            leaves = stage_chips * depth > parts.n_chips_per_node
            slowest_s = np.maximum(slowest_s, np.where(leaves, parts.outside.time_s, 0.0))
        time_s = time_s + np.where(depth > 1, slowest_s, 0.0)
        link = link + np.where(depth > 1, parts.inside.link_bytes, 0.0)
    names = dict.fromkeys([*layers.macs, *edge.macs])  # in one order, so that sums over them are the same everywhere
    macs = {name: _sum(layers.macs.get(name), edge.macs.get(name), share) for name in names}
    return StepActivity(
        time_s, macs, layers.dram_bytes * share + edge.dram_bytes, layers.vector_ops * share + edge.vector_ops, link,
        layers.l2_bytes * share + edge.l2_bytes, {},
    )  # fmt: skip


def _sum(layers: FloatArray | None, edge: FloatArray | None, share: FloatArray) -> FloatArray:
    """A share of the layers' work and all of the edge's, either of which may be missing."""
    if layers is None:
        return np.asarray(edge)
    return np.asarray(layers * share if edge is None else layers * share + edge)
