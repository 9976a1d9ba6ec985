"""Steady state of continuous batching: rate, latencies and energy of every design and inner choice."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.architectures.lowered import LoweredNetwork
from models.architectures.plans import ParallelPlan, require_plan
from models.checks import FloatArray, IntArray
from models.evaluation import Figures, ScenarioEvaluation, alternative_windows
from models.hardware.design import DesignBatch
from models.hardware.energy import EnergyPerAccess
from models.operators.factor_tables import FactorTables
from models.operators.step import StepProgram, run_step
from models.operators.step_energy import SettledStep
from models.serving.capacity import memory_excess_fraction, plans_that_fit
from models.serving.engine_terms import scenario_traits
from models.serving.pipeline import (
    Handover,
    PipelineOptions,
    Pipelines,
    handover_programs,
    pipeline_options,
    shallowest_pipelines,
    stage_activity,
)
from models.serving.pools import transfer_program
from models.serving.programs import StepLoad, compile_step
from models.serving.scenario import BATCH_GRID, Alternatives, ServingScenario, System, alternatives
from models.serving.second_tier import (
    ColdContents,
    Placement,
    best_placement,
    cold_contents,
    prompt_read_s,
    tier_bytes,
    with_reads,
)
from models.serving.service import Site, Work, one_pool, two_pools
from models.serving.speculation import draft_program, with_draft


@dataclass(frozen=True)
class CompiledServing:
    """A serving scenario as programs over alternatives (plan of a stage x mix x batch); knows nothing of designs."""

    scenario: ServingScenario
    choices: Alternatives
    step: StepProgram
    """One decode pass of a batch; with chunked scheduling the prompts' share of it is inside."""
    step_handover: Handover
    prompt: StepProgram
    """Whole prompts computed alone: alternatives are (plan x mix) at the 95th percentile, then at the mean."""
    prompt_handover: Handover
    prompt_index: IntArray
    """Alternative -> (plan x mix) of `prompt`."""
    pipelines: PipelineOptions
    draft: StepProgram | None
    """One pass of the draft network of speculative decoding."""
    transfer: StepProgram | None
    """Cache of a prompt on its way to another engine, by alternative of `prompt`; None where prompts stay."""
    cold: ColdContents | None = None
    """What a second tier may hold; None where everything lies in the main memory."""
    looks_at_prompts: bool = True
    """Whether prompts computed alone are looked at, see `without_prompts`."""

    def without_prompts(self) -> CompiledServing:
        """
        The same scenario with prompts computed alone left out, for bounds at less work.

        Where prompts share the steps of the others nothing but TTFT and the peak of the power follows from them. TTFT
        is then that of a step, which it is never below.
        """
        return dataclasses.replace(self, looks_at_prompts=self.scenario.scheduling != "chunked")

    @property
    def name(self) -> str:
        """Name of the scenario."""
        return self.scenario.name

    @property
    def system(self) -> System:
        """Chips that work together."""
        return self.scenario.system

    @property
    def program(self) -> StepProgram:
        """What one chip does over and over: a decode step with its share of prompts."""
        return self.step

    @property
    def n_alternatives(self) -> int:
        """Number of inner choices."""
        return len(self.choices)

    @property
    def windows(self) -> IntArray:
        """First and last alternative of each plan and mix, batches rising, shape (n_windows, 2)."""
        return alternative_windows(self.prompt_index)

    def used_links(self, alternatives: IntArray) -> frozenset[str]:
        """Links that some of the alternatives send over, in a stage or between those of a pipeline."""
        options = self.pipelines.take(alternatives)
        most = int((options.depth * options.stage_chips).max())
        most = self.system.n_chips if self.transfer is not None else most
        inside = {"scale_up"} if most > 1 and self.system.n_chips_per_node > 1 else set()
        return frozenset(inside | ({"scale_out"} if most > self.system.n_chips_per_node else set()))


def compile_serving(scenario: ServingScenario, plans: Sequence[ParallelPlan] | None = None) -> CompiledServing:
    """
    Return the programs of a scenario for every feasible plan, allowed mix and batch.

    Parameters
    ----------
    scenario : ServingScenario
    plans : sequence of ParallelPlan, optional
        Plans to compile just as they are, no two of which share a stage alike; where left out every way to share a
        stage, each in pipelines as deep as a design needs (`models.serving.pipeline`), unless the scenario states its
        plan.

    Raises
    ------
    ValueError
        If no precision mix is allowed, or the network makes no tokens one by one from its own context alone (an
        encoder, an encoder-decoder whose source would be read beside them), or the system cannot be dealt by the plan
        that the scenario states.
    """
    if not scenario.mixes:
        raise ValueError("a serving scenario needs at least one precision mix")
    require_served(scenario.network)
    if plans is None and scenario.plan is not None:
        plans = [_stated_plan(scenario, scenario.plan)]
    if plans is None:
        depths = list(plans_that_fit(scenario).items())
    else:
        depths = [(dataclasses.replace(plan, pipeline_parallel=1), [plan.pipeline_parallel]) for plan in plans]
    if scenario.offload:
        if scenario.scheduling == "disaggregated":
            raise ValueError("offload needs engines that do prompts and answers alike, got disaggregated scheduling")
        # a deeper pipeline may be faster than a shallower one that reads the second tier: each depth is an alternative
        depths = [(plan, [depth]) for plan, several in depths for depth in several]
    stages = [plan for plan, _ in depths]
    choices = alternatives(stages, len(scenario.mixes), [b for b in BATCH_GRID if b <= scenario.max_batch])
    one = alternatives(stages, len(scenario.mixes), [1])
    step_load, prompt_load = _step_load(scenario, choices), _prompt_load(scenario, one)
    prompts = one.take(np.tile(np.arange(len(one)), 2))
    return CompiledServing(
        scenario,
        choices,
        step=_program(scenario, choices, step_load),
        step_handover=_handover(scenario, choices, step_load.tokens),
        prompt=_program(scenario, prompts, prompt_load),
        prompt_handover=_handover(scenario, prompts, prompt_load.tokens),
        prompt_index=np.repeat(np.arange(len(one)), len(choices) // len(one)),
        pipelines=pipeline_options(scenario, choices, depths),
        draft=draft_program(
            scenario.speculation,
            scenario.mixes,
            choices,
            step_load,
            routing_skew=scenario.routing_skew,
            n_chips_per_node=scenario.system.n_chips_per_node,
            traits=scenario_traits(scenario),
            calibration=scenario.calibration,
        ),
        transfer=transfer_program(scenario, prompts) if scenario.scheduling == "disaggregated" else None,
        cold=_cold_contents(scenario, depths, choices, step_load) if scenario.offload else None,
    )


def _cold_contents(
    scenario: ServingScenario,
    depths: Sequence[tuple[ParallelPlan, Sequence[int]]],
    choices: Alternatives,
    load: StepLoad,
) -> ColdContents:
    plans = [dataclasses.replace(plan, pipeline_parallel=only) for plan, (only,) in depths]
    index = np.repeat(np.arange(len(plans)), len(choices) // len(plans))
    return cold_contents(
        scenario.network, plans, scenario.mixes, index, choices.mix, load.tokens, scenario.routing_skew
    )


def _stated_plan(scenario: ServingScenario, plan: ParallelPlan) -> ParallelPlan:
    """The plan of a scenario, if its system can be dealt by it."""
    system = scenario.system
    require_plan(scenario.network, plan, system.n_chips, system.n_chips_per_node)
    if scenario.scheduling == "disaggregated" and system.n_chips < 2 * plan.n_chips:
        raise ValueError(
            f"disaggregated scheduling needs chips for an engine of either pool, {2 * plan.n_chips}, "
            f"got {system.n_chips}"
        )
    return plan


_NOT_SERVED = {
    "encoder": "llm_serving needs a decoder: an encoder reads its input once and makes no tokens",
    "encoder_decoder": "llm_serving needs a decoder: cross attention over a source (rows 'source') is not served",
}
"""Kinds of network that are refused, and why."""


def require_served(network: LoweredNetwork) -> None:
    """Refuse, by name, a network that makes no tokens one by one from its own context alone."""
    if network.kind != "decoder":
        raise ValueError(f"{_NOT_SERVED[network.kind]}, got network '{network.name}'")


def _step_load(scenario: ServingScenario, choices: Alternatives) -> StepLoad:
    """Tokens of each sequence and, where scheduling is chunked, as much prompt as the batch uses up."""
    requests = scenario.requests
    chunked = 1.0 if scenario.scheduling == "chunked" else 0.0
    finished = choices.batch * scenario.tokens_per_step / requests.output_tokens * chunked
    verified = choices.batch * scenario.verified_tokens
    return StepLoad(
        tokens=verified + finished * requests.prompt_tokens,
        sampled=verified + finished,
        decoding=choices.batch,
        context_tokens=np.full(len(choices), requests.context_tokens),
        prompts=finished * requests.prompt_tokens / requests.effective_prompt_tokens,
        prompt_tokens=np.full(len(choices), requests.effective_prompt_tokens),
    )


def _prompt_load(scenario: ServingScenario, one: Alternatives) -> StepLoad:
    """One prompt alone: first at the 95th percentile of its length, then the mean work of one."""
    requests, half = scenario.requests, np.ones(len(one))
    return StepLoad(
        tokens=np.concatenate([half * requests.prompt_p95_tokens, half * requests.prompt_tokens]),
        sampled=np.ones(2 * len(one)),
        decoding=np.zeros(2 * len(one)),
        context_tokens=np.zeros(2 * len(one)),
        prompts=np.concatenate([half, half * requests.prompt_tokens / requests.effective_prompt_tokens]),
        prompt_tokens=np.concatenate([half * requests.prompt_p95_tokens, half * requests.effective_prompt_tokens]),
    )


def _program(scenario: ServingScenario, choices: Alternatives, load: StepLoad) -> StepProgram:
    return compile_step(
        scenario.network, scenario.mixes, choices, load,
        overhead_s=scenario.step_overhead_s, routing_skew=scenario.routing_skew,
        n_chips_per_node=scenario.system.n_chips_per_node, traits=scenario_traits(scenario),
        calibration=scenario.calibration,
    )  # fmt: skip


def _handover(scenario: ServingScenario, choices: Alternatives, tokens: FloatArray) -> Handover:
    traits, node = scenario_traits(scenario), scenario.system.n_chips_per_node
    return handover_programs(scenario.network, choices, tokens, node, traits, scenario.calibration)


def steady_state(
    compiled: CompiledServing,
    performance: DesignBatch,
    access: EnergyPerAccess,
    figures: Figures,
    tables: FactorTables,
    alternatives: IntArray | None = None,
) -> ScenarioEvaluation:
    """
    Return the steady state of each design under each inner choice.

    With chunked scheduling every step decodes all B sequences of an engine and computes the prompt tokens that they
    use up, so it serves B / (output tokens x step) requests a second. With whole prompts each request costs one
    prompt alone and its share of its decode steps. A step of a pipeline is the way of a micro-batch through all of
    its stages. TTFT and TPOT are lower bounds: a request's own prompt and one step without queueing, and the mean
    step.

    Parameters
    ----------
    compiled : CompiledServing
        With n_alternatives inner choices.
    performance : DesignBatch
        Of n_designs designs, from which times follow.
    access : EnergyPerAccess
        Of the cost batch, from which energies follow.
    figures : Figures
        Area, power and cost of the cost batch.
    tables : FactorTables
        Shared rows.
    alternatives : array of shape (n_designs, n_kept), optional
        Inner choices of each design that are wanted, all of one plan and mix; all of them where left out.

    Returns
    -------
    ScenarioEvaluation
        Arrays of shape (n_designs, n_alternatives) or (n_designs, n_kept).
    """
    scenario, choices, options = compiled.scenario, compiled.choices, compiled.pipelines
    whole = compiled.prompt_index
    if alternatives is not None:
        choices, options, whole = choices.take(alternatives), options.take(alternatives), whole[alternatives]
    pipelines = shallowest_pipelines(options, performance, choices.batch)
    site = Site(performance, access, tables)
    step = _settled_step(compiled, pipelines, site, alternatives)
    prompt = _settled_prompts(compiled, whole, pipelines, site) if compiled.looks_at_prompts else ()
    placement = None
    if compiled.cold is not None and np.any(performance.second_tier):
        placement = _placement(compiled.cold, alternatives, pipelines, performance, choices.batch, step.time_s)
        step, prompt = _with_tier(placement, step, prompt, site)
    work = Work(scenario, choices.batch, choices.attention_data_parallel.astype(np.float64), pipelines, step, prompt)
    if compiled.transfer is None:
        service = one_pool(work)
    else:
        sent = run_step(compiled.transfer, performance, tables, alternatives=_each_design(whole, performance))
        service = two_pools(work, sent, access)
    ttft_s, tpot_s = service.ttft_s, service.tpot_s
    violations = {
        "memory_capacity": memory_excess_fraction(
            performance,
            pipelines.weight_bytes,
            pipelines.sequence_bytes,
            choices.batch,
            None if placement is None else tier_bytes(performance),
        ),
        "ttft_p95": ttft_s / scenario.slo.ttft_s - 1.0,
        "tpot_p95": tpot_s / scenario.slo.tpot_s - 1.0,
    }
    return ScenarioEvaluation(
        kind="llm_serving",
        units_per_s=service.units_per_s,
        energy_per_unit_j=service.energy_per_unit_j,
        average_power_w=service.energy_per_unit_j * service.units_per_s / scenario.system.n_chips,
        peak_power_w=functools.reduce(np.maximum, [each.energy_j / each.time_s for each in (step, *prompt[:1])]),
        step_s=work.step_s,
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        tokens_per_unit=scenario.requests.output_tokens,
        units_per_session=scenario.turns_per_session,
        n_chips=scenario.system.n_chips,
        violations=violations,
        choices={
            "tensor_parallel": choices.tensor_parallel,
            "attention_data_parallel": choices.attention_data_parallel,
            "pipeline_parallel": pipelines.depth,
            "mix": choices.mix,
            "micro_batch": choices.batch,
            "batch": work.n_sequences,
            "weight_bytes": pipelines.weight_bytes,
            **service.choices,
            **({} if placement is None else {f"second_tier_{n}": v for n, v in vars(placement).items()}),
        },
        figures=figures,
    )


def _placement(
    cold: ColdContents,
    alternatives: IntArray | None,
    pipelines: Pipelines,
    designs: DesignBatch,
    batch: FloatArray,
    step_s: FloatArray,
) -> Placement:
    """What lies in the second tier of each design under each alternative."""
    contents = cold if alternatives is None else cold.take(alternatives)
    return best_placement(designs, contents, pipelines.weight_bytes, pipelines.sequence_bytes, batch, step_s)


def _with_tier(
    placement: Placement, step: SettledStep, prompt: tuple[SettledStep, ...], site: Site
) -> tuple[SettledStep, tuple[SettledStep, ...]]:
    """Steps and prompts that read the second tier."""
    per_byte, static_w = site.access.second_tier_j_per_byte, site.access.static_w
    in_prompt = placement.weight_bytes + placement.expert_bytes
    return with_reads(step, placement.time_s, placement.read_bytes, per_byte, static_w), tuple(
        with_reads(each, prompt_read_s(site.performance, placement, each.time_s), in_prompt, per_byte, static_w)
        for each in prompt
    )


def _settled_step(
    compiled: CompiledServing, pipelines: Pipelines, site: Site, alternatives: IntArray | None
) -> SettledStep:
    """A stage of each design's pipeline at work on a micro-batch, guesses of a draft network included."""
    parts = site.parts(compiled.step, compiled.step_handover, compiled.scenario.network, pipelines, alternatives)
    if compiled.draft is not None and compiled.scenario.speculation is not None:
        draft = run_step(compiled.draft, site.performance, site.tables, alternatives=alternatives)
        edge = with_draft(parts.edge, draft, compiled.scenario.speculation.draft_tokens)
        parts = dataclasses.replace(parts, edge=edge)
    return site.settled(stage_activity(parts, pipelines.depth, pipelines.stage_chips))


def _each_design(index: IntArray, designs: DesignBatch) -> IntArray:
    """The same alternatives for every design, where they are not stated for each."""
    return index if index.ndim == 2 else np.broadcast_to(index, (designs.n_designs, len(index)))


def _settled_prompts(
    compiled: CompiledServing, whole: IntArray, pipelines: Pipelines, site: Site
) -> tuple[SettledStep, ...]:
    """
    One prompt in a stage at its 95th percentile and, where prompts run alone, the mean one; by alternative.

    Prompts differ by plan and mix alone, so that they are settled once for each of them and each depth.
    """
    lengths = (0,) if compiled.scenario.scheduling == "chunked" else (0, compiled.prompt.n_alternatives // 2)
    if whole.ndim == 1:
        distinct, index = np.unique(whole, return_inverse=True)
        wanted = np.broadcast_to(distinct, (site.performance.n_designs, len(distinct)))
    else:
        wanted, index = whole[:, :1], np.zeros(whole.shape[1], dtype=np.int64)
    first = np.unique(index, return_index=True)[1]
    chips = pipelines.stage_chips[:, first]
    settled = []
    for offset in lengths:
        parts = site.parts(
            compiled.prompt, compiled.prompt_handover, compiled.scenario.network, pipelines, wanted + offset
        )
        time_s, energy_j, slowdown = (np.empty(pipelines.depth.shape) for _ in range(3))
        for depth in np.unique(pipelines.depth):
            here = pipelines.depth == depth
            one = site.settled(stage_activity(parts, np.full((1, 1), depth), chips))
            for target, values in ((time_s, one.time_s), (energy_j, one.energy_j), (slowdown, one.slowdown)):
                np.copyto(target, np.take(values, index.reshape(-1), axis=1), where=here)
        settled.append(SettledStep(time_s, energy_j, slowdown))
    return tuple(settled)
