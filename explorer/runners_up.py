"""The plans of one design side by side: the best point of each, its value, and what keeps it from a better one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from explorer.bottleneck import largest_resource, latency_term
from explorer.objectives import Mixture, objective_values
from explorer.plans import chosen_plan_document, training_plan_document
from explorer.problem import Problem, evaluate_all, inner_losses, inner_objectives
from models.checks import FloatArray, IntArray
from models.evaluate import Compiled
from models.evaluation import ScenarioEvaluation, worst_violation
from models.hardware.design import DesignBatch
from models.operators.factor_tables import FactorTables
from models.serving.capacity import CAPACITY_CRITICAL_FRACTION, free_memory_fraction
from models.serving.steady import CompiledServing

SHOWN_PLANS = 5
"""Runners-up that a result lists."""

LARGEST_BATCH = "largest_batch"
"""What binds beside limits and resources: the batches that are tried end."""

PLAN_CHOICES = ("tensor_parallel", "attention_data_parallel", "pipeline_parallel", "prefill_engines")
"""Choices of a serving scenario that make its plan."""

LATENCY_LIMITS = ("ttft_p95", "tpot_p95")

_ONE = Mixture(np.ones(1), np.ones(1))


def plan_ranking(
    problem: Problem,
    designs: DesignBatch,
    operating_point: Mapping[str, Any],
    evaluations: Sequence[ScenarioEvaluation] | None = None,
) -> dict[str, Any]:
    """
    Return what an operating point says of its plan beside the others.

    Parameters
    ----------
    problem : Problem
    designs : DesignBatch
        The one design.
    operating_point : mapping
        As a trial records it.
    evaluations : sequence of ScenarioEvaluation, optional
        Of the design in each scenario, where they are known already.

    Returns
    -------
    dict
        `binds` and `runners_up` of each scenario with plans, by scenario where there are several. A runner-up has plan,
        values of the objectives, feasible, binds, batch, capacity_critical. What binds is the limit that the next
        larger batch breaks, or the resource that the step waits for most; of a plan that is not feasible the limit it
        exceeds most, with excess_fraction.
    """
    several = len(problem.scenarios) > 1
    ranked = {}
    for compiled, evaluation in zip(problem.scenarios, evaluations or evaluate_all(problem, designs), strict=True):
        own = operating_point[compiled.name] if several else operating_point
        if "plan" in own:
            ranked[compiled.name] = _ranked(problem, compiled, designs, own, evaluation)
    return ranked if several else next(iter(ranked.values()), {})


def with_runners_up(
    problem: Problem,
    designs: DesignBatch,
    operating_point: Mapping[str, Any],
    evaluations: Sequence[ScenarioEvaluation] | None = None,
) -> dict[str, Any]:
    """An operating point with `binds` and `runners_up`, in each scenario where there are several."""
    ranking = plan_ranking(problem, designs, operating_point, evaluations)
    if len(problem.scenarios) == 1:
        return {**operating_point, **ranking}
    return {name: {**own, **ranking.get(name, {})} for name, own in operating_point.items()}


def _ranked(
    problem: Problem,
    compiled: Compiled,
    designs: DesignBatch,
    own: Mapping[str, Any],
    evaluation: ScenarioEvaluation,
) -> dict[str, Any]:
    loss, feasible = (np.broadcast_to(v, evaluation.units_per_s.shape)[0] for v in inner_losses(problem, evaluation))
    worst = worst_violation(evaluation)[0]
    order = np.lexsort((np.where(feasible, loss, worst), ~feasible))
    best: dict[tuple[tuple[str, int], ...], int] = {}
    for i in _first_of_each_plan(compiled, evaluation, order):
        best.setdefault(tuple(_plan_at(compiled, evaluation, i).items()), i)
    documents = {key: _document(problem, compiled, designs, evaluation, i) for key, i in best.items()}
    key = tuple(own["plan"].items())
    chosen, place = documents.pop(key), best[key]
    ranking = {"binds": chosen["binds"], "runners_up": list(documents.values())[:SHOWN_PLANS]}
    if isinstance(compiled, CompiledServing) and not feasible.any():
        ranking |= _impossible(compiled, designs, evaluation, place, problem.tables)
    return ranking


def _first_of_each_plan(compiled: Compiled, evaluation: ScenarioEvaluation, order: IntArray) -> list[int]:
    """Alternatives in `order`, of which each is the first of its plan."""
    shape = evaluation.units_per_s.shape
    stated = {name: np.broadcast_to(values, shape)[0, order] for name, values in evaluation.choices.items()}
    if isinstance(compiled, CompiledServing):
        stated = {name: values for name, values in stated.items() if name in PLAN_CHOICES}
    _, first = np.unique(np.stack(list(stated.values())), axis=1, return_index=True)
    return [int(order[i]) for i in np.sort(first)]


def _impossible(
    compiled: CompiledServing, designs: DesignBatch, evaluation: ScenarioEvaluation, index: int, tables: FactorTables
) -> dict[str, Any]:
    """Where not even the smallest batch keeps a latency limit: which one, by how much, and what takes most of it."""
    name, excess = _most_exceeded(evaluation, index)
    if name not in LATENCY_LIMITS:
        return {}
    return {
        "impossible": {"limit": name, "excess_fraction": excess} | latency_term(compiled, designs, index, name, tables)
    }


def _plan_at(compiled: Compiled, evaluation: ScenarioEvaluation, index: int) -> dict[str, Any]:
    choice = {name: _at(values, index) for name, values in evaluation.choices.items()}
    if isinstance(compiled, CompiledServing):
        return chosen_plan_document(compiled.scenario, choice)
    return training_plan_document(choice)


def _at(values: FloatArray | IntArray, index: int) -> float:
    """One alternative of the one design."""
    return float(values[index] if values.ndim == 1 else values[0, index])


def _document(
    problem: Problem, compiled: Compiled, designs: DesignBatch, evaluation: ScenarioEvaluation, index: int
) -> dict[str, Any]:
    worst = float(worst_violation(evaluation)[0, index])
    values = {o.metric: float(objective_values(o, [evaluation], _ONE)[0, index]) for o in inner_objectives(problem)}
    document: dict[str, Any] = {"plan": _plan_at(compiled, evaluation, index), "values": values, "feasible": worst <= 0}
    if worst > 0:
        document |= {"binds": _most_exceeded(evaluation, index)[0], "excess_fraction": worst}
    else:
        document["binds"] = _binds(compiled, designs, evaluation, index, problem.tables)
    if isinstance(compiled, CompiledServing):
        document["batch"] = int(_at(evaluation.choices["batch"], index))
        weights = np.array([_at(evaluation.choices["weight_bytes"], index)])
        free = float(free_memory_fraction(designs, weights)[0, 0])
        document["capacity_critical"] = free < CAPACITY_CRITICAL_FRACTION
    return document


def _most_exceeded(evaluation: ScenarioEvaluation, index: int) -> tuple[str, float]:
    shape = evaluation.units_per_s.shape
    excess = {name: float(np.broadcast_to(v, shape)[0, index]) for name, v in evaluation.violations.items()}
    name = max(excess, key=lambda key: excess[key])
    return name, excess[name]


def _binds(
    compiled: Compiled, designs: DesignBatch, evaluation: ScenarioEvaluation, index: int, tables: FactorTables
) -> str:
    """Limit that the next larger batch of the same plan and mix breaks, or the resource that a step waits for most."""
    if not isinstance(compiled, CompiledServing):
        return largest_resource(compiled.program, designs, index, tables)
    if any(index == last for _, last in compiled.windows):
        return LARGEST_BATCH
    if _plan_at(compiled, evaluation, index + 1) != _plan_at(compiled, evaluation, index):
        return "memory_capacity"  # a larger batch needs a deeper pipeline
    name, excess = _most_exceeded(evaluation, index + 1)
    return name if excess > 0 else largest_resource(compiled.program, designs, index, tables)
