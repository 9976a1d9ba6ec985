"""The aggregated replay against a plain one, by hand, and where it stops."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.serving import replay_kernel
from models.serving.engine_step import BatchLimits, StepTime, sustainable_rate_per_s
from models.serving.replay import replay, replay_summary
from models.workload.arrivals import draw_arrivals
from models.workload.presets import shipped_trace
from models.workload.requests import Requests
from tests.models.serving.per_sequence_replay import replay_per_sequence

GRID = np.array([1.0, 64, 256, 512, 1024, 2048, 4096, 8192])


def engine(**changes):
    """A step that turns compute bound at some 270 tokens, like an 8B network on one large chip."""
    step = StepTime(
        tokens=GRID,
        linear_s=np.maximum(6e-3, GRID * 2.2e-5),
        head_s=np.maximum(4e-4, GRID * 1.5e-6),
        decode_step_s=2e-5,
        decode_sequence_s=1e-6,
        decode_context_s=5e-8,
        prefill_pair_s=3e-10,
        host_s=2e-3,
    )
    return dataclasses.replace(step, **changes)


def constant_engine(step_s=0.01):
    return StepTime(np.array([0.0, 512.0]), np.full(2, step_s), np.zeros(2), 0, 0, 0, 0, 0)


def conversation(n, stretch=1.0, cached_fraction=0.0):
    trace = shipped_trace("azure2023_conv")
    cached = np.floor(trace.input_tokens[:n] * cached_fraction)
    return Requests(trace.arrival_s[:n] * stretch, trace.input_tokens[:n], trace.output_tokens[:n], cached)


def requests_of(arrival_s, input_tokens, output_tokens):
    n = len(arrival_s)
    lengths = (np.broadcast_to(np.asarray(v, float), n).copy() for v in (input_tokens, output_tokens, 0.0))
    return Requests(np.asarray(arrival_s, float), *lengths)


LIMITS = {
    "wide": BatchLimits(2048, 128, 60_000),
    "narrow budget": BatchLimits(256, 64, 20_000),
    "budget below the sequences": BatchLimits(32, 128, 60_000),
    "whole prompts": BatchLimits(4096, 256, 300_000, "whole_prompt"),
    "speculative": BatchLimits(256, 16, 1e5, tokens_per_step=1.875, verified_tokens=4),
    "scheduled ahead": BatchLimits(512, 64, 60_000, scheduled_ahead=True),
    "one user": BatchLimits(2048, 1, 1e5, "whole_prompt", reserved_output_fraction=0.5),
}


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("stretch", [1.0, 0.1], ids=["light load", "overload"])
def test_replay_agrees_with_a_replay_that_walks_every_sequence(limits, stretch):
    # both follow the same rules, so that only rounding may differ; 2 % is the contract
    requests = conversation(120, stretch, cached_fraction=0.3)
    first_s, end_s = replay_per_sequence(requests, engine(), limits)
    result = replay(requests, engine(), limits)
    assert result.served.all()
    np.testing.assert_allclose(result.ttft_s, first_s - requests.arrival_s, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(result.end_to_end_s, end_s - requests.arrival_s, rtol=1e-9, atol=1e-9)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    budget=st.integers(1, 300),
    sequences=st.integers(1, 12),
    whole=st.booleans(),
    ahead=st.booleans(),
)
def test_replay_agrees_on_random_requests_and_limits(seed, budget, sequences, whole, ahead):
    rng = np.random.default_rng(seed)
    arrival_s = np.sort(rng.choice([0.0, 0.05, 0.3, 1.0], 25))
    inputs, outputs = rng.integers(1, 400, 25), rng.choice([1, 2, 7, 40], 25)
    requests = requests_of(arrival_s - arrival_s[0], inputs, outputs)
    limits = BatchLimits(budget, sequences, 900.0, "whole_prompt" if whole else "chunked", scheduled_ahead=ahead)
    first_s, end_s = replay_per_sequence(requests, engine(), limits)
    result = replay(requests, engine(), limits)
    np.testing.assert_allclose(result.ttft_s, first_s - requests.arrival_s, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(result.end_to_end_s, end_s - requests.arrival_s, rtol=1e-9, atol=1e-9)


def test_compiled_and_interpreted_kernel_agree(monkeypatch):
    compiled = replay(conversation(60, 0.3), engine(), LIMITS["wide"])
    monkeypatch.setattr("models.serving.replay.compiled_replay_steps", lambda: replay_kernel.replay_steps)
    plain = replay(conversation(60, 0.3), engine(), LIMITS["wide"])
    np.testing.assert_allclose(compiled.end_to_end_s, plain.end_to_end_s, rtol=1e-12)
    np.testing.assert_allclose(compiled.timeline.kv_tokens, plain.timeline.kv_tokens)


def test_lone_request_takes_one_step_per_chunk_and_later_token():
    result = replay(requests_of([0.0], 1000, 5), constant_engine(), BatchLimits(512, 8, 4096))
    # two chunks of at most 512, then four more tokens
    assert result.ttft_s[0] == pytest.approx(0.02)
    assert result.tpot_s[0] == pytest.approx(0.01)
    assert result.end_to_end_s[0] == pytest.approx(0.06)
    assert result.n_steps == 6


def test_step_time_adds_its_terms():
    step = StepTime(np.array([0.0, 100.0]), np.array([1.0, 2.0]), np.array([0.0, 0.5]), 0.1, 0.01, 1e-3, 1e-4, 0.25)
    limits = BatchLimits(100, 4, 1000)
    result = replay(Requests(np.zeros(1), *np.array([[50.0], [2.0], [20.0]])), step, limits)
    # 30 new tokens over 20 cached: linear 1.3, head of one row 0.005, 30 (20 + 15) pairs, host
    first_s = 1.3 + 0.005 + 1e-4 * 1050 + 0.25
    assert result.ttft_s[0] == pytest.approx(first_s)
    # one decode over 51 tokens of context
    assert result.tpot_s[0] == pytest.approx(1.01 + 0.005 + 0.1 + 0.01 + 1e-3 * 51 + 0.25)


def test_step_scheduled_ahead_takes_a_request_one_step_later():
    # steps of 10 ms from 0; the second request comes during the third, which began at 20 ms
    requests = requests_of([0.0, 0.025], 100, 20)
    assert replay(requests, constant_engine(), BatchLimits(512, 8, 4096)).ttft_s[1] == pytest.approx(0.015)
    ahead = replay(requests, constant_engine(), BatchLimits(512, 8, 4096, scheduled_ahead=True))
    assert ahead.ttft_s.tolist() == pytest.approx([0.01, 0.025])


def test_second_request_waits_for_the_kv_of_the_first():
    requests = requests_of([0.0, 0.0], 100, 11)
    result = replay(requests, constant_engine(), BatchLimits(512, 8, 150))
    assert result.queue_s[1] == pytest.approx(result.end_to_end_s[0])
    assert replay(requests, constant_engine(), BatchLimits(512, 8, 300)).queue_s[1] == 0


def test_request_larger_than_the_kv_capacity_is_refused_and_the_rest_served():
    result = replay(requests_of([0.0, 0.0], [5000, 100], 10), constant_engine(), BatchLimits(512, 8, 1000))
    assert result.n_refused == 1
    assert result.served.tolist() == [False, True]
    assert np.isfinite(replay_summary(result)["ttft_p95_s"])


def test_nothing_that_fits_is_a_saturated_result():
    result = replay(requests_of([0.0, 1.0], 5000, 10), constant_engine(), BatchLimits(512, 8, 1000))
    assert result.saturated
    assert result.stopped_at == "kv_capacity_tokens"
    assert result.sustainable_rate_per_s == 0
    assert replay_summary(result)["ttft_p50_s"] is None


def test_load_above_one_is_saturated_with_finite_numbers():
    result = replay(conversation(600, 0.02), engine(), LIMITS["wide"])
    numbers = [value for value in replay_summary(result).values() if isinstance(value, float)]
    assert result.load > 1
    assert result.saturated
    assert np.isfinite(numbers).all()


def test_replay_stops_at_the_stated_number_of_steps():
    result = replay(conversation(200), engine(), LIMITS["wide"], max_steps=500)
    assert (result.stopped_at, result.n_steps, result.saturated) == ("max_steps", 500, True)
    assert not result.served.all()
    assert np.isfinite(result.ttft_s).all()


def test_replay_stops_at_the_stated_time():
    result = replay(conversation(200), engine(), LIMITS["wide"], max_time_s=3.0)
    assert result.stopped_at == "max_time_s"
    assert 3.0 < result.makespan_s < 10.0


def test_faster_steps_are_never_slower_for_the_median_user():
    slow, fast = engine(), engine(linear_s=engine().linear_s * 0.9)
    medians = [
        replay_summary(replay(conversation(400, 0.5), s, LIMITS["wide"]))["end_to_end_p50_s"] for s in (slow, fast)
    ]
    assert medians[1] < medians[0]


def test_cached_prefix_shortens_the_first_token_and_holds_the_same_kv():
    plain, cached = (replay(conversation(100, 1.0, share), engine(), LIMITS["wide"]) for share in (0.0, 0.8))
    assert np.median(cached.ttft_s) < np.median(plain.ttft_s)
    assert cached.timeline.kv_tokens.max() > 0


def test_timeline_is_ordered_and_within_the_limits():
    timeline = replay(conversation(500, 0.2), engine(), LIMITS["wide"]).timeline
    assert (np.diff(timeline.time_s) > 0).all()
    assert timeline.decodes.max() <= 128
    assert timeline.kv_tokens.max() <= 60_000
    assert timeline.waiting.max() > 0


def test_gaps_between_tokens_show_the_stall_of_whole_prompts():
    requests = requests_of([0.0, 0.05], [10, 4096], [200, 2])
    chunked = replay(requests, engine(), BatchLimits(256, 8, 1e5))
    whole = replay(requests, engine(), BatchLimits(4096, 8, 1e5, "whole_prompt"))
    assert whole.inter_token_p99_s == pytest.approx(chunked.inter_token_p50_s, rel=0.05)
    assert whole.tpot_s[0] > whole.inter_token_p50_s


def test_all_requests_at_once_have_no_load():
    result = replay(
        Requests(None, *np.array([[100.0] * 5, [4.0] * 5, [0.0] * 5])), constant_engine(), BatchLimits(512, 8, 1e4)
    )
    assert (result.load, result.rate_per_s, result.saturated) == (None, None, False)


@pytest.mark.parametrize("name", ["azure2023_conv", "azure2023_code", "arxiv_summarization_lengths"])
@pytest.mark.parametrize(
    "limits", [BatchLimits(8192, 256, 4e5), BatchLimits(8192, 256, 4e5, "whole_prompt")], ids=["chunked", "whole"]
)
def test_closed_form_rate_is_that_of_a_replay_without_gaps(name, limits):
    # 4 %: mean-value form; the run's own start and end are cut off by taking its middle
    trace = shipped_trace(name)
    requests = Requests(None, trace.input_tokens[:6000], trace.output_tokens[:6000], np.zeros(6000))
    ends_s = np.sort(replay(requests, engine(), limits).end_to_end_s)
    middle_rate = (4500 - 1000) / (ends_s[4500] - ends_s[1000])
    sample = Requests(None, trace.input_tokens[1000:4500], trace.output_tokens[1000:4500], np.zeros(3500))
    assert sustainable_rate_per_s(sample, engine(), limits) == pytest.approx(middle_rate, rel=0.04)


def test_twenty_thousand_requests_replay_in_tens_of_milliseconds():
    # 50 ms is the target on an idle core; the limit leaves room for a loaded machine
    trace = shipped_trace("azure2023_conv")
    requests = dataclasses.replace(trace, arrival_s=draw_arrivals(12.0, 1.0, trace.n, seed=0))
    replay(requests, engine(), LIMITS["wide"])
    times_s = []
    for _ in range(5):
        begin_s = time.perf_counter()
        replay(requests, engine(), BatchLimits(8192, 256, 400_000))
        times_s.append(time.perf_counter() - begin_s)
    assert min(times_s) < 0.15


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"token_budget": 0}, "token_budget must be a whole number of at least 1"),
        ({"max_sequences": 1.5}, "max_sequences must be a whole number"),
        ({"kv_capacity_tokens": np.nan}, "kv_capacity must be zero or positive"),
        ({"scheduling": "eager"}, "scheduling must be chunked or whole_prompt"),
        ({"reserved_output_fraction": 2.0}, "reserved_output_fraction must be between 0 and 1"),
        ({"tokens_per_step": 3.0}, "tokens_per_step must be from 1 to 1"),
    ],
)
def test_limits_refuse_bad_input(changes, message):
    with pytest.raises(ValueError, match=message):
        BatchLimits(**({"token_budget": 512, "max_sequences": 8, "kv_capacity_tokens": 1e4} | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"host_s": -1e-3}, "host_s must be zero or positive"),
        ({"linear_s": np.full(8, np.nan)}, "linear_s must be zero or positive"),
        ({"head_s": np.zeros(3)}, "head_s must have 8 entries"),
        ({"tokens": GRID[::-1]}, "increasing counts"),
        ({"linear_s": np.zeros(8), "host_s": 0.0}, "a step must take time"),
    ],
)
def test_step_time_refuses_bad_input(changes, message):
    with pytest.raises(ValueError, match=message):
        engine(**changes)


def test_bounds_must_be_positive():
    with pytest.raises(ValueError, match="max_steps must be positive"):
        replay(conversation(3), engine(), LIMITS["wide"], max_steps=0)


def test_kernel_compiles_without_a_place_for_its_cache(monkeypatch):
    import numba

    def njit(**options):
        if options.pop("cache", False):
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: function

    monkeypatch.setattr(numba, "njit", njit)
    assert replay_kernel.compiled_replay_steps.__wrapped__() is replay_kernel.replay_steps
