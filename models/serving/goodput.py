"""Goodput: the largest rate at which replayed requests still meet their latency limits."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from models.checks import require_positive
from models.serving.engine_step import BatchLimits, StepTime, sustainable_rate_per_s
from models.serving.replay import Replay, replay, replay_summary
from models.workload.arrivals import scaled_to_rate
from models.workload.requests import Requests


@dataclass(frozen=True)
class Goodput:
    """
    Largest rate that meets every latency limit.

    `binding` is the limit that the next higher rate breaks, or `sustainable_rate_per_s`. Where even the lowest rate
    breaks one, `feasible` is False, the rate 0 and `excess_ratio` says by how much the value exceeds its limit.
    """

    feasible: bool
    rate_per_s: float
    output_tokens_per_s: float
    load: float
    binding: str
    excess_ratio: float
    replay: Replay


def goodput_rate(
    requests: Requests,
    step: StepTime,
    limits: BatchLimits,
    slo: Mapping[str, float],
    *,
    tolerance_fraction: float = 0.005,
    lowest_load: float = 0.01,
) -> Goodput:
    """
    Return the largest rate, by stretching the arrivals evenly, at which a replay meets the latency limits.

    The rate is bisected between a load near 0 and 1. Requests without arrivals need arrivals drawn first.

    Parameters
    ----------
    requests : Requests
        With arrivals that do not all fall together.
    step : StepTime
    limits : BatchLimits
    slo : mapping
        Limits by key of `replay_summary`, as `ttft_p95_s` or `tpot_p99_s`. [s]
    tolerance_fraction : float
        Width of the bracket at which the bisection ends.
    lowest_load : float
        Load that stands for a system without queue.

    Raises
    ------
    ValueError
        If there are no arrivals to stretch.
    """
    if requests.arrival_s is None:
        raise ValueError("requests must have arrivals for a goodput, draw them first")
    for name, limit_s in slo.items():
        require_positive(f"slo {name}", limit_s, "s")
    sustainable = sustainable_rate_per_s(requests, step, limits)
    if sustainable == 0:
        return Goodput(False, 0.0, 0.0, 0.0, "kv_capacity_tokens", np.inf, replay(requests, step, limits))
    low, high = lowest_load, 1.0
    result = _at_rate(requests, step, limits, low * sustainable)
    binding, ratio = _worst_limit(result, slo)
    if ratio > 1:
        return Goodput(False, 0.0, 0.0, 0.0, binding, ratio, result)
    best = result
    result = _at_rate(requests, step, limits, high * sustainable)
    binding, ratio = _worst_limit(result, slo)
    if ratio <= 1:
        low, best, binding = high, result, "sustainable_rate_per_s"
    while high / low > 1 + tolerance_fraction:
        middle = (low * high) ** 0.5
        result = _at_rate(requests, step, limits, middle * sustainable)
        worst, ratio = _worst_limit(result, slo)
        if ratio <= 1:
            low, best = middle, result
        else:
            high, binding = middle, worst
    rate_per_s = low * sustainable
    tokens = float(requests.output_tokens.mean())
    return Goodput(True, rate_per_s, rate_per_s * tokens, low, binding, _worst_limit(best, slo)[1], best)


def _at_rate(requests: Requests, step: StepTime, limits: BatchLimits, rate_per_s: float) -> Replay:
    arrival_s = scaled_to_rate(np.asarray(requests.arrival_s), rate_per_s)
    return replay(dataclasses.replace(requests, arrival_s=arrival_s), step, limits)


def _worst_limit(result: Replay, slo: Mapping[str, float]) -> tuple[str, float]:
    """The limit that is exceeded most, or met most narrowly, and value over limit."""
    summary = replay_summary(result)
    unknown = sorted(set(slo) - set(summary))
    if unknown:
        raise LookupError(f"unknown latency limit '{unknown[0]}', known: {', '.join(k for k in summary if '_p' in k)}")
    ratios = {name: (summary[name] or 0.0) / limit_s for name, limit_s in slo.items()}
    if not ratios:
        return "sustainable_rate_per_s", 0.0
    worst = max(ratios, key=lambda name: ratios[name])
    return worst, float(ratios[worst])
