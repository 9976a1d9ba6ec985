"""Requests that engines serve, from the times of their stages: rate, energy and latencies of one pool or of two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from models.architectures.lowered import LoweredNetwork
from models.checks import FloatArray, IntArray
from models.hardware.design import DesignBatch
from models.hardware.energy import EnergyPerAccess
from models.operators.factor_tables import FactorTables
from models.operators.step import StepActivity, StepProgram
from models.operators.step_energy import SettledStep, settle
from models.serving.pipeline import Handover, PassParts, Pipelines, Reach, pass_parts
from models.serving.pools import best_pools
from models.serving.scenario import ServingScenario


@dataclass(frozen=True)
class Site:
    """The designs that a program runs on, with what settling its clock needs."""

    performance: DesignBatch
    access: EnergyPerAccess
    tables: FactorTables

    def settled(self, activity: StepActivity) -> SettledStep:
        """Activity at the clock that the power cap leaves."""
        return settle(activity, self.access, self.performance.tdp_w)

    def parts(
        self,
        program: StepProgram,
        handover: Handover,
        network: LoweredNetwork,
        pipelines: Pipelines,
        alternatives: IntArray | None,
    ) -> PassParts:
        """What a micro-batch asks of a stage."""
        depth, chips = pipelines.depth, pipelines.depth * pipelines.stage_chips
        wanted = Reach(bool(depth.max() > 1), bool(chips.max() > handover.n_chips_per_node))
        return pass_parts(program, handover, network.n_layers, self.performance, self.tables, alternatives, wanted)


@dataclass(frozen=True)
class Work:
    """
    What a stage of each engine does, arrays that broadcast to shape (n_designs, n_alternatives).

    `batch` sequences of each of `groups` groups are a micro-batch; `step` is one of them in a stage, `prompt` one
    prompt of each group at the 95th percentile of its length and, where prompts run alone, the mean one; empty where
    prompts are not looked at.
    """

    scenario: ServingScenario
    batch: FloatArray
    groups: FloatArray
    pipelines: Pipelines
    step: SettledStep
    prompt: tuple[SettledStep, ...]

    @property
    def engine_chips(self) -> FloatArray:
        """Chips of one engine [1]."""
        return np.asarray(self.pipelines.depth * self.pipelines.stage_chips, dtype=np.float64)

    @property
    def n_sequences(self) -> FloatArray:
        """Sequences of one engine, all micro-batches and groups together [1]."""
        return self.pipelines.depth * self.batch * self.groups

    @property
    def steps_per_request(self) -> FloatArray:
        """Micro-batches that a stage works on for each request [1]."""
        scenario = self.scenario
        return scenario.requests.output_tokens / scenario.tokens_per_step / (self.batch * self.groups)

    @property
    def step_s(self) -> FloatArray:
        """A micro-batch on its way through all stages [s]."""
        return self.pipelines.depth * self.step.time_s

    @property
    def token_s(self) -> FloatArray:
        """Time per token of a sequence that nothing but its steps hold up [s]."""
        return self.step_s / self.scenario.tokens_per_step

    @property
    def prompt_s(self) -> FloatArray:
        """A long prompt on its way through all stages, nothing where prompts are not looked at [s]."""
        return self.pipelines.depth * self.prompt[0].time_s if self.prompt else np.zeros((1, 1))


@dataclass(frozen=True)
class Service:
    """Rate and energy of the whole system and latencies of a request, shape (n_designs, n_alternatives)."""

    units_per_s: FloatArray
    energy_per_unit_j: FloatArray
    ttft_s: FloatArray
    tpot_s: FloatArray
    choices: Mapping[str, FloatArray] = field(default_factory=dict)


def one_pool(work: Work) -> Service:
    """
    Return the service of engines that do prompts and answers alike.

    A stage takes one micro-batch after the other, with the prompts' share inside (chunked), or takes whole prompts in
    between, one for each group at a time.
    """
    scenario = work.scenario
    request_s = work.steps_per_request * work.step.time_s
    energy_j = work.steps_per_request * work.step.energy_j
    tpot_s = work.token_s
    if scenario.scheduling == "whole_prompt":
        request_s = request_s + work.prompt[1].time_s / work.groups
        energy_j = energy_j + work.prompt[1].energy_j / work.groups
        tpot_s = request_s * work.n_sequences / scenario.requests.output_tokens
    n_engines = scenario.system.n_chips / work.engine_chips
    return Service(n_engines / request_s, energy_j * work.engine_chips, work.prompt_s + work.step_s, tpot_s)


def two_pools(work: Work, sent: StepActivity, access: EnergyPerAccess) -> Service:
    """
    Return the service of engines of which some do the prompts and the others the answers.

    All engines are alike; their ratio is the best one. A prompt's cache goes to a decode engine once it is complete,
    and counts between the first token and the next, so it shows in TPOT. Stages send side by side, so that a prefill
    engine is held up by its links only where they are slower than its arrays. Chips of the wider pool wait, and what
    they draw meanwhile is counted.

    Parameters
    ----------
    work : Work
    sent : StepActivity
        Cache of one prompt over one link, arrays of shape (n_designs, n_alternatives).
    access : EnergyPerAccess
        Of the cost batch.
    """
    scenario, depth, mean = work.scenario, work.pipelines.depth, work.prompt[1]
    prompts_per_s = work.groups / np.maximum(mean.time_s, sent.time_s / depth)
    answers_per_s = 1.0 / (work.steps_per_request * work.step.time_s)
    rate, n_prefill = best_pools(scenario.system.n_chips / work.engine_chips, prompts_per_s, answers_per_s)
    static_w = access.static_w[:, None]
    switching_j = (mean.energy_j - static_w * mean.time_s) / work.groups
    switching_j = switching_j + work.steps_per_request * (work.step.energy_j - static_w * work.step.time_s)
    switching_j = switching_j * work.engine_chips + sent.link_bytes * access.link_j_per_byte[:, None] * (
        work.pipelines.stage_chips / work.groups
    )
    return Service(
        rate,
        switching_j + static_w * scenario.system.n_chips / rate,
        work.prompt_s,
        work.token_s + sent.time_s / scenario.requests.output_tokens,
        {"prefill_engines": n_prefill},
    )
