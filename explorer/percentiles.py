"""Latency percentiles of designs: their requests replayed through the engine that each one is."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from explorer.document import ServingDocument, SloDocument
from explorer.plans import plan_of
from explorer.problem import Problem
from explorer.token_budget import MOST_STEPS, best_token_budget, shown_percentiles, transfer_s, with_room
from explorer.workload import request_source
from models.architectures.plans import ParallelPlan
from models.hardware.design import DesignBatch, take
from models.operators.factor_tables import FactorTables
from models.serving.design_step import EngineOperation, engine_limits, engine_step_times
from models.serving.disaggregated import Pool, disaggregated_rate_per_s, replay_disaggregated
from models.serving.engine_step import BatchLimits, StepTime, sustainable_rate_per_s
from models.serving.engine_terms import scenario_traits
from models.serving.goodput import goodput_rate
from models.serving.replay import replay
from models.serving.scenario import ServingScenario
from models.serving.steady import CompiledServing
from models.tables import constants
from models.workload.arrivals import Arrivals
from models.workload.distribution import observed_distribution, request_moments
from models.workload.offered import offered_requests
from models.workload.requests import Requests

DRAWN, DRAWN_OUTPUT_TOKENS = (1000, 4000), 1e6
"""Requests drawn for each group of chips where a study has no trace, fewer where answers are long: steps, not requests,
take time to replay."""
GOODPUT_DRAWN = 800
"""Requests of them that a goodput is found with; a trace is replayed whole."""
GOODPUT_TOLERANCE = 0.05
LOWEST_LOAD = 0.05
"""Load at which limits that are broken already count as out of reach."""
SEED = 0


def design_percentiles(
    problem: Problem,
    designs: DesignBatch,
    points: Sequence[Mapping[str, Any]],
    trace: Requests | None = None,
    *,
    timeline: bool = False,
) -> list[dict[str, Any] | None]:
    """
    Return the replayed percentiles of each design at its operating point.

    The requests of the whole system are dealt in turn to its groups of chips, one of which is replayed.

    Parameters
    ----------
    problem : Problem
    designs : DesignBatch
        Of n_designs designs.
    points : sequence of n_designs mappings
        Operating points as a trial records them.
    trace : Requests, optional
        Replayed at its own times instead of the study's requests and arrivals.
    timeline : bool
        Keep the state of the engine at some moments of the run.

    Returns
    -------
    list
        One document a design, by scenario where there are several; None where no scenario states arrivals.
    """
    several = len(problem.scenarios) > 1
    found: list[dict[str, Any]] = [{} for _ in points]
    for compiled, document in zip(problem.scenarios, problem.document.workload.scenarios, strict=True):
        if not isinstance(compiled, CompiledServing) or not isinstance(document, ServingDocument):
            continue
        offer = _offer(document, problem, compiled.scenario, trace)
        if offer is None:
            continue
        own = [point[compiled.scenario.name] if several else point for point in points]
        for of_design, whole in zip(found, _scenario(compiled, offer, designs, own), strict=True):
            values = whole if timeline else {name: value for name, value in whole.items() if name != "timeline"}
            of_design |= {compiled.scenario.name: values} if several else values
    return [each or None for each in found]


@dataclass(frozen=True)
class _Offer:
    """What a scenario sends, when, and the limits its latencies must keep."""

    source: Any
    arrivals: Arrivals
    prefix_hit_fraction: float | None
    slo: Mapping[str, float]
    drawn_per_group: int


def states_arrivals(problem: Problem) -> bool:
    """Whether some serving scenario of a study says when its requests come."""
    served = [each for each in problem.document.workload.scenarios if isinstance(each, ServingDocument)]
    return any(_arrivals(each) is not None for each in served)


def _arrivals(document: ServingDocument) -> Arrivals | None:
    stated = document.arrivals
    from_trace = stated.source == "trace"
    if stated.load is None and stated.rate is None and not from_trace:
        return None
    return Arrivals(
        rate_per_s=stated.rate, load=stated.load, cv=stated.cv, dispersion_60_s=stated.dispersion_60_s,
        from_trace=from_trace,
    )  # fmt: skip


def _offer(
    document: ServingDocument, problem: Problem, scenario: ServingScenario, trace: Requests | None
) -> _Offer | None:
    slo, drawn = _limits(document.slo), _drawn_per_group(scenario.requests.output_tokens)
    if trace is not None:
        return _Offer(trace, Arrivals(from_trace=True), None, slo, drawn)
    arrivals = _arrivals(document)
    if arrivals is None:
        return None
    source = request_source(document.requests, problem.inputs)
    return _Offer(source, arrivals, document.prefix_hit_fraction, slo, drawn)


def _limits(document: SloDocument) -> dict[str, float]:
    return {f"{name}_s": value for name, value in document.model_dump(exclude_none=True).items()}


def _scenario(
    compiled: CompiledServing, offer: _Offer, designs: DesignBatch, points: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Designs that share plan and mix are compiled together, then replayed one by one."""
    scenario = compiled.scenario
    mixes = {mix.name: mix for mix in scenario.mixes}
    keys = [(plan_of(point), str(point["precision_mix"])) for point in points]
    moments = request_moments(observed_distribution(offer.source)) if isinstance(offer.source, Requests) else None
    found: list[dict[str, Any]] = [{} for _ in points]
    tables = FactorTables()
    for plan, name in dict.fromkeys(keys):
        own = [i for i, key in enumerate(keys) if key == (plan, name)]
        operation = EngineOperation(
            scenario.network, mixes[name], plan, moments or scenario.requests, scenario.step_overhead_s,
            scenario.routing_skew, scenario.system.n_chips_per_node, scenario_traits(scenario),
            scenario.calibration, scenario.speculation,
        )  # fmt: skip
        group = take(designs, own)
        steps = engine_step_times(operation, group, tables)
        limits = _engine_limits(scenario, operation, group)
        for place, (i, step) in enumerate(zip(own, steps, strict=True)):
            held = dataclasses.replace(limits[place], max_sequences=points[i]["batch"] // plan.attention_data_parallel)
            if scenario.scheduling == "disaggregated":
                sent_s = transfer_s(compiled, take(designs, [i]), plan, points[i]["precision_mix"])
                found[i] = _pooled(offer, scenario, plan, points[i]["plan"]["prefill_engines"], step, held, sent_s)
            else:
                n_groups = scenario.system.n_chips // plan.n_chips * plan.attention_data_parallel
                found[i] = _replayed(offer, step, held, n_groups)
    return found


def _engine_limits(scenario: ServingScenario, operation: EngineOperation, designs: DesignBatch) -> list[BatchLimits]:
    """Limits of each design's engine but for the batch; engines of one phase fill their steps as chunked ones do."""
    budget = int(constants("serving")["token_budget_tokens"])
    scheduling: Literal["chunked", "whole_prompt"] = (
        "whole_prompt" if scenario.scheduling == "whole_prompt" else "chunked"
    )
    return engine_limits(operation, designs, token_budget=budget, max_sequences=1, scheduling=scheduling)


def _replayed(offer: _Offer, step: StepTime, limits: BatchLimits, n_groups: int) -> dict[str, Any]:
    """Percentiles, load, sustainable rate and goodput of one design; rates are those of the whole system."""
    limits = with_room(limits, limits.token_budget)
    whole = _dealt(_drawn(offer, 1.0, n_groups), n_groups)
    engine_rate = sustainable_rate_per_s(whole, step, limits)
    if engine_rate == 0:
        return {"saturated": True, "stopped_at": "kv_capacity_tokens", "sustainable_requests_per_s": 0.0}
    requests = _dealt(_drawn(offer, engine_rate * n_groups, n_groups), n_groups)
    chosen, tried = best_token_budget(requests, step, limits, offer.slo)
    limits = with_room(limits, chosen)
    engine_rate = sustainable_rate_per_s(whole, step, limits)
    requests = _dealt(_drawn(offer, engine_rate * n_groups, n_groups), n_groups)
    return (
        shown_percentiles(replay(requests, step, limits, max_steps=MOST_STEPS), n_groups, requests.n)
        | {"token_budget": chosen, "token_budgets": tried}
        | _goodput(offer, requests, step, limits, n_groups)
    )


def _pooled(
    offer: _Offer,
    scenario: ServingScenario,
    plan: ParallelPlan,
    n_prefill: int,
    step: StepTime,
    limits: BatchLimits,
    sent_s: float,
) -> dict[str, Any]:
    """Percentiles of two pools, all requests of the system replayed."""
    groups, limits = plan.attention_data_parallel, with_room(limits, limits.token_budget)
    n_decode = scenario.system.n_chips // plan.n_chips - n_prefill
    pools = Pool(n_prefill * groups, step, limits), Pool(n_decode * groups, step, limits)
    rate = disaggregated_rate_per_s(_drawn(offer, 1.0, 1), *pools)
    if rate == 0:
        return {"saturated": True, "stopped_at": "kv_capacity_tokens", "sustainable_requests_per_s": 0.0}
    requests = _drawn(offer, rate, 1)
    per_token_s = sent_s / scenario.requests.input_tokens
    result = replay_disaggregated(requests, *pools, transfer_s_per_token=per_token_s)
    return shown_percentiles(result, 1, requests.n)


def _goodput(offer: _Offer, requests: Requests, step: StepTime, limits: BatchLimits, n_groups: int) -> dict[str, Any]:
    """The largest rate that keeps every stated limit, nothing where none is stated."""
    if not offer.slo or requests.arrival_s is None:
        return {}
    if not offer.arrivals.from_trace:
        requests = _first(requests, GOODPUT_DRAWN)
    best = goodput_rate(
        requests, step, limits, offer.slo, tolerance_fraction=GOODPUT_TOLERANCE, lowest_load=LOWEST_LOAD
    )
    return {
        "goodput_requests_per_s": best.rate_per_s * n_groups,
        "goodput_output_tokens_per_s": best.output_tokens_per_s * n_groups,
        "goodput_binding": best.binding,
        "slo_feasible": best.feasible,
        "slo_excess_fraction": max(best.excess_ratio - 1.0, 0.0) if np.isfinite(best.excess_ratio) else None,
    }


def _drawn_per_group(output_tokens: float) -> int:
    """Requests drawn for one group of chips."""
    return int(np.clip(DRAWN_OUTPUT_TOKENS / output_tokens, *DRAWN))


def _drawn(offer: _Offer, sustainable_per_s: float, n_groups: int) -> Requests:
    """The offered requests of the whole system, prefix hits included."""
    requests = offered_requests(
        offer.source, offer.arrivals, sustainable_per_s, n=offer.drawn_per_group * n_groups, seed=SEED
    )
    if offer.prefix_hit_fraction is None:
        return requests
    cached = np.floor(offer.prefix_hit_fraction * requests.input_tokens)
    return dataclasses.replace(requests, cached_prefix_tokens=cached)


def _dealt(requests: Requests, n_groups: int) -> Requests:
    """What one of equal groups of chips gets where requests are dealt in turn."""
    return requests if n_groups == 1 else _some(requests, slice(None, None, n_groups))


def _first(requests: Requests, n: int) -> Requests:
    return _some(requests, slice(0, n))


def _some(requests: Requests, which: slice) -> Requests:
    return Requests(
        arrival_s=None if requests.arrival_s is None else requests.arrival_s[which],
        input_tokens=requests.input_tokens[which],
        output_tokens=requests.output_tokens[which],
        cached_prefix_tokens=requests.cached_prefix_tokens[which],
    )
