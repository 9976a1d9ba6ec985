"""One trial as plain data: what is stored, replayed to the sampler and shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from explorer.objectives import DESIGN_METRICS
from explorer.plans import chosen_plan_document, training_plan_document
from explorer.problem import Judgement, Problem, judged_metrics, violated_limit
from explorer.space import values_at
from explorer.workload import Quality
from models.checks import IntArray
from models.hardware.design import (
    BOUND_FIELDS,
    DESIGN_FIELDS,
    CoreControl,
    DesignBatch,
    MemoryKind,
    SecondTier,
    Stationarity,
    take,
)
from models.precision.mix import PrecisionMix
from models.serving.capacity import CAPACITY_CRITICAL_FRACTION, free_memory_fraction
from models.serving.scenario import ServingScenario
from models.serving.steady import CompiledServing
from models.tables import constants
from models.throughput.convnet import FIRST, INNER, LAST, LOWERINGS
from models.throughput.scenario import ConvnetScenario, GemmListScenario, TrainingScenario

CODES = {
    "stationarity": Stationarity,
    "memory_kind": MemoryKind,
    "second_tier": SecondTier,
    "core_control": CoreControl,
}


TIER_CONTENTS = ("embedding", "expert", "cache", "weight")
"""What a second tier may hold of a network and its work."""


@dataclass(frozen=True)
class TrialRecord:
    """
    One design judged at its best inner choices.

    `params` are the values of the space as a study writes them, `design` the same in units, `violated` the limit
    that is exceeded most (with its relative excess in `excess`), `objectives` in the order of the study.
    """

    number: int
    params: dict[str, Any]
    feasible: bool
    violated: str | None
    excess: dict[str, float]
    objectives: list[float]
    design: dict[str, Any]
    operating_point: dict[str, Any]
    metrics: dict[str, Any]
    certificate: list[dict[str, Any]] | None = None
    """What the exact search had proven when this trial was proposed; on the last trial of a chunk only."""

    def as_json(self) -> dict[str, Any]:
        """Plain data that `record_from_json` turns back into an equal record."""
        return dict(vars(self))


def record_from_json(document: dict[str, Any]) -> TrialRecord:
    """The record that `as_json` wrote."""
    return TrialRecord(**document)


def records_of(problem: Problem, points: IntArray, judgement: Judgement, first_number: int) -> list[TrialRecord]:
    """One record per judged point."""
    records = []
    for i, point in enumerate(points):
        feasible = bool(judgement.feasible[i])
        records.append(
            TrialRecord(
                number=first_number + i,
                params=values_at(problem.space, point),
                feasible=feasible,
                violated=None if feasible else violated_limit(judgement, i)[0],
                excess={name: float(max(values[i], -1.0)) for name, values in judgement.excess.items()},
                objectives=[float(value) for value in judgement.objectives[i]],
                design=design_document(judgement.designs, i),
                operating_point=operating_point(problem, judgement, i),
                metrics=metrics_document(problem, judgement, i),
            )
        )
    return records


def design_document(designs: DesignBatch, index: int) -> dict[str, Any]:
    """One design as field -> value, codes by name."""
    document: dict[str, Any] = {}
    for name in (n for n in DESIGN_FIELDS if n not in BOUND_FIELDS):
        value = float(getattr(designs, name)[index])
        document[name] = CODES[name](int(value)).name.lower() if name in CODES else value
    return document


def operating_point(problem: Problem, judgement: Judgement, index: int) -> dict[str, Any]:
    """The inner choices of one design: plan, batch, formats, by scenario where there are several."""
    points = {}
    parts = zip(problem.scenarios, problem.qualities, judgement.evaluations, strict=True)
    for compiled, quality, evaluation in parts:
        choice = {name: values[index, 0] for name, values in evaluation.choices.items()}
        points[compiled.name] = _DESCRIBED[evaluation.kind](compiled.scenario, quality, choice)
        if isinstance(compiled, CompiledServing):
            own = take(judgement.designs, [index])
            points[compiled.name] |= _memory_point(own, choice["weight_bytes"]) | {
                "inputs": _stated_inputs(compiled.scenario, own)
            }
    return points if len(points) > 1 else next(iter(points.values()))


def _memory_point(design: DesignBatch, weight_bytes: float) -> dict[str, Any]:
    """How much room the weights leave, and whether so little that the batch hangs on a small difference."""
    free = float(free_memory_fraction(design, np.array([weight_bytes]))[0, 0])
    return {"free_memory_fraction": free, "capacity_critical": free < CAPACITY_CRITICAL_FRACTION}


def _stated_inputs(scenario: ServingScenario, design: DesignBatch) -> dict[str, float]:
    """What the figures rest on beside network, lengths and design."""
    requests, system = scenario.requests, scenario.system
    exponent = system.host_sharing_exponent
    return {
        "prefix_hit_fraction": requests.cached_prefix_tokens / requests.input_tokens,
        "routing_skew": scenario.routing_skew,
        "step_overhead_s": scenario.step_overhead_s,
        "host_bytes_per_s": float(system.host_bytes_per_s or design.host_bytes_per_s[0]),
        "host_sharing_exponent": constants("collective")["host_sharing_exponent"] if exponent is None else exponent,
        **({} if scenario.speculation is None else {"tokens_per_step": scenario.tokens_per_step}),
    }


def _serving_point(scenario: ServingScenario, quality: Quality, choice: Mapping[str, Any]) -> dict[str, Any]:
    mix = scenario.mixes[int(choice["mix"])]
    return {
        "plan": chosen_plan_document(scenario, choice),
        "batch": int(choice["batch"]),
        "micro_batch": int(choice["micro_batch"]),
        "scheduling": scenario.scheduling,
        **_mix_point(mix, quality),
        "weight_bits": {m: mix.weight_bits(m) for m in sorted({o.module for o in scenario.network.linears})},
        "kv_bits": mix.kv_bits,
        **_second_tier_point(choice),
    }


def _second_tier_point(choice: Mapping[str, Any]) -> dict[str, Any]:
    """What lies in the second tier, and what a step reads there; nothing where the main memory holds all."""
    held = {name: float(choice.get(f"second_tier_{name}_bytes", 0.0)) for name in TIER_CONTENTS}
    if not any(held.values()):
        return {}
    read = float(choice["second_tier_read_bytes"])
    return {"second_tier": {"held_bytes": held, "read_bytes_per_step": read}}


def _mix_point(mix: PrecisionMix, quality: Quality) -> dict[str, Any]:
    known = dict(zip([m.name for m in quality.mixes], quality.kl_nats, strict=True))
    return {"precision_mix": mix.name, "kl_nats": known.get(mix.name)}


def _convnet_point(scenario: ConvnetScenario, quality: Quality, choice: Mapping[str, Any]) -> dict[str, Any]:
    mix = scenario.mixes[int(choice["mix"])]
    return {
        "data_parallel": scenario.system.n_chips,
        "batch": scenario.batch,
        "lowering": LOWERINGS[int(choice["im2col"])],
        **_mix_point(mix, quality),
        "weight_bits": {name: mix.weight_bits(name) for name in (FIRST, INNER, LAST)},
    }


def _gemm_list_point(scenario: GemmListScenario, quality: Quality, choice: Mapping[str, Any]) -> dict[str, Any]:
    return {"data_parallel": scenario.system.n_chips, **_mix_point(scenario.mixes[int(choice["mix"])], quality)}


def _training_point(scenario: TrainingScenario, quality: Quality, choice: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "plan": training_plan_document(choice),
        "recompute": scenario.plans[0].recompute,
        "precision_mix": scenario.mix.name,
    }


_DESCRIBED: Mapping[str, Callable[[Any, Quality, Mapping[str, Any]], dict[str, Any]]] = {
    "llm_serving": _serving_point,
    "convnet": _convnet_point,
    "gemm_list": _gemm_list_point,
    "training": _training_point,
}
"""Kind of scenario -> its inner choices as plain data."""


def metrics_document(problem: Problem, judgement: Judgement, index: int) -> dict[str, Any]:
    """All metrics of one design; with several scenarios those of each beside the combined ones."""
    names = [each.name for each in problem.document.workload.scenarios]
    each = {n: judged_metrics(e, index) for n, e in zip(names, judgement.evaluations, strict=True)}
    first = each[names[0]]
    metrics: dict[str, Any] = dict(first)
    if len(names) > 1:
        metrics = {"scenarios": each} | {name: first[name] for name in DESIGN_METRICS}
    for objective, value in zip(problem.objectives, judgement.objectives[index], strict=True):
        metrics[objective.metric] = float(value)
    return {name: value for name, value in metrics.items() if not isinstance(value, float) or np.isfinite(value)}
