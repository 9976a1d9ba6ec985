"""The exact best mix of formats of one design at one batch and plan, over all combinations of module formats."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from explorer.objectives import Mixture, Objective, objective_values
from models.architectures.plans import ParallelPlan
from models.checks import FloatArray, IntArray
from models.evaluate import evaluate
from models.evaluation import ScenarioEvaluation, worst_violation
from models.hardware.design import DesignBatch
from models.hardware.rates import RATE_CLASSES
from models.operators.factor_tables import FactorTables
from models.precision.choices import ChoiceGroup, choice_groups, mix_of
from models.precision.mix import PrecisionMix
from models.precision.single_changes import SingleChanges, best_mixes, single_changes
from models.serving.scenario import ServingScenario
from models.serving.steady import compile_serving


@dataclass(frozen=True)
class Operation:
    """One design at work: its scenario, plan and micro-batch, and what it is judged by."""

    scenario: ServingScenario
    designs: DesignBatch
    """The one design."""
    plan: ParallelPlan
    batch: int
    """Sequences of one micro-batch on one tensor-parallel group."""
    objectives: tuple[Objective, ...]


@dataclass(frozen=True)
class InnerOptimum:
    """
    The best mix within a budget, and what the single changes that it was found from cost.

    Costs are relative to the base mix, the widest option of every group: the mean over the objectives of the value
    to minimise, or of one over the value to maximise.
    """

    mix: PrecisionMix
    predicted_cost: float
    """By adding single changes."""
    cost: float
    """By evaluating the mix itself."""
    feasible: bool
    """Whether memory and latency limits hold at this batch and plan."""
    changes: SingleChanges
    single_costs: FloatArray
    """Cost of each of `changes.mixes`, shape (n_mixes,) [1]."""


def native_classes(designs: DesignBatch) -> tuple[str, ...]:
    """Classes that the arrays of the first design run natively."""
    return tuple(name for name in RATE_CLASSES if getattr(designs, f"{name}_rate_ratio")[0] > 0)


def judged_mixes(operation: Operation, mixes: Sequence[PrecisionMix]) -> ScenarioEvaluation:
    """Return the evaluation of each mix at the operation's batch and plan, arrays of shape (1, n_mixes)."""
    scenario = dataclasses.replace(operation.scenario, mixes=tuple(mixes), max_batch=operation.batch)
    compiled = compile_serving(scenario, [operation.plan])
    evaluation = evaluate(operation.designs, operation.designs, [compiled], FactorTables())[0]
    return _columns(evaluation, np.flatnonzero(compiled.choices.batch == operation.batch))


def _columns(evaluation: ScenarioEvaluation, wanted: IntArray) -> ScenarioEvaluation:
    """Some alternatives of one design, arrays of shape (1, n_wanted)."""
    shape = (1, evaluation.units_per_s.shape[1])
    fields = {field.name: getattr(evaluation, field.name) for field in dataclasses.fields(evaluation)}
    arrays: dict[str, Any] = {
        name: np.broadcast_to(v, shape)[:, wanted] for name, v in fields.items() if isinstance(v, np.ndarray)
    }
    return dataclasses.replace(
        evaluation,
        **arrays,
        violations={name: np.broadcast_to(v, shape)[:, wanted] for name, v in evaluation.violations.items()},
        choices={name: np.broadcast_to(v, shape)[:, wanted] for name, v in evaluation.choices.items()},
    )


def relative_costs(objectives: Sequence[Objective], evaluation: ScenarioEvaluation) -> FloatArray:
    """
    Return the mean over the objectives of the cost of each alternative over that of the first, shape (n_mixes,) [1].

    A value to maximise is a rate, so one over it adds over modules as times and energies do.
    """
    total = np.zeros(evaluation.units_per_s.shape[1])
    for objective in objectives:
        values = objective_values(objective, [evaluation], Mixture(np.ones(1), np.ones(1)))[0]
        cost = 1.0 / values if objective.maximize else values
        total += cost / cost[0] / len(objectives)
    return total


def inner_optimum(
    operation: Operation,
    budget: float,
    *,
    kappa: float = 1.0,
    classes: Collection[str] | None = None,
    groups: Sequence[ChoiceGroup] | None = None,
) -> InnerOptimum:
    """
    Return the best mix of a design over all combinations of formats that its arrays run.

    The cost of a mix is its base plus what each group's option changes, so one evaluation per option and a dynamic
    program give the optimum of all combinations; the mix found is evaluated itself.

    Parameters
    ----------
    operation : Operation
    budget : float
        From `budget_nats`. [nat/token]
    kappa : float
        As for `mix_kl_nats`; not used where `groups` are given. [1]
    classes : collection of str, optional
        Native classes; those of the design where left out.
    groups : sequence of ChoiceGroup, optional
        Groups and options to choose from; all of the network where left out.

    Raises
    ------
    ValueError
        If no combination stays within the budget.
    """
    native = classes or native_classes(operation.designs)
    offered = groups or choice_groups(operation.scenario.network, native, kappa=kappa)
    changes = single_changes(offered)
    costs = relative_costs(operation.objectives, judged_mixes(operation, changes.mixes))
    picked, predicted = best_mixes(changes, costs[None, :], budget)
    if not np.isfinite(predicted[0]):
        least = sum(float(group.kl_nats.min()) for group in offered)
        raise ValueError(f"no mix stays within {budget:.3g} nat, the least error is {least:.3g} nat")
    mix = mix_of(changes.groups, picked[0])
    found = judged_mixes(operation, [changes.mixes[0], mix])
    return InnerOptimum(
        mix=mix,
        predicted_cost=float(predicted[0]),
        cost=float(relative_costs(operation.objectives, found)[1]),
        feasible=bool(worst_violation(found)[0, 1] <= 0),
        changes=changes,
        single_costs=costs,
    )
