"""Why the formats of a recommended design are what they are: map, error bill, four classes, price of quality."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from explorer.inner_optimum import InnerOptimum, Operation, inner_optimum, judged_mixes, relative_costs
from explorer.module_returns import RESOURCES, module_resource_return
from explorer.objectives import Objective
from explorer.plans import plan_of
from explorer.problem import Problem
from explorer.records import TrialRecord
from explorer.space import designs_at, point_of
from explorer.training_precision import training_precision
from explorer.workload import Quality
from models.checks import FloatArray
from models.precision.error import mix_kl_nats
from models.precision.explanation import ModulePrecision, advice, module_amplification, precision_map
from models.precision.knapsack import cheapest_choices
from models.precision.mix import GEMM_MODULES, RECIPES, VECTOR_MODULES, PrecisionMix, precision_mix
from models.serving.capacity import largest_batch, plan_memory_bytes, stage_weight_bytes
from models.serving.scenario import ServingScenario
from models.serving.steady import CompiledServing
from models.tables import constants
from models.throughput.scenario import TrainingScenario

BUDGET_STEPS = (0.5, 1.0, 1.1, 2.0, 4.0)
"""Error budgets, over the study's, at which the price of quality is stated."""


def precision_report(problem: Problem, record: TrialRecord) -> dict[str, Any]:
    """
    Return the precision section of the explanation of one judged design; empty where nothing is
    served or trained.

    Parameters
    ----------
    problem : Problem
    record : TrialRecord
        A trial of that problem.

    Returns
    -------
    dict
        By scenario where the study has several, else of the one scenario.
    """
    reports = {}
    for compiled, quality in zip(problem.scenarios, problem.qualities, strict=True):
        if isinstance(compiled, CompiledServing):
            point = record.operating_point
            own = point if len(problem.scenarios) == 1 else point[compiled.scenario.name]
            reports[compiled.scenario.name] = _scenario_report(problem, record, compiled.scenario, quality, own)
        elif isinstance(compiled.scenario, TrainingScenario):
            reports[compiled.scenario.name] = training_precision(compiled.scenario, quality)
    if len(problem.scenarios) > 1:
        return reports
    return next(iter(reports.values()), {})


def _scenario_report(
    problem: Problem, record: TrialRecord, scenario: ServingScenario, quality: Quality, point: Mapping[str, Any]
) -> dict[str, Any]:
    document = problem.document
    designs = designs_at(
        problem.space, point_of(problem.space, record.params)[None, :],
        node_nm=document.technology.node_nm, tdp_w=document.budget.tdp,
    )  # fmt: skip
    objectives = problem.objectives if len(problem.scenarios) == 1 else (Objective("units_per_s", True),)
    operation = Operation(scenario, designs, plan_of(point), int(point["micro_batch"]), tuple(objectives))
    mix = next(each for each in scenario.mixes if each.name == point["precision_mix"])
    own_kl = mix_kl_nats(mix, scenario.network, kappa=quality.kappa)
    budget = quality.budget_nats if np.isfinite(quality.budget_nats) else own_kl
    optimum = inner_optimum(operation, budget, kappa=quality.kappa)
    return {
        "mix": mix.name,
        "budget_nats": budget,
        "kl_nats": own_kl,
        "modules": _modules(operation, mix, quality.kappa),
        "classes": _classes(operation, mix),
        "against_bf16": _against_bf16(operation, mix),
        "searched_mixes": _searched(scenario, quality),
        "exact_mix": _exact(operation, mix, optimum, quality.kappa),
        "price_of_quality": _prices(optimum, budget),
    }


def _modules(operation: Operation, mix: PrecisionMix, kappa: float) -> list[dict[str, Any]]:
    """Precision map: formats, error share, and what the module's formats save against bf16 when only it has them."""
    rows = precision_map(mix, operation.scenario.network, kappa=kappa)
    alone = [_only(mix, row.module) for row in rows]
    judged = judged_mixes(operation, [RECIPES["bf16"], *alone])
    weights = _weight_bytes(operation, [RECIPES["bf16"], *alone])
    saved_s = judged.step_s[0, 0] - judged.step_s[0, 1:]
    return [
        _module_document(row) | {"step_time_saved_s": float(time_s), "weight_bytes_saved": float(saved_bytes)}
        for row, time_s, saved_bytes in zip(rows, saved_s, weights[0] - weights[1:], strict=True)
    ]


def _module_document(row: ModulePrecision) -> dict[str, Any]:
    return {
        "module": row.module,
        "stationary_format": row.stationary,
        "moving_format": row.moving or None,
        "stored_bits": row.stored_bits,
        "bits_saved_fraction": row.saved_fraction,
        "kl_nats": row.kl_nats,
        "error_share_fraction": row.error_share_fraction,
    }


def _only(mix: PrecisionMix, module: str) -> PrecisionMix:
    """The formats of one module of a mix, everything else bf16."""
    name = f"only {module}"
    if module in GEMM_MODULES:
        formats = {module: mix.weight_format[module]}, {module: mix.activation_format[module]}
        return precision_mix(name, weights=formats[0], activations=formats[1])
    if module in VECTOR_MODULES:
        return precision_mix(name, vectors={module: mix.vector_format[module]})
    keys, values = (mix.key_format, "bf16") if module == "key" else ("bf16", mix.value_format)
    meets = "query" if module == "key" else "probabilities"
    return precision_mix(name, kv=(keys, values), vectors={meets: mix.vector_format[meets]})


def _weight_bytes(operation: Operation, mixes: list[PrecisionMix]) -> FloatArray:
    """Stored weights of one chip under each mix, shape (n_mixes,) [B]."""
    return stage_weight_bytes(operation.scenario.network, operation.plan, mixes)


def _against_bf16(operation: Operation, mix: PrecisionMix) -> dict[str, float]:
    """The whole mix against bf16 everywhere at the same batch and plan."""
    judged = judged_mixes(operation, [RECIPES["bf16"], mix])
    weights = _weight_bytes(operation, [RECIPES["bf16"], mix])
    held = _largest_batch(operation, [RECIPES["bf16"], mix])
    return {
        "step_time_bf16_s": float(judged.step_s[0, 0]),
        "step_time_s": float(judged.step_s[0, 1]),
        "step_time_saved_fraction": float(1.0 - judged.step_s[0, 1] / judged.step_s[0, 0]),
        "weight_bytes_bf16": float(weights[0]),
        "weight_bytes": float(weights[1]),
        "weight_bytes_saved_fraction": float(1.0 - weights[1] / weights[0]),
        "kv_bits_saved_fraction": 1.0 - mix.kv_bits / 16.0,
        "batch_ratio": float(held[1] / max(held[0], 1e-9)),
    }


def _largest_batch(operation: Operation, mixes: list[PrecisionMix]) -> FloatArray:
    """Sequences that memory holds in each micro-batch under each mix, shape (n_mixes,) [1]."""
    network, tokens = operation.scenario.network, operation.scenario.requests.reserved_tokens
    fits = largest_batch(operation.designs, *plan_memory_bytes(network, operation.plan, mixes, tokens))[0]
    return np.asarray(np.maximum(fits, 0.0))


def _classes(operation: Operation, mix: PrecisionMix) -> dict[str, Any]:
    """The four classes: amplification high or low x largest resource return high or low, with thresholds."""
    returns = module_resource_return(operation, mix)
    amplification = module_amplification()
    known = [row.module for row in precision_map(mix, operation.scenario.network)]
    # values that no operator of their own moves, such as a residual stream added inside the norm
    returns |= {module: dict.fromkeys(RESOURCES, 0.0) for module in known if module not in returns}
    largest = [max(returns[module].values()) for module in known]
    thresholds = {
        "amplification_ratio": constants("precision")["high_amplification_ratio"],
        "module_resource_return": constants("precision")["high_resource_return_fraction"],
    }
    texts = advice([amplification[module] for module in known], np.maximum(largest, 0.0))
    return {
        "thresholds": thresholds,
        "return_measured_by": "design evaluated again with 10 % more of the resource for the module's operators alone",
        "modules": [
            {
                "module": module,
                "amplification_ratio": amplification[module],
                "high_amplification": amplification[module] >= thresholds["amplification_ratio"],
                "module_resource_return": returns[module],
                "high_return": most >= thresholds["module_resource_return"],
                "advice": text,
            }
            for module, most, text in zip(known, largest, texts, strict=True)
        ],
        "other_returns": {module: row for module, row in returns.items() if module not in known},
    }


def _searched(scenario: ServingScenario, quality: Quality) -> dict[str, Any]:
    """
    The mixes that competed in every design: a certificate holds for them alone.

    Others were left out for what they save at most on the steps of the workload; `exact_mix` says what they would
    save on this design.
    """
    stated: dict[str, Any] = {"competing": [mix.name for mix in scenario.mixes]}
    found = quality.selection
    if found is None:
        return stated | {"considered": len(scenario.mixes)}
    return stated | {
        "considered": found.n_considered,
        "left_out_save_at_most_fraction": 1.0 - 1.0 / (1.0 + found.largest_extra_cost_fraction),
        "left_out_save_on_average_fraction": 1.0 - 1.0 / (1.0 + found.mean_extra_cost_fraction),
    }


def _exact(operation: Operation, mix: PrecisionMix, optimum: InnerOptimum, kappa: float) -> dict[str, Any]:
    """The optimum over all combinations beside the mix that was searched with."""
    costs = relative_costs(operation.objectives, judged_mixes(operation, [mix, optimum.mix]))
    better = optimum.feasible and costs[1] < costs[0]
    best = optimum.mix if better else mix
    return {
        "mix": best.name,
        "gain_fraction": float(1.0 - min(costs[1], 1.0)) if better else 0.0,
        "predicted_cost_ratio": optimum.predicted_cost,
        "evaluated_cost_ratio": optimum.cost,
        "kl_nats": mix_kl_nats(best, operation.scenario.network, kappa=kappa),
        "n_evaluated": len(optimum.changes.mixes),
        "n_combinations": float(np.prod([float(len(group.choices)) for group in optimum.changes.groups])),
    }


def _prices(optimum: InnerOptimum, budget: float) -> dict[str, Any]:
    """What the best mix costs under other error budgets, and what 10 % more of it buys."""
    costs, errors = option_costs(optimum)
    rows = []
    for step in BUDGET_STEPS:
        total = float(cheapest_choices(costs, errors, budget * step)[1][0])
        rows.append({"budget_nats": budget * step, "cost_ratio": total if np.isfinite(total) else None})
    now, more = (float(cheapest_choices(costs, errors, budget * step)[1][0]) for step in (1.0, 1.1))
    return {"more_budget_fraction": 0.1, "saved_fraction": 1.0 - more / now, "budgets": rows}


def option_costs(optimum: InnerOptimum) -> tuple[list[FloatArray], list[FloatArray]]:
    """Cost of each option of each group for `cheapest_choices`, the base in the first group, and its errors."""
    changes = optimum.changes
    costs = [np.zeros((1, len(group.choices))) for group in changes.groups]
    for column in range(1, len(changes.mixes)):
        changed = optimum.single_costs[column] - optimum.single_costs[0]
        costs[changes.group_of[column]][0, changes.option_of[column]] = changed
    costs[0] += optimum.single_costs[0]
    return costs, [group.kl_nats for group in changes.groups]
