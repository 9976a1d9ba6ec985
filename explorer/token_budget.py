"""Replays of one engine: the token budget of its steps, and what is shown of a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from explorer.pareto import non_dominated
from models.architectures.plans import ParallelPlan
from models.hardware.design import DesignBatch
from models.operators.factor_tables import FactorTables
from models.operators.step import run_step
from models.serving.engine_step import BatchLimits, StepTime, sustainable_rate_per_s
from models.serving.replay import Replay, replay, replay_summary
from models.serving.steady import CompiledServing
from models.tables import constants
from models.workload.requests import Requests

MOST_STEPS = 2_000_000
"""Steps at which a replay that never ends stops; the percentiles then count what has waited so far."""

TOKEN_BUDGETS = (512, 1024, 2048, 4096, 8192, 16384)
"""Tokens of a step that are tried: small ones hold up decoding less, large ones finish prompts sooner."""
RATE_STEP = 0.01
"""Logarithm of the ratio of rates that count as equal."""
TIMELINE_POINTS = 64
"""Points of the timeline that a result carries."""
SHOWN = tuple(
    f"{name}_{at}" for name in ("ttft", "tpot", "end_to_end") for at in ("p50_s", "p95_s", "p99_s", "jitter_ratio")
)
"""Keys of `replay_summary` that belong to a design's percentiles."""


def with_room(limits: BatchLimits, token_budget: int) -> BatchLimits:
    """The limits with a budget that leaves room for at least one prompt token beside all decodes."""
    least = limits.max_sequences * limits.verified_tokens + 1
    return dataclasses.replace(limits, token_budget=max(token_budget, least))


def best_token_budget(
    requests: Requests, step: StepTime, limits: BatchLimits, slo: Mapping[str, float]
) -> tuple[int, list[dict[str, Any]]]:
    """
    Return the best token budget of a step, and the budgets that no other one is at least as good as in everything.

    The best one keeps all limits and sustains the largest rate, of nearly equal rates with the shorter requests;
    where none keeps them, the one that exceeds them least. Whole prompts have no budget to choose.

    Parameters
    ----------
    requests : Requests
        With arrivals.
    step : StepTime
    limits : BatchLimits
        But for the budget.
    slo : mapping
        Key of `replay_summary` -> limit [s].

    Returns
    -------
    budget : int
        [tokens]
    tried : list
        Documents of token_budget, ttft_p95_s, tpot_p95_s and the engine's sustainable_requests_per_s.
    """
    chunked = limits.scheduling == "chunked"
    budgets = TOKEN_BUDGETS if chunked else (int(constants("serving")["token_budget_tokens"]),)
    tried: list[dict[str, Any]] = []
    ranks: list[tuple[float, ...]] = []
    for budget in sorted({with_room(limits, each).token_budget for each in budgets}):
        under = with_room(limits, budget)
        summary = replay_summary(replay(requests, step, under, max_steps=MOST_STEPS))
        rate = sustainable_rate_per_s(requests, step, under)
        excess = max([(summary[name] or 0.0) / limit_s for name, limit_s in slo.items()], default=0.0)
        ranks.append(
            (max(excess, 1.0), -round(np.log(max(rate, 1e-12)) / RATE_STEP), summary["end_to_end_p95_s"] or 0.0)
        )
        tried.append(
            {"token_budget": budget, "ttft_p95_s": summary["ttft_p95_s"], "tpot_p95_s": summary["tpot_p95_s"]}
            | {"sustainable_requests_per_s": rate}
        )
    costs = np.array(
        [[t["ttft_p95_s"] or 0.0, t["tpot_p95_s"] or 0.0, -t["sustainable_requests_per_s"]] for t in tried]
    )
    kept = [each for each, on in zip(tried, non_dominated(costs), strict=True) if on]
    return int(tried[ranks.index(min(ranks))]["token_budget"]), kept


def transfer_s(compiled: CompiledServing, design: DesignBatch, plan: ParallelPlan, mix: str) -> float:
    """Time in which the cache of a mean prompt goes from one engine of a design to another [s]."""
    if compiled.transfer is None:
        return 0.0
    choices, names = compiled.choices, [each.name for each in compiled.scenario.mixes]
    same = (
        (choices.tensor_parallel == plan.tensor_parallel)
        & (choices.attention_data_parallel == plan.attention_data_parallel)
        & (choices.mix == names.index(mix))
    )
    wanted = compiled.prompt_index[np.flatnonzero(same)[:1]][None, :]
    return float(run_step(compiled.transfer, design, FactorTables(), alternatives=wanted).time_s[0, 0])


def shown_percentiles(result: Replay, n_groups: int, n_requests: int) -> dict[str, Any]:
    """A replay as it is shown; rates are those of the whole system."""
    summary, timeline = replay_summary(result), result.timeline
    every = max(len(timeline.time_s) // TIMELINE_POINTS, 1)
    return {name: summary[name] for name in SHOWN} | {
        "inter_token_jitter_ratio": summary["inter_token_jitter_ratio"],
        "load": summary["load"],
        "saturated": summary["saturated"],
        "stopped_at": summary["stopped_at"],
        "requests_per_s": None if result.rate_per_s is None else result.rate_per_s * n_groups,
        "sustainable_requests_per_s": result.sustainable_rate_per_s * n_groups,
        "output_tokens_per_s": result.output_tokens_per_s * n_groups,
        "replayed_requests": n_requests,
        "timeline": {f.name: getattr(timeline, f.name)[::every].tolist() for f in dataclasses.fields(timeline)},
    }
