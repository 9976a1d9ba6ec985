"""The shape of the work before any hardware is chosen: request statistics, operator sizes, arithmetic intensity."""

from __future__ import annotations

from typing import Any

import numpy as np

from explorer.document import ServingDocument, StudyDocument, StudyError
from explorer.inputs import Inputs, with_named_workload
from explorer.known_work import fitted_to
from explorer.problem import Problem, judge_designs, prepare
from explorer.records import operating_point
from explorer.regret import alone
from explorer.study import read_study
from explorer.workload import as_weighted, pointing_at, request_source
from models.checks import FloatArray
from models.hardware.catalog import chip_designs
from models.hardware.design import DesignBatch, peak_flop_per_s
from models.operators.activity import TermActivity
from models.operators.step import StepProgram, Term, run_step
from models.workload.distribution import weighted_quantiles
from models.workload.inspect import workload_statistics

QUANTILES = {"p10": 0.1, "p50": 0.5, "p90": 0.9}

WEIGHTS = ("flop", "bytes", "roofline_s")
"""What a size counts by: its work, its traffic, its time at the roofline of the reference chip."""

MAX_LISTED = 100
"""Operators listed one by one, those with most time first."""


def inspect_study(document: Any, inputs: Inputs) -> dict[str, Any]:
    """Return the shape of every scenario of a study; what it names lies in `inputs`."""
    study = read_study(with_named_workload(document, inputs))
    problem = prepare(study, inputs)
    scenarios = [_inspect_scenario(study, problem, i) for i in range(len(problem.scenarios))]
    result: dict[str, Any] = {"kind": "study", "name": study.name, "scenarios": scenarios}
    served = [each for each in scenarios if "requests" in each]
    if len(served) == 1:
        result |= {name: served[0][name] for name in ("requests", "moments", "classes")}
    return result


def _inspect_scenario(study: StudyDocument, problem: Problem, index: int) -> dict[str, Any]:
    document = study.workload.scenarios[index]
    statistics: dict[str, Any] = {}
    if isinstance(document, ServingDocument):
        pointer = f"/workload/scenarios/{index}/requests"
        with pointing_at(pointer):
            source = as_weighted(request_source(document.requests, problem.inputs))
            statistics = workload_statistics(source, prefix_hit_fraction=document.prefix_hit_fraction)
    return {
        "name": document.name,
        "kind": document.kind,
        "weight": document.weight,
        **statistics,
        "operators": operator_sizes(problem, index, document.reference_chip),
    }


def operator_sizes(problem: Problem, index: int, reference_chip: str) -> dict[str, Any]:
    """
    Return the operators that one scenario becomes in a step of one chip, at the reference chip's best inner choices.

    Bytes of GEMMs are compulsory: every operand once, whatever the chip keeps. Time at the roofline is the longest of
    work at peak rate, bytes at peak bandwidth and link bytes at the rate of the links of the reference chip.
    """
    chip = chip_designs([reference_chip])
    single = fitted_to(alone(problem, index), chip)
    judgement = judge_designs(single, chip)
    program = single.scenarios[0].program
    chosen = int(judgement.chosen[0][0])
    rows = operator_rows(program, chip, chosen, problem)
    if not rows:
        raise StudyError([{"pointer": f"/workload/scenarios/{index}", "detail": "becomes no operator at all"}])
    rows.sort(key=lambda row: -row["roofline_s"])
    totals = {name: float(sum(row[name] for row in rows)) for name in WEIGHTS}
    gemms = [row for row in rows if "m" in row]
    return {
        "reference_chip": reference_chip,
        "operating_point": operating_point(single, judgement, 0),
        "totals": {**totals, "arithmetic_intensity_flop_per_byte": _ratio(totals["flop"], totals["bytes"])},
        "by_kind": _by_kind(rows, totals),
        "gemm_sizes": {weight: size_quantiles(gemms, weight) for weight in WEIGHTS} if gemms else {},
        "n_operators": len(rows),
        "largest": [{**row, **_fractions(row, totals)} for row in rows[:MAX_LISTED]],
    }


def operator_rows(program: StepProgram, chip: DesignBatch, chosen: int, problem: Problem) -> list[dict[str, Any]]:
    """One row per operator of the step that does something."""
    activity = run_step(program, chip, problem.tables, alternatives=np.array([[chosen]]), keep_terms=True)
    rows = []
    for each, (name, done) in zip(program.terms, activity.terms.items(), strict=True):
        row = _row(each, done, chip, chosen)
        if row["flop"] or row["bytes"] or row["link_bytes"] or row["vector_operations"]:
            rows.append({"name": name, "kind": each.kind, **row})
    return rows


def _row(each: Term, done: TermActivity, chip: DesignBatch, chosen: int) -> dict[str, Any]:
    """Size, work and traffic of one operator in one step."""
    column, count = int(each.index[chosen]), float(each.count[chosen])
    sizes = {name: float(values[column]) for name, values in each.columns.items()}
    macs = {name: float(values[0, 0]) for name, values in done.macs.items()}
    moved, row = float((done.memory_s * chip.memory_bandwidth_bytes_per_s[:, None])[0, 0]), {}
    if each.kind == "gemm":
        row = {name: sizes[name] for name in ("m", "n", "k", "instances")} | {"count": count}
        moved = count * _operand_bytes(sizes)
    peak = peak_flop_per_s(chip)[0]
    work_s = sum(2.0 * each_macs / (peak * getattr(chip, f"{name}_rate_ratio")[0]) for name, each_macs in macs.items())
    lanes_per_s = float((chip.vector_lanes_per_core * chip.n_cores * chip.clock_hz)[0])
    vector, sent = float(done.vector_ops[0, 0]), float(done.link_bytes[0, 0])
    flop = 2.0 * sum(macs.values())
    link = chip.scale_out_bytes_per_s if sizes.get("scale_out") else chip.scale_up_bytes_per_s
    times_s = (
        work_s,
        vector / lanes_per_s,
        moved / float(chip.memory_bandwidth_bytes_per_s[0]),
        sent / max(float(link[0]), float(chip.host_bytes_per_s[0])),
    )
    return {
        **row,
        "flop": flop,
        "bytes": moved,
        "vector_operations": vector,
        "link_bytes": sent,
        "roofline_s": max(times_s),
        "arithmetic_intensity_flop_per_byte": _ratio(flop, moved),
    }


def _operand_bytes(sizes: dict[str, float]) -> float:
    """Both operands and the result of a GEMM, each once [B]."""
    m, n, k = (sizes[name] for name in "mnk")
    once = n * k * sizes["weight_bytes"] + m * k * sizes["input_bytes"] + m * n * sizes["output_bytes"]
    return once * sizes["instances"]


def size_quantiles(gemms: list[dict[str, Any]], weight: str) -> dict[str, dict[str, float]]:
    """Quantiles of m, n and k of the GEMMs, weighted."""
    shares: FloatArray = np.array([row[weight] for row in gemms])
    kept = shares > 0
    return {
        size: dict(
            zip(
                QUANTILES,
                weighted_quantiles(
                    np.array([row[size] for row in gemms])[kept], shares[kept] / shares.sum(), list(QUANTILES.values())
                ).tolist(),
                strict=True,
            )
        )
        for size in ("m", "n", "k")
    }


def _by_kind(rows: list[dict[str, Any]], totals: dict[str, float]) -> dict[str, dict[str, float]]:
    """Shares of the step by kind of operator."""
    kinds: dict[str, dict[str, float]] = {}
    for row in rows:
        sums = kinds.setdefault(row["kind"], dict.fromkeys(WEIGHTS, 0.0))
        for name in WEIGHTS:
            sums[name] += row[name]
    return {kind: {**sums, **_fractions(sums, totals)} for kind, sums in kinds.items()}


def _fractions(row: dict[str, Any], totals: dict[str, float]) -> dict[str, float]:
    """Shares of the whole step."""
    shares = {name: row[name] / totals[name] if totals[name] else 0.0 for name in WEIGHTS}
    return {f"{name.removesuffix('_s')}_fraction": share for name, share in shares.items()}


def _ratio(flop: float, moved: float) -> float | None:
    return flop / moved if moved else None
