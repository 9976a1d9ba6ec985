"""Step tables of a design against the whole model at loads between the probes."""

from __future__ import annotations

import numpy as np
import pytest

from models.architectures import load_network, lower
from models.architectures.plans import ParallelPlan
from models.hardware.design import concatenate, reference_design, replace, take
from models.hardware.energy import energy_per_access
from models.operators.factor_tables import FactorTables
from models.precision.mix import recipe
from models.serving import design_step
from models.serving.design_step import EngineOperation, engine_limits, engine_step_times
from models.serving.engine_step import sustainable_rate_per_s
from models.serving.replay import replay, replay_summary
from models.workload.arrivals import scaled_to_rate
from models.workload.distribution import observed_distribution, request_moments
from models.workload.presets import shipped_trace
from models.workload.requests import Requests

TRACE = shipped_trace("azure2023_conv")


def operation(network="llama-3.1-8b", tensor_parallel=1, mix="bf16"):
    moments = request_moments(observed_distribution(TRACE))
    return EngineOperation(lower(load_network(network)), recipe(mix), ParallelPlan(tensor_parallel), moments, 2e-3)


def designs():
    plain = reference_design()
    return concatenate([plain, replace(plain, memory_bandwidth_bytes_per_s=2 * plain.memory_bandwidth_bytes_per_s)])


@pytest.mark.parametrize("tensor_parallel", [1, 4])
def test_tables_agree_with_the_model_at_mixed_loads(tensor_parallel):
    # 10 %: straight lines between the probes, an affine decode attention, and a settled clock per probe
    engine = operation(tensor_parallel=tensor_parallel)
    tokens, decodes = np.array([100.0, 300.0, 700.0, 2000.0]), np.array([20.0, 50.0, 120.0, 30.0])
    context = np.array([700.0, 1500.0, 1250.0, 2000.0])
    load = design_step._load(tokens, decodes, decoding=decodes, context=context)
    exact = design_step._settled_s(engine, load, designs(), energy_per_access(designs()), FactorTables())
    for row, step in zip(exact, engine_step_times(engine, designs()), strict=True):
        predicted = np.interp(tokens, step.tokens, step.linear_s) + np.interp(decodes, step.tokens, step.head_s)
        predicted += step.decode_step_s + decodes * (step.decode_sequence_s + step.decode_context_s * context)
        np.testing.assert_allclose(predicted, row, rtol=0.1)


def test_batch_of_designs_equals_one_at_a_time():
    together = engine_step_times(operation(), designs())
    alone = [engine_step_times(operation(), take(designs(), [i]))[0] for i in range(2)]
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(one.linear_s, other.linear_s, rtol=1e-9)
        assert one.decode_context_s == pytest.approx(other.decode_context_s, rel=1e-6)


def test_more_bandwidth_gives_faster_decodes_in_the_replay():
    engine, both = operation(), designs()
    steps = engine_step_times(engine, both)
    limits = engine_limits(engine, both, token_budget=2048, max_sequences=128)
    sample = Requests(TRACE.arrival_s[:500], TRACE.input_tokens[:500], TRACE.output_tokens[:500], np.zeros(500))
    medians = [replay_summary(replay(sample, *pair))["tpot_p50_s"] for pair in zip(steps, limits, strict=True)]
    assert medians[1] < 0.75 * medians[0]


def test_kv_room_follows_from_memory_and_weights():
    engine = operation()
    # 64 GiB, 16 GB of weights, 131,072 bytes of cache a token: between 250,000 and 400,000 tokens
    room = engine_limits(engine, reference_design(), token_budget=2048, max_sequences=128)[0].kv_capacity_tokens
    assert 2.5e5 < room < 4e5
    large = engine_limits(operation("llama-3.1-70b"), reference_design(), token_budget=2048, max_sequences=128)[0]
    assert large.kv_capacity_tokens == 0


def test_network_that_does_not_fit_is_a_saturated_replay():
    engine, design = operation("llama-3.1-70b"), reference_design()
    step = engine_step_times(engine, design)[0]
    limits = engine_limits(engine, design, token_budget=2048, max_sequences=128)[0]
    sample = Requests(TRACE.arrival_s[:50], TRACE.input_tokens[:50], TRACE.output_tokens[:50], np.zeros(50))
    result = replay(sample, step, limits)
    assert (result.saturated, result.stopped_at) == (True, "kv_capacity_tokens")


def test_latency_grows_with_the_load():
    engine, design = operation(), reference_design()
    step = engine_step_times(engine, design)[0]
    limits = engine_limits(engine, design, token_budget=2048, max_sequences=128)[0]
    sample = Requests(TRACE.arrival_s[:3000], TRACE.input_tokens[:3000], TRACE.output_tokens[:3000], np.zeros(3000))
    rate = sustainable_rate_per_s(sample, step, limits)
    p95 = []
    for load in (0.2, 0.5, 0.8):
        arrival_s = scaled_to_rate(sample.arrival_s, load * rate)
        offered = Requests(arrival_s, sample.input_tokens, sample.output_tokens, sample.cached_prefix_tokens)
        p95.append(replay_summary(replay(offered, step, limits))["ttft_p95_s"])
    assert p95[0] < p95[1] < p95[2]
