"""The largest rate that meets latency limits, and how a limit that cannot be met is told."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from models.serving.engine_step import BatchLimits
from models.serving.goodput import goodput_rate
from models.serving.replay import replay, replay_summary
from models.workload.arrivals import scaled_to_rate
from tests.models.serving.test_replay import conversation, engine, requests_of

LIMITS = BatchLimits(8192, 256, 400_000)


def test_goodput_meets_the_limit_and_a_little_more_breaks_it():
    requests = conversation(3000)
    found = goodput_rate(requests, engine(), LIMITS, {"ttft_p95_s": 0.5, "tpot_p95_s": 0.03})

    def worst(rate_per_s):
        arrival_s = scaled_to_rate(requests.arrival_s, rate_per_s)
        summary = replay_summary(replay(dataclasses.replace(requests, arrival_s=arrival_s), engine(), LIMITS))
        return max(summary["ttft_p95_s"] / 0.5, summary["tpot_p95_s"] / 0.03)

    assert found.feasible
    assert found.binding == "tpot_p95_s"
    assert worst(found.rate_per_s) <= 1
    assert worst(found.rate_per_s * 1.02) > 1


def test_impossible_limit_names_the_term_and_by_how_much():
    found = goodput_rate(conversation(300), engine(), LIMITS, {"ttft_p95_s": 10.0, "tpot_p95_s": 0.001})
    assert not found.feasible
    assert (found.rate_per_s, found.binding) == (0.0, "tpot_p95_s")
    assert found.excess_ratio == pytest.approx(replay_summary(found.replay)["tpot_p95_s"] / 0.001)


def test_generous_limit_is_bound_by_the_sustainable_rate():
    found = goodput_rate(conversation(300), engine(), LIMITS, {"ttft_p95_s": 1e4})
    assert (found.load, found.binding) == (1.0, "sustainable_rate_per_s")
    assert found.rate_per_s == found.replay.sustainable_rate_per_s


def test_capacity_that_holds_no_request_is_infeasible():
    found = goodput_rate(conversation(50), engine(), BatchLimits(512, 8, 1.0), {"ttft_p95_s": 1.0})
    assert (found.feasible, found.binding) == (False, "kv_capacity_tokens")


def test_unknown_limit_is_named():
    with pytest.raises(LookupError, match="unknown latency limit 'ttft_p42_s'"):
        goodput_rate(conversation(50), engine(), LIMITS, {"ttft_p42_s": 1.0})


def test_requests_without_arrivals_are_refused():
    with pytest.raises(ValueError, match="must have arrivals"):
        goodput_rate(dataclasses.replace(conversation(50), arrival_s=None), engine(), LIMITS, {"ttft_p95_s": 1.0})


def test_limit_that_is_not_positive_is_refused():
    with pytest.raises(ValueError, match="slo ttft_p95_s must be positive"):
        goodput_rate(requests_of(np.arange(3.0), 10, 10), engine(), LIMITS, {"ttft_p95_s": 0.0})
