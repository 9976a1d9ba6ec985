"""Parallel plans of serving scenarios as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from models.architectures.plans import ParallelPlan
from models.serving.scenario import ServingScenario


def plan_chosen(choice: Mapping[str, Any]) -> ParallelPlan:
    """The plan among the inner choices of an alternative."""
    return ParallelPlan(
        int(choice["tensor_parallel"]), int(choice["attention_data_parallel"]), int(choice["pipeline_parallel"])
    )


def plan_document(scenario: ServingScenario, plan: ParallelPlan, prefill_engines: int | None = None) -> dict[str, int]:
    """
    Return a plan as an operating point shows it.

    `data_parallel` engines run side by side, or some for prompts and the others for answers; `expert_parallel` and
    `attention_data_parallel` only with routed experts.
    """
    n_experts = [linear.n_experts for linear in scenario.network.linears if linear.rows == "routed"]
    document = {"tensor_parallel": plan.tensor_parallel, "pipeline_parallel": plan.pipeline_parallel}
    if n_experts:
        groups = plan.attention_data_parallel
        spread = plan.stage_chips if groups > 1 else math.gcd(plan.tensor_parallel, *n_experts)
        document |= {"attention_data_parallel": groups, "expert_parallel": spread}
    n_engines = scenario.system.n_chips // plan.n_chips
    if prefill_engines is None:
        return document | {"data_parallel": n_engines}
    return document | {"prefill_engines": prefill_engines, "decode_engines": n_engines - prefill_engines}


def chosen_plan_document(scenario: ServingScenario, choice: Mapping[str, Any]) -> dict[str, int]:
    """The plan among the inner choices of an alternative, as an operating point shows it."""
    prefill = int(choice["prefill_engines"]) if "prefill_engines" in choice else None
    return plan_document(scenario, plan_chosen(choice), prefill)


def plan_of(operating_point: Mapping[str, Any]) -> ParallelPlan:
    """The plan of an operating point."""
    plan = operating_point["plan"]
    return ParallelPlan(plan["tensor_parallel"], plan.get("attention_data_parallel", 1), plan["pipeline_parallel"])


def training_plan_document(choice: Mapping[str, Any]) -> dict[str, Any]:
    """The plan of a training step as an operating point shows it."""
    return {name: bool(value) if name == "sequence_parallel" else int(value) for name, value in choice.items()}
