"""Weighted request lengths and their exact moments."""

from __future__ import annotations

import numpy as np
import pytest

from models.workload.distribution import (
    independent_distribution,
    request_distribution,
    request_moments,
    weighted_quantiles,
    with_prefix_hits,
)


def test_moments_by_hand():
    moments = request_moments(request_distribution([100.0, 300.0], [10.0, 30.0], cached_prefix_tokens=[0.0, 200.0]))
    assert moments.input_tokens == 200
    assert moments.prompt_tokens == 100
    # 100 x 50 and 100 x (200 + 50) query-key pairs
    assert moments.prefill_token_pairs == pytest.approx((5000 + 25000) / 2)
    assert moments.effective_prompt_tokens == pytest.approx(2 * 15000 / 100)
    assert moments.context_tokens == pytest.approx((10 * 105 + 30 * 315) / 40)
    assert moments.reserved_tokens == pytest.approx((10 * 110 + 30 * 330) / 40)


def test_histogram_counts_are_normalised_and_empty_bins_dropped():
    histogram = request_distribution([100.0, 200.0, 400.0], 10.0, weight=[30, 0, 10])
    assert histogram.weight.tolist() == [0.75, 0.25]


def test_marginal_histograms_give_every_pair():
    pairs = independent_distribution([100.0, 200.0], [1, 3], [10.0, 20.0, 30.0], [1, 1, 2])
    moments = request_moments(pairs)
    assert len(pairs.weight) == 6
    assert moments.input_tokens == pytest.approx(175)
    assert moments.output_tokens == pytest.approx(22.5)


def test_prefix_hits_leave_the_length_and_shorten_the_prompt():
    plain = request_moments(request_distribution(1000.0, 10.0))
    hit = request_moments(with_prefix_hits(request_distribution(1000.0, 10.0), 0.3))
    assert hit.prompt_tokens == pytest.approx(700)
    assert hit.context_tokens == plain.context_tokens
    assert hit.reserved_tokens == plain.reserved_tokens


def test_equal_weights_give_the_usual_quantiles():
    values = np.random.default_rng(0).lognormal(5, 1, 999)
    quantiles = weighted_quantiles(values, np.full(999, 1 / 999), [0.1, 0.5, 0.99])
    np.testing.assert_allclose(quantiles, np.quantile(values, [0.1, 0.5, 0.99]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"input_tokens": [0.0], "output_tokens": [1.0]}, "input_tokens must be at least 1"),
        ({"input_tokens": [1.0], "output_tokens": [np.nan]}, "output_tokens must be at least 1"),
        ({"input_tokens": [1.0], "output_tokens": [1.0], "weight": [-1.0]}, "weight must be zero or positive"),
        ({"input_tokens": [1.0], "output_tokens": [1.0], "weight": [0.0]}, "weight must not be zero everywhere"),
        ({"input_tokens": [5.0], "output_tokens": [1.0], "cached_prefix_tokens": 6.0}, "at most input_tokens"),
    ],
)
def test_bad_histogram_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        request_distribution(**arguments)


def test_marginal_histogram_of_another_length_is_refused():
    with pytest.raises(ValueError, match="output_weight must have 1 entries as output_tokens, got 2"):
        independent_distribution([1.0], [1.0], [1.0], [1.0, 2.0])


def test_hit_fraction_outside_its_range_is_refused():
    with pytest.raises(ValueError, match="prefix_hit_fraction must be between 0 and 1"):
        with_prefix_hits(request_distribution(10.0, 1.0), 1.2)
