"""Steady state of continuous batching: rate, latencies and energy of every design and inner choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.architectures.lowered import LoweredNetwork
from models.checks import FloatArray, IntArray
from models.evaluation import Figures, ScenarioEvaluation, alternative_windows
from models.hardware.design import DesignBatch
from models.hardware.energy import EnergyPerAccess
from models.operators.factor_tables import FactorTables
from models.operators.step import StepProgram, run_step
from models.operators.step_energy import SettledStep, settle
from models.serving.capacity import (
    degrees_that_fit,
    memory_excess_fraction,
    sequence_bytes_per_chip,
    weight_bytes_per_chip,
)
from models.serving.engine_terms import EngineTraits
from models.serving.programs import StepLoad, compile_step
from models.serving.scenario import (
    BATCH_GRID,
    Alternatives,
    ServingScenario,
    System,
    alternatives,
)


@dataclass(frozen=True)
class CompiledServing:
    """A serving scenario as programs over alternatives (degree x mix x batch); knows nothing of designs."""

    scenario: ServingScenario
    choices: Alternatives
    step: StepProgram
    """One decode step; with chunked scheduling the prompts' share of it is inside."""
    prompt: StepProgram
    """Whole prompts computed alone: alternatives are (degree x mix) at the 95th percentile, then at the mean."""
    prompt_index: IntArray
    """Alternative -> (degree x mix) of `prompt`."""
    weight_bytes: FloatArray
    sequence_bytes: FloatArray

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
        """First and last alternative of each degree and mix, batches rising, shape (n_windows, 2)."""
        return alternative_windows(self.prompt_index)

    @property
    def used_links(self) -> frozenset[str]:
        """Links that some alternative sends over."""
        largest = int(self.choices.tensor_parallel.max())
        inside = {"scale_up"} if largest > 1 and self.system.n_chips_per_node > 1 else set()
        return frozenset(inside | ({"scale_out"} if largest > self.system.n_chips_per_node else set()))


def compile_serving(scenario: ServingScenario, degrees: Sequence[int] | None = None) -> CompiledServing:
    """
    Return the programs of a scenario for every feasible degree, allowed mix and batch.

    Raises
    ------
    ValueError
        If no precision mix is allowed, or the network makes no tokens one by one from its own context alone (an
        encoder, an encoder-decoder whose source would be read beside them).
    """
    if not scenario.mixes:
        raise ValueError("a serving scenario needs at least one precision mix")
    require_served(scenario.network)
    degrees = list(degrees or degrees_that_fit(scenario))
    batches = [b for b in BATCH_GRID if b <= scenario.max_batch]
    choices = alternatives(degrees, len(scenario.mixes), batches)
    position = {t: i for i, t in enumerate(degrees)}
    degree = np.array([position[int(t)] for t in choices.tensor_parallel])
    weights = weight_bytes_per_chip(scenario.network, degrees, scenario.mixes)
    sequence = sequence_bytes_per_chip(scenario.network, degrees, scenario.mixes, scenario.requests.reserved_tokens)
    return CompiledServing(
        scenario,
        choices,
        step=_step_program(scenario, choices),
        prompt=_prompt_program(scenario, degrees),
        prompt_index=degree * len(scenario.mixes) + choices.mix,
        weight_bytes=weights[degree, choices.mix],
        sequence_bytes=sequence[degree, choices.mix],
    )


_NOT_SERVED = {
    "encoder": "llm_serving needs a decoder: an encoder reads its input once and makes no tokens",
    "encoder_decoder": "llm_serving needs a decoder: cross attention over a source (rows 'source') is not served",
}
"""Kinds of network that are refused, and why."""


def require_served(network: LoweredNetwork) -> None:
    """Refuse, by name, a network that makes no tokens one by one from its own context alone."""
    if network.kind != "decoder":
        raise ValueError(f"{_NOT_SERVED[network.kind]}, got network '{network.name}'")


def _step_program(scenario: ServingScenario, choices: Alternatives) -> StepProgram:
    """One token for each running sequence and, where scheduling is chunked, as much prompt as the batch uses up."""
    requests = scenario.requests
    chunked = 1.0 if scenario.scheduling == "chunked" else 0.0
    finished = choices.batch / requests.output_tokens * chunked
    load = StepLoad(
        tokens=choices.batch + finished * requests.prompt_tokens,
        sampled=choices.batch + finished,
        decoding=choices.batch,
        context_tokens=np.full(len(choices), requests.context_tokens),
        prompts=finished * requests.prompt_tokens / requests.effective_prompt_tokens,
        prompt_tokens=np.full(len(choices), requests.effective_prompt_tokens),
    )
    return compile_step(
        scenario.network, scenario.mixes, choices, load,
        overhead_s=scenario.step_overhead_s, routing_skew=scenario.routing_skew,
        n_chips_per_node=scenario.system.n_chips_per_node,
        traits=EngineTraits(host_sharing_exponent=scenario.system.host_sharing_exponent),
    )  # fmt: skip


def _prompt_program(scenario: ServingScenario, degrees: Sequence[int]) -> StepProgram:
    """One prompt alone: first at the 95th percentile of its length, then the mean work of one."""
    requests = scenario.requests
    one = alternatives(degrees, len(scenario.mixes), [1])
    twice = Alternatives(*[np.concatenate([values, values]) for values in (one.tensor_parallel, one.mix, one.batch)])
    half = np.ones(len(one))
    load = StepLoad(
        tokens=np.concatenate([half * requests.prompt_p95_tokens, half * requests.prompt_tokens]),
        sampled=np.ones(2 * len(one)),
        decoding=np.zeros(2 * len(one)),
        context_tokens=np.zeros(2 * len(one)),
        prompts=np.concatenate([half, half * requests.prompt_tokens / requests.effective_prompt_tokens]),
        prompt_tokens=np.concatenate([half * requests.prompt_p95_tokens, half * requests.effective_prompt_tokens]),
    )
    return compile_step(
        scenario.network, scenario.mixes, twice, load,
        overhead_s=scenario.step_overhead_s, routing_skew=scenario.routing_skew,
        n_chips_per_node=scenario.system.n_chips_per_node,
        traits=EngineTraits(host_sharing_exponent=scenario.system.host_sharing_exponent),
    )  # fmt: skip


def steady_state(
    compiled: CompiledServing,
    performance: DesignBatch,
    access: EnergyPerAccess,
    highest_static_w: FloatArray,
    figures: Figures,
    tables: FactorTables,
    alternatives: IntArray | None = None,
) -> ScenarioEvaluation:
    """
    Return the steady state of each design under each inner choice.

    With chunked scheduling every step decodes all B sequences and computes the prompt tokens that B running
    sequences use up, so a group of chips serves B / (output tokens x step) requests a second. With whole prompts
    each request costs one prompt alone and its share of its decode steps. TTFT and TPOT are lower bounds: a
    request's own prompt and one step without queueing, and the mean step.

    Parameters
    ----------
    compiled : CompiledServing
        With n_alternatives inner choices.
    performance : DesignBatch
        Of n_designs designs, from which times follow.
    access : EnergyPerAccess
        Of the cost batch, from which energies follow.
    highest_static_w : array of shape (n_designs,)
        Static power of the performance batch. [W]
    figures : Figures
        Area, power and cost of the cost batch.
    tables : FactorTables
        Shared rows.
    alternatives : array of shape (n_designs, n_kept), optional
        Inner choices of each design that are wanted, all of one degree and mix; all of them where left out.

    Returns
    -------
    ScenarioEvaluation
        Arrays of shape (n_designs, n_alternatives) or (n_designs, n_kept).
    """
    scenario, choices = compiled.scenario, _taken(compiled.choices, alternatives)
    requests = scenario.requests
    whole = compiled.prompt_index if alternatives is None else compiled.prompt_index[alternatives]
    step = _settled(compiled.step, alternatives, performance, access, highest_static_w, tables)
    prompt = _settled_prompts(compiled, whole, performance, access, highest_static_w, tables)
    request_s, energy_j, tpot_s = _per_request(scenario, choices.batch, step, prompt)
    groups = scenario.system.n_chips / choices.tensor_parallel
    ttft_s = prompt[0].time_s + step.time_s
    weight_bytes, sequence_bytes = compiled.weight_bytes, compiled.sequence_bytes
    if alternatives is not None:
        weight_bytes, sequence_bytes = weight_bytes[alternatives], sequence_bytes[alternatives]
    violations = {
        "memory_capacity": memory_excess_fraction(performance, weight_bytes, sequence_bytes, choices.batch),
        "ttft_p95": ttft_s / scenario.slo.ttft_s - 1.0,
        "tpot_p95": tpot_s / scenario.slo.tpot_s - 1.0,
    }
    return ScenarioEvaluation(
        kind="llm_serving",
        units_per_s=groups / request_s,
        energy_per_unit_j=energy_j * choices.tensor_parallel,
        average_power_w=energy_j / request_s,
        step_s=step.time_s,
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        tokens_per_unit=requests.output_tokens,
        n_chips=scenario.system.n_chips,
        violations=violations,
        choices={"tensor_parallel": choices.tensor_parallel, "mix": choices.mix, "batch": choices.batch},
        figures=figures,
    )


def _taken(choices: Alternatives, wanted: IntArray | None) -> Alternatives:
    """The choices of the wanted alternatives."""
    if wanted is None:
        return choices
    return Alternatives(choices.tensor_parallel[wanted], choices.mix[wanted], choices.batch[wanted])


def _settled(
    program: StepProgram,
    alternatives: IntArray | None,
    performance: DesignBatch,
    access: EnergyPerAccess,
    highest_static_w: FloatArray,
    tables: FactorTables,
) -> SettledStep:
    activity = run_step(program, performance, tables, alternatives=alternatives)
    return settle(activity, access, performance.tdp_w, highest_static_w)


def _settled_prompts(
    compiled: CompiledServing,
    whole: IntArray,
    performance: DesignBatch,
    access: EnergyPerAccess,
    highest_static_w: FloatArray,
    tables: FactorTables,
) -> tuple[SettledStep, ...]:
    """One prompt at its 95th percentile and, where prompts run alone, the mean one; aligned with the alternatives."""
    lengths = (0,) if compiled.scenario.scheduling == "chunked" else (0, compiled.prompt.n_alternatives // 2)
    settled = []
    for offset in lengths:
        wanted = whole + offset
        if wanted.ndim == 1:
            distinct, index = np.unique(wanted, return_inverse=True)
            one = _settled(
                compiled.prompt, np.broadcast_to(distinct, (performance.n_designs, len(distinct))),
                performance, access, highest_static_w, tables,
            )  # fmt: skip
            index = index.reshape(-1)
            settled.append(SettledStep(one.time_s[:, index], one.energy_j[:, index], one.slowdown[:, index]))
        else:
            settled.append(_settled(compiled.prompt, wanted[:, :1], performance, access, highest_static_w, tables))
    return tuple(settled)


def _per_request(
    scenario: ServingScenario, batch: FloatArray, step: SettledStep, prompt: tuple[SettledStep, ...]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Time of a group and energy of one of its chips per request, and TPOT, shape (n_designs, n_alternatives)."""
    outputs = scenario.requests.output_tokens
    request_s = outputs * step.time_s / batch
    energy_j = outputs * step.energy_j / batch
    if scenario.scheduling == "chunked":
        return request_s, energy_j, step.time_s
    request_s = request_s + prompt[1].time_s
    return request_s, energy_j + prompt[1].energy_j, request_s * batch / outputs
