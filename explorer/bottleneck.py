"""Where the time of a recommended design goes: share of each operator in a step, and what bounds it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from explorer.plans import plan_of
from explorer.problem import Problem
from explorer.records import TrialRecord
from explorer.space import designs_at, point_of
from models.hardware.design import DesignBatch, peak_flop_per_s
from models.operators.activity import TermActivity
from models.operators.factor_tables import FactorTables
from models.operators.step import StepActivity, StepProgram, run_step
from models.serving.steady import CompiledServing

BOUND_SHARE = 0.5
"""Share of an operator's time that its compute or memory bound must explain to be called its resource."""


def bottleneck(problem: Problem, record: TrialRecord) -> dict[str, Any]:
    """
    Return the step of each serving scenario, taken apart at the record's operating point.

    Returns
    -------
    dict
        Scenario name -> {step_s at the highest clock, terms: [{name, share_fraction, resource}] largest first,
        resources: share of the step by resource, FLOP over the bf16 peak (above 1 where narrower formats run faster),
        share of the memory bandwidth}.
        Times of a resource are those of the operators that it bounds; `overhead` is what neither compute nor
        memory traffic explains: starts, latencies, the host.
    """
    document = problem.document
    point = point_of(problem.space, record.params)[None, :]
    designs = designs_at(problem.space, point, node_nm=document.technology.node_nm, tdp_w=document.budget.tdp)
    reports = {}
    for compiled in problem.scenarios:
        if isinstance(compiled, CompiledServing):
            own = record.operating_point
            own = own if len(problem.scenarios) == 1 else own[compiled.scenario.name]
            reports[compiled.scenario.name] = _report(compiled, designs, alternative_of(compiled, own))
    return reports


def alternative_of(compiled: CompiledServing, operating_point: Mapping[str, Any]) -> int:
    """Position of an operating point among the alternatives of its scenario."""
    choices, plan = compiled.choices, plan_of(operating_point)
    names = [mix.name for mix in compiled.scenario.mixes]
    same = (
        (choices.tensor_parallel == plan.tensor_parallel)
        & (choices.attention_data_parallel == plan.attention_data_parallel)
        & (choices.batch == operating_point["micro_batch"])
        & (choices.mix == names.index(operating_point["precision_mix"]))
        & (compiled.pipelines.depth == plan.pipeline_parallel).any(axis=1)
    )
    return int(np.flatnonzero(same)[0])


def _report(compiled: CompiledServing, designs: DesignBatch, alternative: int) -> dict[str, Any]:
    wanted = np.array([[alternative]])
    activity = run_step(compiled.step, designs, FactorTables(), alternatives=wanted, keep_terms=True)
    total_s = float(activity.time_s[0, 0])
    terms = _term_shares(activity, compiled.step.overhead_s)
    return {
        "step_s": total_s,
        "terms": sorted(terms, key=lambda each: -float(each["share_fraction"])),
        "resources": _resource_shares(terms),
        **_utilization(activity, designs, total_s),
    }


def largest_resource(program: StepProgram, designs: DesignBatch, alternative: int, tables: FactorTables) -> str:
    """The resource that bounds most of a step of the one design: compute, memory, links or overhead."""
    wanted = np.array([[alternative]])
    activity = run_step(program, designs, tables, alternatives=wanted, keep_terms=True)
    shares = _resource_shares(_term_shares(activity, program.overhead_s))
    return max(shares, key=lambda name: shares[name])


def latency_term(
    compiled: CompiledServing, designs: DesignBatch, alternative: int, limit: str, tables: FactorTables
) -> dict[str, Any]:
    """The operator that takes most of a first token (`ttft_p95`) or of a step, its share and its resource."""
    program, place = compiled.step, alternative
    if limit == "ttft_p95":
        program, place = compiled.prompt, int(compiled.prompt_index[alternative])
    wanted = np.array([[place]])
    activity = run_step(program, designs, tables, alternatives=wanted, keep_terms=True)
    terms = _term_shares(activity, program.overhead_s)
    largest = max(terms, key=lambda each: each["share_fraction"])
    return {"term": largest["name"], "term_share_fraction": largest["share_fraction"], "resource": largest["resource"]}


def _term_shares(activity: StepActivity, overhead_s: float) -> list[dict[str, Any]]:
    """Operators of a step, and all host time of it as one: share of the step, and resource that bounds each."""
    total_s = float(activity.time_s[0, 0])
    times_s = {name: float(term.time_s[0, 0]) for name, term in activity.terms.items()}
    times_s["host"] = times_s.get("host", 0.0) + overhead_s
    resources = {"host": "overhead"} | {name: _resource(term) for name, term in activity.terms.items()}
    return [
        {"name": name, "share_fraction": time_s / total_s, "resource": resources[name]}
        for name, time_s in times_s.items()
    ]


def _resource_shares(terms: list[dict[str, Any]]) -> dict[str, float]:
    shares = {"overhead": 0.0}
    for each in terms:
        shares[each["resource"]] = shares.get(each["resource"], 0.0) + each["share_fraction"]
    return shares


def _resource(term: TermActivity) -> str:
    """What bounds an operator: the larger of its two bounds where that explains most of its time."""
    time_s, compute_s, memory_s = (float(np.broadcast_to(v, (1, 1))[0, 0]) for v in _times(term))
    if float(np.max(term.link_bytes)) > 0:
        return "links"
    if max(compute_s, memory_s) < BOUND_SHARE * time_s:
        return "overhead"
    return "compute" if compute_s >= memory_s else "memory"


def _times(term: TermActivity) -> tuple[Any, Any, Any]:
    return term.time_s, term.compute_s, term.memory_s


def _utilization(activity: StepActivity, designs: DesignBatch, total_s: float) -> dict[str, float]:
    """Arithmetic over the bf16 peak and main-memory traffic over the bandwidth, at the highest clock."""
    flop = 2.0 * sum(float(values[0, 0]) for values in activity.macs.values())
    traffic = float(activity.dram_bytes[0, 0])
    return {
        "bf16_equivalent_peak_fraction": flop / float(peak_flop_per_s(designs)[0]) / total_s,
        "memory_utilization_fraction": traffic / float(designs.memory_bandwidth_bytes_per_s[0]) / total_s,
    }
