"""Prefill and decode on pools of their own."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from models.serving.disaggregated import Pool, disaggregated_rate_per_s, replay_disaggregated
from models.serving.engine_step import BatchLimits
from models.serving.replay import replay, replay_summary
from models.workload.arrivals import scaled_to_rate
from tests.models.serving.test_replay import constant_engine, conversation, engine, requests_of

LIMITS = BatchLimits(2048, 128, 200_000)


def pool(n_engines=1, step=None, limits=LIMITS):
    return Pool(n_engines, step or engine(), limits)


def test_lone_request_pays_prefill_transfer_and_its_decode_steps():
    # 2 chunks, 0.5 s + 1000 x 1 ms of transfer, 4 more tokens
    limits = BatchLimits(512, 8, 4096)
    pools = (Pool(1, constant_engine(), limits), Pool(1, constant_engine(), limits))
    result = replay_disaggregated(requests_of([0.0], 1000, 5), *pools, transfer_s=0.5, transfer_s_per_token=1e-3)
    assert result.ttft_s[0] == pytest.approx(0.02)
    assert result.end_to_end_s[0] == pytest.approx(0.02 + 1.5 + 0.04)
    assert result.tpot_s[0] == pytest.approx((1.5 + 0.04) / 4)


def test_decode_step_reads_the_whole_context():
    step = constant_engine()
    step = dataclasses.replace(step, decode_context_s=1e-4)
    limits = BatchLimits(512, 8, 4096)
    result = replay_disaggregated(requests_of([0.0], 100, 3), Pool(1, step, limits), Pool(1, step, limits))
    # two decode steps over 101 and 102 tokens
    assert result.end_to_end_s[0] == pytest.approx(0.01 + 0.02 + 1e-4 * 203)


def test_decodes_no_longer_wait_for_prompts():
    requests = conversation(1500, 0.4)
    together = replay_summary(replay(requests, engine(), BatchLimits(8192, 128, 2e5, "whole_prompt")))
    apart = replay_summary(replay_disaggregated(requests, pool(), pool()))
    assert apart["inter_token_p99_s"] < together["inter_token_p99_s"]


def test_single_token_answers_end_in_the_prefill_pool():
    result = replay_disaggregated(requests_of([0.0, 1.0], 100, 1), pool(), pool(), transfer_s=5.0)
    assert result.served.all()
    np.testing.assert_allclose(result.end_to_end_s, result.ttft_s)


def test_rate_is_that_of_the_narrower_pool():
    requests = conversation(2000)
    one = disaggregated_rate_per_s(requests, pool(1), pool(1))
    assert disaggregated_rate_per_s(requests, pool(4), pool(4)) == pytest.approx(4 * one)
    many_decodes = disaggregated_rate_per_s(requests, pool(1), pool(50))
    assert disaggregated_rate_per_s(requests, pool(1), pool(100)) == pytest.approx(many_decodes)


def test_rate_in_closed_form_is_that_of_a_replay_in_overload():
    # 5 %: mean-value form over the whole trace against the middle of the run
    requests = conversation(19_000)
    pools = (pool(2), pool(3))
    rate = disaggregated_rate_per_s(requests, *pools)
    overload = dataclasses.replace(requests, arrival_s=scaled_to_rate(requests.arrival_s, 1.5 * rate))
    result = replay_disaggregated(overload, *pools)
    ends_s = np.sort(result.end_to_end_s + overload.arrival_s)
    assert result.saturated
    assert rate == pytest.approx(12_000 / (ends_s[15_000] - ends_s[3000]), rel=0.05)


def test_request_larger_than_the_decode_pool_holds_is_refused():
    small = BatchLimits(2048, 128, 1000)
    result = replay_disaggregated(requests_of([0.0, 0.0], [3000, 100], 50), pool(), pool(limits=small))
    assert (result.n_refused, result.served.tolist()) == (1, [False, True])
    assert np.isnan(result.ttft_s[0])


def test_pool_without_engines_is_refused():
    with pytest.raises(ValueError, match="n_engines must be a whole number of at least 1"):
        pool(0)
    with pytest.raises(ValueError, match="transfer must be zero or positive"):
        replay_disaggregated(conversation(3), pool(), pool(), transfer_s=-1.0)
