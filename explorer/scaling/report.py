"""Rate per chip from one chip to many nodes: what binds at each size, and where and why the best plan changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from explorer.document import StudyError
from explorer.objectives import Mixture
from explorer.problem import Problem, inner_objectives
from explorer.scaling.step import Step, refused_step, scaled_step
from explorer.scenario_readers import SCENARIO_READERS
from models.evaluate import Compiled, compile_scenario
from models.hardware.design import DesignBatch
from models.serving.scenario import ServingScenario, System

BREAK_RATIO = 0.8
"""Scaling breaks where a chip does less than this share of what it does in the best smaller system."""


def scaling_document(problem: Problem, designs: DesignBatch, chips: Sequence[int], *, stated: bool) -> dict[str, Any]:
    """
    Return what one design does in systems of different size, each scenario by itself under its best plan.

    Parameters
    ----------
    problem : Problem
        Fitted to the design; its `system` says how many chips share a node.
    designs : DesignBatch
        The one design.
    chips : sequence of int
        Chips of each system, rising.
    stated : bool
        Whether a caller named the counts: then one that no plan divides is refused, otherwise the step says so.

    Returns
    -------
    dict
        n_chips_per_node, and for each scenario name, kind, steps and breaks (the first size at which a chip does less
        than `BREAK_RATIO` of what it did in a smaller system: n_chips, rate_ratio, and the resource for which work
        waits longer by lost_time_fraction of the time that is lost). A step has n_chips, n_nodes, level and serves;
        where it does not serve, refused or limit and excess_fraction; else units_per_s, units_per_s_per_chip,
        tokens_per_s, efficiency_ratio (rate per chip over that of the smallest system that serves), plan, batch,
        binding_resource, time_shares; plan_change with the reason in numbers where the degrees of the plan are not
        those of the step before; tensor_parallel_across_nodes with the best plan of that kind where a better one
        stays inside nodes.

    Raises
    ------
    StudyError
        With a pointer to a stated count that no plan divides.
    """
    return {
        "n_chips_per_node": problem.scenarios[0].system.n_chips_per_node,
        "scenarios": [
            {"name": each.name, "kind": problem.document.workload.scenarios[i].kind}
            | _steps(problem, i, designs, chips, stated)
            for i, each in enumerate(problem.scenarios)
        ],
    }


def _steps(problem: Problem, index: int, designs: DesignBatch, chips: Sequence[int], stated: bool) -> dict[str, Any]:
    steps: list[Step] = []
    for n in chips:
        try:
            alone = _alone(problem, index, n)
        except ValueError as error:
            if stated:
                raise StudyError([{"pointer": "/scaling/chips", "detail": f"{n} chips: {_rule(error)}"}]) from None
            steps.append(refused_step(n, _system(problem.scenarios[index].system, n), _rule(error)))
            continue
        steps.append(scaled_step(alone, designs, steps[-1] if steps else None))
    return {"steps": _with_efficiency([each.document for each in steps])} | _breaks(steps)


def _rule(error: ValueError) -> str:
    """The rule that a system breaks; the place in the study is not where the count was stated."""
    return "; ".join(each["detail"] for each in error.errors) if isinstance(error, StudyError) else str(error)


def _alone(problem: Problem, index: int, n_chips: int) -> Problem:
    """One scenario of a study by itself, on so many chips."""
    compiled = _compiled(problem, index, n_chips)
    document = problem.document.model_copy(
        update={"workload": problem.document.workload.model_copy(
            update={"scenarios": [problem.document.workload.scenarios[index]]}
        )}
    )  # fmt: skip
    return dataclasses.replace(
        problem, document=document, scenarios=(compiled,), qualities=(problem.qualities[index],),
        objectives=inner_objectives(problem), mixture=Mixture(np.ones(1), np.ones(1)), proofs=[], replays={},
    )  # fmt: skip


def _compiled(problem: Problem, index: int, n_chips: int) -> Compiled:
    """The scenario on so many chips; its plans are found anew."""
    scenario = problem.scenarios[index].scenario
    system = _system(scenario.system, n_chips)
    if isinstance(scenario, ServingScenario):
        return compile_scenario(dataclasses.replace(scenario, system=system))
    stated = {"n_chips": system.n_chips, "n_chips_per_node": system.n_chips_per_node}
    study = problem.document.model_copy(update={"system": problem.document.system.model_copy(update=stated)})
    own = study.workload.scenarios[index]
    read, _ = SCENARIO_READERS[own.kind](own, study, f"/workload/scenarios/{index}", problem.inputs)
    return compile_scenario(dataclasses.replace(read, system=system, calibration=scenario.calibration))


def _system(system: System, n_chips: int) -> System:
    return dataclasses.replace(system, n_chips=n_chips, n_chips_per_node=min(n_chips, system.n_chips_per_node))


def _with_efficiency(steps: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rate per chip over that of the smallest system that serves."""
    first = next((each["units_per_s_per_chip"] for each in steps if each["serves"]), 1.0)
    return [
        {**each, "efficiency_ratio": each["units_per_s_per_chip"] / first} if each["serves"] else dict(each)
        for each in steps
    ]


def _breaks(steps: Sequence[Step]) -> dict[str, Any]:
    """The first size at which a chip does markedly less than in the best smaller system, and where its time goes."""
    best: Mapping[str, Any] | None = None
    for each in (step.document for step in steps if step.document["serves"]):
        if best is not None and each["units_per_s_per_chip"] < BREAK_RATIO * best["units_per_s_per_chip"]:
            return {"breaks": _break(best, each)}
        if best is None or each["units_per_s_per_chip"] > best["units_per_s_per_chip"]:
            best = each
    return {"breaks": None}


def _break(best: Mapping[str, Any], here: Mapping[str, Any]) -> dict[str, Any]:
    """By resource, how much more of a chip's time a unit of work waits for it than in the best smaller system."""
    rate_ratio = here["units_per_s_per_chip"] / best["units_per_s_per_chip"]
    names = {*best["time_shares"], *here["time_shares"]}
    more = {
        name: here["time_shares"].get(name, 0.0) - rate_ratio * best["time_shares"].get(name, 0.0) for name in names
    }
    resource = max(sorted(more), key=lambda name: more[name])
    return {
        "n_chips": here["n_chips"],
        "rate_ratio": rate_ratio,
        "resource": resource,
        "lost_time_fraction": more[resource] / (1.0 - rate_ratio),
    }
