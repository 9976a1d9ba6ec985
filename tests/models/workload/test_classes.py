"""Quantisation keeps tokens exactly and its errors within the bound, on distributions it was not made for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.workload.classes import quantise
from models.workload.distribution import (
    RequestDistribution,
    observed_distribution,
    request_distribution,
    request_moments,
)
from models.workload.parametric import LengthFormula, RequestFormula, formula_distribution
from models.workload.presets import profiles, shipped_trace, trace_names
from models.workload.requests import Requests


def long_prompts_with_heavy_prefix_reuse(n=20_000, seed=1):
    """Agent-like sessions: prompts to several hundred thousand tokens, most of them cached."""
    rng = np.random.default_rng(seed)
    inputs = np.floor(rng.lognormal(9.5, 1.4, n)).clip(10, 1_000_000)
    cached = np.floor(inputs * rng.beta(4, 0.7, n) / 512) * 512
    outputs = np.floor(rng.lognormal(5.5, 1.2, n)) + 1
    return Requests(None, inputs, outputs, np.where(rng.random(n) < 0.2, 0.0, cached))


def prefill_time(distribution, per_prompt, per_pair, floor_tokens):
    prompt = distribution.input_tokens - distribution.cached_prefix_tokens
    pairs = prompt * (distribution.cached_prefix_tokens + prompt / 2)
    return distribution.weight @ (np.maximum(prompt, floor_tokens) * per_prompt + per_pair * pairs)


def independent_errors(exact, classes):
    """Errors recomputed from the definition, not from what the classes report."""
    coarse = RequestDistribution(
        classes.weight, classes.input_tokens, classes.output_tokens, classes.cached_prefix_tokens
    )
    errors = [
        prefill_time(coarse, a, b, floor) / prefill_time(exact, a, b, floor) - 1
        for a, b, floor in ((1, 0, 0), (1, 1e-4, 0), (0, 1, 0), (1, 1e-5, 300), (1, 0, 1000))
    ]

    def kv_length(d):
        return d.weight @ (d.output_tokens * (d.input_tokens + d.output_tokens / 2)) / (d.weight @ d.output_tokens)

    return np.abs([*errors, kv_length(coarse) / kv_length(exact) - 1])


@pytest.mark.parametrize("name", trace_names())
@pytest.mark.parametrize("error", [0.01, 0.002])
def test_shipped_traces_are_within_the_stated_error(name, error):
    trace = shipped_trace(name)
    classes = quantise(trace, error)
    assert independent_errors(observed_distribution(trace), classes).max() <= error
    assert classes.n_classes < trace.n / 2
    assert classes.total_tokens_error_fraction < 1e-9


def test_error_holds_for_long_prompts_and_heavy_prefix_reuse():
    trace = long_prompts_with_heavy_prefix_reuse()
    classes = quantise(trace)
    assert independent_errors(observed_distribution(trace), classes).max() <= 0.01
    assert classes.n_classes < 400


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.1, 2.5), st.floats(0.1, 2.5), st.sampled_from([0.001, 0.01, 0.1]))
def test_error_holds_for_random_spreads(seed, input_sigma, output_sigma, error):
    rng = np.random.default_rng(seed)
    inputs, outputs = np.ceil(rng.lognormal(6, input_sigma, 300)), np.ceil(rng.lognormal(4, output_sigma, 300))
    cached = np.floor(inputs * rng.random(300) * rng.integers(0, 2))
    trace = Requests(None, inputs, outputs, cached)
    classes = quantise(trace, error)
    assert independent_errors(observed_distribution(trace), classes).max() <= error
    tokens = classes.weight @ (classes.input_tokens + classes.output_tokens)
    assert tokens == pytest.approx((inputs + outputs).mean(), rel=1e-9)
    assert classes.weight.sum() == pytest.approx(1.0)
    assert (classes.cached_prefix_tokens <= classes.input_tokens).all()


def test_reported_errors_are_those_of_the_definition():
    trace = shipped_trace("azure2023_code")
    classes = quantise(trace)
    errors = independent_errors(observed_distribution(trace), classes)
    assert classes.prefill_error_fraction == pytest.approx(errors[2], rel=1e-6)
    assert classes.kv_length_error_fraction == pytest.approx(errors[-1], rel=1e-6)


def test_one_fixed_length_is_one_class():
    classes = quantise(request_distribution(np.full(50, 2048.0), 128.0))
    assert (classes.n_classes, classes.input_tokens[0], classes.output_tokens[0]) == (1, 2048.0, 128.0)


def test_wholly_cached_prompts_are_quantised_too():
    classes = quantise(request_distribution([100.0, 900.0], [10.0, 20.0], cached_prefix_tokens=[100.0, 900.0]))
    assert np.isfinite(classes.kv_length_error_fraction)


def test_tighter_error_takes_more_classes():
    trace = shipped_trace("azure2023_conv")
    assert quantise(trace, 0.001).n_classes > quantise(trace, 0.01).n_classes > quantise(trace, 0.1).n_classes


def test_smaller_attention_share_needs_no_more_than_the_kv_length_does():
    trace = long_prompts_with_heavy_prefix_reuse(3000)
    assert quantise(trace, attention_share=0.05).n_classes < quantise(trace).n_classes


def test_fine_grid_of_a_large_trace_changes_no_moment():
    trace = shipped_trace("servegen_deepseek_r1_generated")
    assert quantise(trace).moments == request_moments(observed_distribution(trace))


@pytest.mark.parametrize("name", sorted(profiles()))
def test_every_profile_is_quantised_within_one_percent(name):
    exact = formula_distribution(profiles()[name])
    assert independent_errors(exact, quantise(exact)).max() <= 0.01


def test_correlated_formula_is_quantised_within_one_percent():
    formula = RequestFormula(LengthFormula(8000, 12000, "lognormal"), LengthFormula(400, 600, "gamma"), -0.7)
    exact = formula_distribution(formula)
    assert independent_errors(exact, quantise(exact)).max() <= 0.01


@pytest.mark.parametrize("error", [0.0, -1.0, 1.5, np.nan])
def test_error_outside_its_range_is_refused(error):
    with pytest.raises(ValueError, match="error_fraction must be above 0 and at most 1"):
        quantise(shipped_trace("sharegpt_llama31_300"), error)
