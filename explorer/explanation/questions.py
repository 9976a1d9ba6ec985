"""The questions that architects judge a design by, answered in numbers: task, block, data, growth, complexity."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from explorer.explanation.chain import Shares
from explorer.explanation.work import Work
from explorer.inspection import operator_rows, size_quantiles
from explorer.plans import plan_chosen
from models.architectures.plans import ParallelPlan
from models.checks import FloatArray
from models.hardware.design import DesignBatch, peak_flop_per_s
from models.operators.gemm import effective_l2_bytes, gemm_dram_bytes, gemm_time_s, onchip_cycles
from models.serving.capacity import plan_memory_bytes, usable_memory_bytes
from models.serving.steady import CompiledServing
from models.tables import constants

SIDES = 2.0 ** np.arange(5, 14)
"""Sides of the square products on which a design is tried, 32 to 8192."""

NEAR_BEST_FRACTION = 0.8
"""Share of its best rate from which on a design is good at a size."""

GROWTH = 4.0
"""By how much the work is made larger."""

STAGE_FACTORS = (1, 2, 4, 8)
"""Times the stages with which an engine is tried for the larger work."""


def judging_questions(work: Work, shares: Shares, chain: list[dict[str, Any]]) -> dict[str, Any]:
    """
    Return the answers for one design at its operating point, one set of sizes for each scenario.

    Returns
    -------
    dict
        real_work, best_block, data_per_result, growth, complexity, binds, next_generation.
    """
    judged = work.now()
    sizes = {each.name: _real_work(work, i) for i, each in enumerate(work.compiled)}
    return {
        "real_work": {name: each["real_work"] for name, each in sizes.items()},
        "best_block": best_block(work.performance),
        "data_per_result": {name: each["data"] for name, each in sizes.items()},
        "growth": {
            each.name: _growth(work, each, judged.evaluations[i].choices)
            for i, each in enumerate(work.compiled)
            if isinstance(each, CompiledServing)
        },
        "complexity": {
            "links_time_fraction": sum(shares.time[name] for name in ("scale_up_link", "scale_out_link", "host_io")),
            "lanes_time_fraction": shares.time["vector_lanes"],
            "host_time_fraction": shares.time["host_scheduling"],
            "array_groups": float(work.performance.array_groups[0]),
        },
        "binds": {
            "compute": shares.time["compute"],
            "on_chip": shares.time["on_chip_port"] + shares.time["vector_lanes"],
            "off_chip": shares.time["memory_bandwidth"],
        },
        "next_generation": [
            {"resource": each["resource"], "factor": each["factor"], "gain_fraction": each["gain_fraction"]}
            for each in chain
        ],
    }


def best_block(design: DesignBatch) -> dict[str, float]:
    """The smallest square product in bf16 at which the design reaches four fifths of its best rate."""
    once = np.full(len(SIDES), 2.0)
    cycles = onchip_cycles(design, SIDES, SIDES, SIDES, once, np.ones((1, len(SIDES))))
    moved = gemm_dram_bytes(effective_l2_bytes(design), SIDES, SIDES, SIDES, once, once, once, weights_resident=False)
    time_s = gemm_time_s(
        cycles, moved, design.clock_hz, design.memory_bandwidth_bytes_per_s, constants("launch")["kernel_launch_s"]
    )[0]
    utilization: FloatArray = 2.0 * SIDES**3 / time_s / peak_flop_per_s(design)[0]
    good = np.flatnonzero(utilization >= NEAR_BEST_FRACTION * utilization.max())
    return {"side": float(SIDES[good[0]]), "utilization": float(utilization[good[0]]), "best": float(utilization.max())}


def _real_work(work: Work, index: int) -> dict[str, Any]:
    """Sizes of the products of a step by their work, and bytes moved for one useful result."""
    compiled, alternative = work.compiled[index], work.alternatives[index]
    rows = operator_rows(compiled.program, work.performance, alternative, work.problem)
    gemms = [row for row in rows if "m" in row]
    evaluation = work.now().evaluations[index]
    results_per_s = float(evaluation.units_per_s[0, 0]) * evaluation.tokens_per_unit / evaluation.n_chips
    steps_per_s = 1.0 / float(evaluation.step_s[0, 0])
    per_result = steps_per_s / results_per_s
    totals = {name: sum(row[name] for row in rows) for name in ("flop", "bytes", "link_bytes")}
    return {
        "real_work": {
            "step_flop": totals["flop"],
            "gemm_sizes_by_flop": size_quantiles(gemms, "flop") if gemms else {},
        },
        "data": {
            "flop_per_result": totals["flop"] * per_result,
            "memory_bytes_per_result": totals["bytes"] * per_result,
            "link_bytes_per_result": totals["link_bytes"] * per_result,
            "flop_per_memory_byte": totals["flop"] / max(totals["bytes"], 1.0),
        },
    }


def _growth(work: Work, compiled: CompiledServing, choices: Any) -> dict[str, Any]:
    """
    Whether four times the length of the requests still fits the same chips, or how many hold one of them.

    More requests are more copies; an engine grows by stages, which hold fewer layers each.
    """
    at = {name: np.broadcast_to(values, (1, 1))[0, 0] for name, values in choices.items()}
    plan, scenario = plan_chosen(at), compiled.scenario
    mix = scenario.mixes[int(at["mix"])]
    usable = float(usable_memory_bytes(work.performance)[0])
    c = constants("serving")

    def sequences(growth: float, shared: ParallelPlan) -> float:
        weights, cache = plan_memory_bytes(scenario.network, shared, [mix], growth * scenario.requests.reserved_tokens)
        free = usable - float(weights[0]) - c["activation_reserve_bytes"]
        return free * c["kv_pool_fraction"] / max(float(cache[0]), 1.0)

    held = [sequences(growth, plan) for growth in (1.0, GROWTH)]
    deeper = [dataclasses.replace(plan, pipeline_parallel=plan.pipeline_parallel * k) for k in STAGE_FACTORS]
    possible = [each for each in deeper if each.pipeline_parallel <= scenario.network.n_layers]
    grown = next((each.n_chips for each in possible if sequences(GROWTH, each) >= 1.0), None)
    node = scenario.system.n_chips_per_node
    return {
        "engine_chips": plan.n_chips,
        "engine_nodes": -(-plan.n_chips // node),
        "engine_chips_at_4x_length": grown,
        "leaves_node_at_4x_length": grown is not None and grown > max(node, plan.n_chips),
        "copies": scenario.system.n_chips / plan.n_chips,
        "sequences_held": held[0],
        "sequences_held_at_4x_length": held[1],
        "fits_4x_length": held[1] >= 1.0,
        "keeps_batch_at_4x_length": held[1] >= float(at["micro_batch"]),
    }
