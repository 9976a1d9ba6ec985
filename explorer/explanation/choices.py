"""Reliefs that change what is chosen inside: room for a larger batch, a wider error budget, formats run natively."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from explorer.explanation.resources import ERROR_BUDGET, FALL_BACK, MEMORY_CAPACITY
from explorer.explanation.work import Judged, Work, gain_fraction
from explorer.objectives import objective_values
from explorer.plans import plan_chosen
from models.checks import FloatArray
from models.evaluate import evaluate
from models.evaluation import ScenarioEvaluation, worst_violation
from models.hardware.design import DesignBatch, take
from models.precision.error import mix_kl_nats
from models.precision.mix import RECIPES
from models.serving.steady import CompiledServing, compile_serving

NATIVE_RATE_RATIO = {"int8": 2.0, "fp8": 2.0, "fp4": 4.0}
"""Rate over bf16 of formats that an array is given."""

LEAST_GAIN_FRACTION = 1e-3
"""Reliefs that gain less are not named."""


@dataclass(frozen=True)
class Relief:
    """A relief that switches something: how far, what it gains, and the work with it."""

    name: str
    factor: float | None
    """By how much the limit is widened; None where there is nothing to scale."""
    strength: float
    """Comparable with a share of the time: gain per widening, both in logarithms."""
    predicted_gain_fraction: float
    change: str
    free: Work
    price: Callable[[DesignBatch], DesignBatch]
    """The chip that is paid for, from the one before."""


def relief_of_choices(work: Work, wider: CompiledServing | None) -> list[Relief]:
    """Reliefs that gain something, `wider` from `wider_formats`; of several scenarios only the formats."""
    found = [_native_formats(work)]
    if len(work.compiled) == 1 and isinstance(work.compiled[0], CompiledServing):
        found.append(_capacity(work, work.compiled[0]))
        if wider is not None:
            found.append(_error_budget(work, work.compiled[0], wider))
    return [each for each in found if each is not None]


def _native_formats(work: Work) -> Relief | None:
    """Every narrow format on the arrays: nothing falls back to wider formats and conversions on the lanes."""
    changed = {
        f"{name}_rate_ratio": np.maximum(getattr(work.performance, f"{name}_rate_ratio"), ratio)
        for name, ratio in NATIVE_RATE_RATIO.items()
    }
    added = [name for name in NATIVE_RATE_RATIO if getattr(work.performance, f"{name}_rate_ratio")[0] == 0]
    if not added:
        return None
    performance = dataclasses.replace(work.performance, **changed)
    free = dataclasses.replace(work, performance=performance)
    before, after = work.now(), free.now()
    gain = float(gain_fraction(before.cost(), after.cost())[0])
    if gain < LEAST_GAIN_FRACTION:
        return None
    return Relief(
        FALL_BACK, None, 1.0 - 1.0 / (1.0 + gain), gain, f"arrays also run {', '.join(added)}", free,
        lambda cost: dataclasses.replace(cost, **{name: getattr(performance, name) for name in changed}),
    )  # fmt: skip


def _capacity(work: Work, compiled: CompiledServing) -> Relief | None:
    """More memory for a larger batch of the same plan and formats."""
    evaluation, window = _window(work, compiled)
    cost, excess = _costs(work, evaluation), _excess(evaluation, "memory_capacity")
    room = evaluation.violations["memory_capacity"][0]
    allowed = np.where(excess <= 0, cost, np.inf)
    best = int(np.argmin(allowed))
    within = float(np.min(np.where(room <= 0, allowed, np.inf)))
    if room[best] <= 0 or not np.isfinite(within):
        return None
    gain = float(work.now().cost()[0] / cost[best] - 1.0)
    if gain < LEAST_GAIN_FRACTION:
        return None
    factor = float(1.0 + room[best])
    more = dataclasses.replace(work.performance, memory_capacity_bytes=work.performance.memory_capacity_bytes * factor)
    batch = int(np.broadcast_to(evaluation.choices["batch"], evaluation.units_per_s.shape)[0, best])
    return Relief(
        MEMORY_CAPACITY, factor, float(np.log1p(gain) / np.log(factor)), gain, f"batch of {batch}",
        dataclasses.replace(work, performance=more, alternatives=(int(window[best]),)),
        lambda chip: dataclasses.replace(chip, memory_stacks=chip.memory_stacks * factor),
    )  # fmt: skip


def wider_formats(work: Work) -> CompiledServing | None:
    """The plan and formats at work beside all recipes beyond the quality budget; None where there are none."""
    compiled, quality = work.compiled[0], work.problem.qualities[0]
    if len(work.compiled) > 1 or not isinstance(compiled, CompiledServing) or not np.isfinite(quality.budget_nats):
        return None
    scenario, choices, at = compiled.scenario, compiled.choices, work.alternatives[0]
    kl = {name: mix_kl_nats(mix, scenario.network, kappa=quality.kappa) for name, mix in RECIPES.items()}
    wider = [RECIPES[name] for name, value in kl.items() if value > quality.budget_nats]
    if not wider or scenario.scheduling == "disaggregated":
        return None
    depth = work.now().evaluations[0].choices["pipeline_parallel"][0, 0]
    plan = plan_chosen(
        {
            "tensor_parallel": choices.tensor_parallel[at],
            "attention_data_parallel": choices.attention_data_parallel[at],
            "pipeline_parallel": depth,
        }
    )
    mixes = (scenario.mixes[int(choices.mix[at])], *wider)
    return compile_serving(dataclasses.replace(scenario, mixes=mixes), [plan])


def _error_budget(work: Work, compiled: CompiledServing, wider: CompiledServing) -> Relief | None:
    """Formats beyond the quality budget at the same plan and batch."""
    batch = compiled.choices.batch[work.alternatives[0]]
    same = np.flatnonzero(wider.choices.batch == batch)
    evaluation = evaluate(
        work.copies(len(same)), take(work.cost, np.zeros(len(same), dtype=np.int64)), [wider], work.problem.tables,
        same[:, None], technology=work.problem.technology,
    )[0]  # fmt: skip
    costs = Judged(work.problem, (evaluation,)).cost()
    best = int(np.argmin(np.where(worst_violation(evaluation)[:, 0] <= 0, costs, np.inf)))
    gain = float(work.now().cost()[0] / costs[best] - 1.0)
    if best == 0 or gain < LEAST_GAIN_FRACTION:
        return None
    quality, mix = work.problem.qualities[0], wider.scenario.mixes[int(wider.choices.mix[same[best]])]
    factor = mix_kl_nats(mix, wider.scenario.network, kappa=quality.kappa) / quality.budget_nats
    return Relief(
        ERROR_BUDGET, float(factor), float(np.log1p(gain) / np.log(factor)), gain, f"formats {mix.name}",
        dataclasses.replace(work, compiled=(wider,), alternatives=(int(same[best]),)), lambda chip: chip,
    )  # fmt: skip


def _window(work: Work, compiled: CompiledServing) -> tuple[ScenarioEvaluation, np.ndarray]:
    """All batches of the plan and mix at work."""
    first, last = next((a, b) for a, b in compiled.windows if a <= work.alternatives[0] <= b)
    window = np.arange(first, last + 1)
    problem = work.problem
    evaluation = evaluate(
        work.performance, work.cost, [compiled], problem.tables, window[None, :], technology=problem.technology
    )[0]
    return evaluation, window


def _costs(work: Work, evaluation: ScenarioEvaluation) -> FloatArray:
    first = work.problem.objectives[0]
    values = objective_values(first, [evaluation], work.problem.mixture)[0]
    return np.asarray(1.0 / values if first.maximize else values)


def _excess(evaluation: ScenarioEvaluation, left_out: str) -> FloatArray:
    """Largest excess over any limit but one of each alternative of the one design [1]."""
    shape = evaluation.units_per_s.shape
    kept = [np.broadcast_to(v, shape)[0] for name, v in evaluation.violations.items() if name != left_out]
    return np.asarray(np.max(np.stack(kept), axis=0))
