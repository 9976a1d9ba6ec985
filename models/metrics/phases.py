"""The work of designs at their operating points, operator by operator: what a unit of it runs, and how often."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from models.checks import FloatArray, IntArray
from models.evaluation import ScenarioEvaluation
from models.hardware.design import DesignBatch
from models.hardware.energy import EnergyPerAccess
from models.operators.activity import Columns, TermActivity
from models.operators.calibration import Calibration
from models.operators.factor_tables import FactorTables
from models.operators.step import EDGE, LAYERS, StepActivity, StepProgram, Term, run_parts
from models.operators.step_energy import SettledStep, settle
from models.serving.pipeline import Handover
from models.serving.second_tier import Placement, prompt_read_s, with_reads
from models.serving.steady import CompiledServing
from models.throughput.work import CompiledWork

Paid = Literal["offline", "load", "request", "step"]
"""When something is paid: before any service, when a chip starts, once a request, or in every step."""


@dataclass(frozen=True)
class OperatorWork:
    """One operator in a run of its phase: sizes and whole activity, arrays of shape (n_designs or 1, 1)."""

    name: str
    kind: str
    op: str
    columns: Columns
    count: FloatArray
    activity: TermActivity
    paid: Paid

    def scaled(self, factor: FloatArray) -> OperatorWork:
        """The operator `factor` times."""
        done = self.activity
        arrays = {
            field.name: value * factor
            for field in dataclasses.fields(TermActivity)
            if isinstance(value := getattr(done, field.name), np.ndarray)
        }
        macs = {name: values * factor for name, values in done.macs.items()}
        return dataclasses.replace(self, count=self.count * factor, activity=TermActivity(macs=macs, **arrays))


@dataclass(frozen=True)
class Phase:
    """
    A kind of run that a unit of work needs, arrays of shape (n_designs, 1).

    `runs_per_unit` of them on `n_chips` chips at once, each of which does what `operators` say. `waiting_s` is what no
    operator explains: the host between steps, the bubble of a pipeline.
    """

    name: str
    operators: tuple[OperatorWork, ...]
    waiting_s: FloatArray
    runs_per_unit: FloatArray
    n_chips: FloatArray
    settled: SettledStep
    calibration: Calibration
    tier_s: FloatArray = field(default_factory=lambda: np.zeros((1, 1)))
    """What reading the second tier adds to a run."""
    tier_bytes: FloatArray = field(default_factory=lambda: np.zeros((1, 1)))
    """Read there in a run."""

    @property
    def slowdown(self) -> FloatArray:
        """Time at the settled clock over that at the highest [1]."""
        return self.settled.slowdown

    @property
    def seconds_per_unit(self) -> FloatArray:
        """Time in which the chips work on one unit in this phase [s]."""
        return np.asarray(self.runs_per_unit * self.settled.time_s)

    @property
    def flop_per_unit(self) -> FloatArray:
        """Multiplications and additions of all chips [FLOP]."""
        macs = sum((sum(o.activity.macs.values(), np.zeros((1, 1))) for o in self.operators), np.zeros((1, 1)))
        return np.asarray(2.0 * macs * self.runs_per_unit * self.n_chips)


def phases_of(
    compiled: CompiledServing | CompiledWork,
    evaluation: ScenarioEvaluation,
    chosen: IntArray,
    designs: DesignBatch,
    access: EnergyPerAccess,
    tables: FactorTables,
) -> tuple[Phase, ...]:
    """
    Return the phases of the work of each design at one alternative of its own.

    Their times and energies add up to those of the evaluation: rate = engines / sum of seconds per unit.

    Parameters
    ----------
    compiled : CompiledServing or CompiledWork
    evaluation : ScenarioEvaluation
        Of the chosen alternatives, arrays of shape (n_designs, 1).
    chosen : array of shape (n_designs,)
        Alternative of each design.
    designs : DesignBatch
        Of n_designs designs.
    access : EnergyPerAccess
        Of the same designs.
    tables : FactorTables
        Shared rows.
    """
    frame = _Frame(evaluation, chosen[:, None], designs, access, tables)
    return _PHASES[type(compiled)](compiled, frame)


@dataclass(frozen=True)
class _Frame:
    """The designs, and the alternative that each works at, shape (n_designs, 1)."""

    evaluation: ScenarioEvaluation
    chosen: IntArray
    designs: DesignBatch
    access: EnergyPerAccess
    tables: FactorTables

    def choice(self, name: str) -> FloatArray:
        """One of the inner choices, shape (n_designs, 1)."""
        return np.asarray(self.evaluation.choices[name], dtype=np.float64)

    def operators(
        self, program: StepProgram, alternatives: IntArray, paid: Paid, layer_share: FloatArray | float = 1.0
    ) -> Iterator[OperatorWork]:
        """Operators of a program, of those inside the layers `layer_share`."""
        parts = run_parts(program, self.designs, self.tables, alternatives=alternatives, keep_terms=True)
        for part, done in zip((LAYERS, EDGE), parts, strict=True):
            own = [each for each in program.terms if each.edge in part]
            factor = np.asarray(layer_share if False in part else 1.0)
            exposed = _exposed(done, program.overhead_s if True in part else 0.0)
            for each, (name, activity) in zip(own, exposed.items(), strict=True):
                yield _work(each, name, activity, alternatives, paid).scaled(factor)

    def phase(
        self,
        name: str,
        operators: Sequence[OperatorWork],
        waiting_s: FloatArray | float,
        runs_per_unit: FloatArray,
        n_chips: FloatArray | float,
        calibration: Calibration,
        idle_ratio: FloatArray | float = 0.0,
    ) -> Phase:
        """The phase with its clock settled; `idle_ratio` is what it waits over what it works."""
        shape = (self.designs.n_designs, 1)
        busy = _sum_of(operators, shape)
        busy_s = busy.time_s + waiting_s
        whole = dataclasses.replace(busy, time_s=busy_s * (1.0 + idle_ratio))
        settled = settle(whole, self.access, self.designs.tdp_w)
        return Phase(
            name, tuple(operators), np.broadcast_to(whole.time_s - busy.time_s, shape),
            np.broadcast_to(runs_per_unit, shape), np.broadcast_to(n_chips, shape), settled, calibration,
        )  # fmt: skip


def _work(each: Term, name: str, activity: TermActivity, alternatives: IntArray, paid: Paid) -> OperatorWork:
    place = each.index[alternatives]
    columns = {column: values[place] for column, values in each.columns.items()}
    return OperatorWork(name, each.kind, each.op, columns, each.count[alternatives], activity, paid)


def _exposed(part: StepActivity, overhead_s: float) -> dict[str, TermActivity]:
    """Operators of a part, of which covered messages take what the work beside them is too short for."""
    covered = [each.covered_s for each in part.terms.values() if each.covered_s is not None]
    if not covered:
        return dict(part.terms)
    excess_s = part.time_s - overhead_s - sum(each.time_s for each in part.terms.values())
    whole_s = np.maximum(sum(covered), 1e-300)
    return {
        name: each
        if each.covered_s is None
        else dataclasses.replace(each, time_s=each.time_s + np.maximum(excess_s, 0.0) * each.covered_s / whole_s)
        for name, each in part.terms.items()
    }


def _sum_of(operators: Sequence[OperatorWork], shape: tuple[int, int]) -> StepActivity:
    """All operators together."""

    def total(name: str) -> FloatArray:
        return np.asarray(sum((getattr(o.activity, name) for o in operators), np.zeros(shape)))

    macs: dict[str, FloatArray] = {}
    for each in operators:
        for code, values in each.activity.macs.items():
            macs[code] = macs.get(code, np.zeros(shape)) + values
    return StepActivity(
        total("time_s"), macs, total("dram_bytes"), total("vector_ops"), total("link_bytes"),
        np.asarray(sum((buffer_bytes(o.activity) for o in operators), np.zeros(shape))), {},
    )  # fmt: skip


def buffer_bytes(activity: TermActivity) -> FloatArray:
    """What the cores fetch from the shared buffer beyond what comes from main memory [B]."""
    fetched = activity.buffer_bytes
    return np.maximum(fetched - activity.dram_bytes, 0.0) if fetched.any() else fetched


def _serving_phases(compiled: CompiledServing, frame: _Frame) -> tuple[Phase, ...]:
    """Decode steps with the prompts' share inside, or prompts of their own; and the cache sent to other engines."""
    scenario, whole = compiled.scenario, compiled.prompt_index[frame.chosen]
    depth, groups = frame.choice("pipeline_parallel"), frame.choice("attention_data_parallel")
    stage_chips = frame.choice("tensor_parallel") * groups
    runs = scenario.requests.output_tokens / scenario.tokens_per_step / (frame.choice("micro_batch") * groups)
    share = np.ceil(scenario.network.n_layers / depth) / scenario.network.n_layers
    engine = depth * stage_chips
    step = [
        *frame.operators(compiled.step, frame.chosen, "step", share),
        *_handover(compiled.step_handover, frame, frame.chosen, "step", depth, stage_chips),
    ]
    waiting_s = compiled.step.overhead_s
    if compiled.draft is not None and scenario.speculation is not None:
        guesses = np.asarray(float(scenario.speculation.draft_tokens))
        drafted = frame.operators(compiled.draft, frame.chosen, "step")
        step += [dataclasses.replace(o.scaled(guesses), name=f"draft_{o.name}") for o in drafted]
        waiting_s += float(guesses) * compiled.draft.overhead_s
    phases = [frame.phase("step", step, waiting_s, runs, engine, scenario.calibration)]
    if scenario.scheduling != "chunked":
        mean = whole + compiled.prompt.n_alternatives // 2
        prompt = [
            *frame.operators(compiled.prompt, mean, "request", share),
            *_handover(compiled.prompt_handover, frame, mean, "request", depth, stage_chips),
        ]
        overhead_s = compiled.prompt.overhead_s
        phases.append(frame.phase("prompt", prompt, overhead_s, 1.0 / groups, engine, scenario.calibration))
    if compiled.transfer is not None:
        sent = list(frame.operators(compiled.transfer, whole, "request"))
        phases.append(
            frame.phase("cache_transfer", sent, 0.0, np.ones_like(groups), stage_chips / groups, scenario.calibration)
        )
    return tuple(_with_tier(each, frame) for each in phases)


def _with_tier(phase: Phase, frame: _Frame) -> Phase:
    """A step or a prompt that reads the second tier of its design as well."""
    if "second_tier_read_bytes" not in frame.evaluation.choices or phase.name == "cache_transfer":
        return phase
    held = Placement(**{f.name: frame.choice(f"second_tier_{f.name}") for f in dataclasses.fields(Placement)})
    time_s, read = held.time_s, held.read_bytes
    if phase.name == "prompt":
        time_s = prompt_read_s(frame.designs, held, phase.settled.time_s)
        read = held.weight_bytes + held.expert_bytes
    access = frame.access
    settled = with_reads(phase.settled, time_s, read, access.second_tier_j_per_byte, access.static_w)
    return dataclasses.replace(phase, settled=settled, tier_s=time_s - phase.settled.time_s, tier_bytes=read)


def _handover(
    handover: Handover, frame: _Frame, alternatives: IntArray, paid: Paid, depth: FloatArray, stage_chips: FloatArray
) -> Iterator[OperatorWork]:
    """Rows on their way to the next stage; all stages keep in step with the slowest, that to another node."""
    if depth.max() <= 1:
        return
    inside, outside = (
        list(frame.operators(program, alternatives, paid)) for program in (handover.inside, handover.outside)
    )
    inside_s, outside_s = (sum(o.activity.time_s for o in each) for each in (inside, outside))
    leaves = (stage_chips * depth > handover.n_chips_per_node) & (outside_s > inside_s)
    deep = (depth > 1).astype(np.float64)
    for near, far in zip(inside, outside, strict=True):
        time_s = np.where(leaves, far.activity.time_s, near.activity.time_s)
        placed = np.where(leaves, far.columns["scale_out"], near.columns["scale_out"])
        activity = dataclasses.replace(near.activity, time_s=time_s)
        columns = {**near.columns, "scale_out": placed}
        yield dataclasses.replace(near, activity=activity, columns=columns).scaled(deep)


def _fixed_phases(compiled: CompiledWork, frame: _Frame) -> tuple[Phase, ...]:
    """One program over and over."""
    operators = list(frame.operators(compiled.program, frame.chosen, "step"))
    runs = np.full(frame.chosen.shape, compiled.system.n_chips / compiled.units_per_step)
    n_chips = float(compiled.system.n_chips)
    waiting_s, idle = compiled.program.overhead_s, compiled.idle_ratio[frame.chosen]
    phase = frame.phase(
        "step", operators, waiting_s, runs / n_chips, n_chips, compiled.scenario.calibration, idle_ratio=idle
    )
    return (phase,)


_PHASES: Mapping[type, Callable[[Any, _Frame], tuple[Phase, ...]]] = {
    CompiledServing: _serving_phases,
    CompiledWork: _fixed_phases,
}
