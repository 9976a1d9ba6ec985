"""A design at its operating point: how fast it works with more of something, its inner choices kept."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from explorer.objectives import COMBINED, Objective, objective_values
from explorer.problem import Problem
from models.checks import FloatArray, IntArray
from models.evaluate import Compiled, evaluate
from models.evaluation import ScenarioEvaluation
from models.hardware.design import DesignBatch, take
from models.operators.factor_tables import FactorTables
from models.operators.step import StepProgram
from models.serving.steady import CompiledServing


@dataclass(frozen=True)
class Work:
    """One design that works at fixed inner choices, one alternative for each scenario."""

    problem: Problem
    compiled: tuple[Compiled, ...]
    alternatives: tuple[int, ...]
    performance: DesignBatch
    """The one design, as fast as it is."""
    cost: DesignBatch
    """The one design, as it is paid for."""

    def judged(self, performance: DesignBatch, cost: DesignBatch | None = None) -> Judged:
        """Designs at the same inner choices; paid for as this one where `cost` is left out."""
        n = performance.n_designs
        paid = take(self.cost, np.zeros(n, dtype=np.int64)) if cost is None else cost
        problem = self.problem
        return Judged(
            problem,
            tuple(
                evaluate(
                    performance, paid, [each], problem.tables, np.full((n, 1), chosen), technology=problem.technology
                )[0]
                for each, chosen in zip(self.compiled, self.alternatives, strict=True)
            ),
        )

    def now(self) -> Judged:
        """The design itself."""
        return self._now

    @functools.cached_property
    def _now(self) -> Judged:
        return self.judged(self.performance, self.cost)

    def copies(self, n: int) -> DesignBatch:
        """The design `n` times."""
        return take(self.performance, np.zeros(n, dtype=np.int64))


@dataclass(frozen=True)
class Judged:
    """Evaluations of n_designs designs at one alternative of each scenario."""

    problem: Problem
    evaluations: tuple[ScenarioEvaluation, ...]

    def objective(self, objective: Objective) -> FloatArray:
        """Value of an objective, shape (n_designs,)."""
        return objective_values(objective, self.evaluations, self.problem.mixture)[:, 0]

    def cost(self) -> FloatArray:
        """The first objective as something to minimise, so that a ratio of two is a gain, shape (n_designs,)."""
        first = self.problem.objectives[0]
        return cost_of(first, self.objective(first))

    def rate(self) -> FloatArray:
        """Units per second, of several scenarios the combined relative rate, shape (n_designs,)."""
        if len(self.evaluations) == 1:
            return self.evaluations[0].units_per_s[:, 0]
        return self.objective(Objective(COMBINED, True))

    def figure(self, name: str) -> float:
        """Area, power or cost of the first design."""
        return float(np.broadcast_to(getattr(self.evaluations[0].figures, name), (1, 1))[0, 0])

    def average_power_w(self) -> float:
        """Of one chip of the first design, the most of its scenarios [W]."""
        return max(float(each.average_power_w[0, 0]) for each in self.evaluations)


def cost_of(objective: Objective, values: FloatArray | float) -> FloatArray:
    """An objective as something to minimise whose ratios are gains: itself, or one over it."""
    return np.asarray(1.0 / np.asarray(values) if objective.maximize else values)


def gain_fraction(before: FloatArray | float, after: FloatArray | float) -> FloatArray:
    """By which share costs `after` are better than `before` [1]."""
    return np.asarray(before / np.asarray(after) - 1.0)


def work_of(problem: Problem, designs: DesignBatch, alternatives: Sequence[IntArray]) -> Work:
    """One design at the given alternatives, arrays of shape (1,) as a judgement holds them."""
    return Work(problem, problem.scenarios, tuple(int(each[0]) for each in alternatives), designs, designs)


def programs_of(compiled: Compiled, alternative: int) -> dict[str, tuple[StepProgram, IntArray]]:
    """Programs that run at an alternative, by field of the compiled scenario, and the alternatives of each."""
    own = np.array([alternative])
    if not isinstance(compiled, CompiledServing):
        return {"program": (compiled.program, own)}
    prompt = compiled.prompt_index[own] + np.array([0, compiled.prompt.n_alternatives // 2])
    found = {"step": (compiled.step, own), "prompt": (compiled.prompt, prompt)}
    for name, each, wanted in (("draft", compiled.draft, own), ("transfer", compiled.transfer, prompt)):
        if each is not None:
            found[name] = (each, wanted)
    for name, wanted in (("step_handover", own), ("prompt_handover", prompt)):
        handover = getattr(compiled, name)
        found |= {f"{name}.{place}": (getattr(handover, place), wanted) for place in ("inside", "outside")}
    return found


def with_programs(compiled: Compiled, programs: dict[str, StepProgram]) -> Compiled:
    """The scenario with some of the programs of `programs_of` exchanged."""
    own = {name: each for name, each in programs.items() if "." not in name}
    for name in ("step_handover", "prompt_handover"):
        places = {key.split(".")[1]: each for key, each in programs.items() if key.startswith(f"{name}.")}
        if places:
            own[name] = dataclasses.replace(getattr(compiled, name), **places)
    return dataclasses.replace(compiled, **own)  # type: ignore[arg-type]


def fresh(work: Work, compiled: Sequence[Compiled]) -> Work:
    """The work with other programs, whose factors are not kept among those of the study."""
    return dataclasses.replace(
        work, compiled=tuple(compiled), problem=dataclasses.replace(work.problem, tables=FactorTables())
    )
