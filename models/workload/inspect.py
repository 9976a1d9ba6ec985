"""Statistics of a request workload before any hardware is chosen."""

from __future__ import annotations

from typing import Any

import numpy as np

from models.checks import FloatArray
from models.workload.arrivals import arrival_statistics
from models.workload.classes import DEFAULT_ERROR_FRACTION, RequestClasses, quantise
from models.workload.distribution import (
    RequestDistribution,
    observed_distribution,
    weighted_quantiles,
    with_prefix_hits,
)
from models.workload.requests import Requests

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
BINS_PER_OCTAVE = 2


def workload_statistics(
    requests: Requests | RequestDistribution,
    error_fraction: float = DEFAULT_ERROR_FRACTION,
    *,
    prefix_hit_fraction: float | None = None,
) -> dict[str, Any]:
    """
    Return what a planner wants to know of a workload, as one JSON object.

    Parameters
    ----------
    requests : Requests or RequestDistribution
        Observed requests, or the distribution of a formula or histogram.
    error_fraction : float
        Error asked of the request classes.
    prefix_hit_fraction : float, optional
        Share of every prompt found in the prefix cache, in place of the hits of the source.

    Returns
    -------
    dict
        `requests` with `count`, `input_tokens` and `output_tokens` (mean, std, min, max, quantiles, histogram),
        prefix reuse, arrivals; `moments`, and `classes` with their errors. Unknown values are None.

    Examples
    --------
    >>> trace = Requests(np.array([0.0, 1.0]), np.array([10.0, 30.0]), np.array([5.0, 5.0]), np.zeros(2))
    >>> workload_statistics(trace)["requests"]["input_tokens"]["mean"]
    20.0
    """
    observed = isinstance(requests, Requests)
    distribution = observed_distribution(requests) if isinstance(requests, Requests) else requests
    if prefix_hit_fraction is not None:
        distribution = with_prefix_hits(distribution, prefix_hit_fraction)
    classes = quantise(distribution, error_fraction)
    weight, inputs, outputs = distribution.weight, distribution.input_tokens, distribution.output_tokens
    mean_input, mean_output = float(weight @ inputs), float(weight @ outputs)
    cached = float(weight @ distribution.cached_prefix_tokens)
    lengths = {
        "count": len(inputs) if observed else None,
        "input_tokens": _length_statistics(inputs, weight),
        "output_tokens": _length_statistics(outputs, weight),
        "total_tokens": float(inputs.sum() + outputs.sum()) if observed else None,
        "input_per_output_token": mean_input / mean_output,
        "length_correlation": _correlation(inputs, outputs, weight),
        "cached_prefix_tokens": {"mean": cached},
        "prefix_hit_fraction": cached / mean_input,
    }
    return {
        "requests": {**lengths, **_arrivals(requests)},
        "moments": vars(classes.moments),
        "classes": _class_report(classes, error_fraction),
    }


def _length_statistics(tokens: FloatArray, weight: FloatArray) -> dict[str, Any]:
    """Mean, spread, quantiles and a histogram of lengths [tokens]."""
    mean = float(weight @ tokens)
    variance = float(weight @ (tokens - mean) ** 2)
    quantiles = weighted_quantiles(tokens, weight, list(QUANTILES.values())).tolist()
    return {
        "mean": mean,
        "std": variance**0.5,
        "min": float(tokens.min()),
        "max": float(tokens.max()),
        **dict(zip(QUANTILES, quantiles, strict=True)),
        "histogram": _histogram(tokens, weight),
    }


def _histogram(tokens: FloatArray, weight: FloatArray) -> list[dict[str, float]]:
    """Share of the requests and of the tokens in bins of half an octave."""
    edge = np.floor(np.log2(tokens) * BINS_PER_OCTAVE + 1e-9)
    edges, bins = np.unique(edge, return_inverse=True)
    shares = np.bincount(bins, weights=weight)
    token_shares = np.bincount(bins, weights=weight * tokens / (weight @ tokens))
    return [
        {
            "from_tokens": float(2.0 ** (low / BINS_PER_OCTAVE)),
            "to_tokens": float(2.0 ** ((low + 1) / BINS_PER_OCTAVE)),
            "request_fraction": float(share),
            "token_fraction": float(token_share),
        }
        for low, share, token_share in zip(edges, shares, token_shares, strict=True)
    ]


def _correlation(inputs: FloatArray, outputs: FloatArray, weight: FloatArray) -> float | None:
    """Weighted correlation of the logarithms of both lengths, None where one does not vary."""
    x, y = np.log(inputs), np.log(outputs)
    x, y = x - weight @ x, y - weight @ y
    spread = float(np.sqrt((weight @ x**2) * (weight @ y**2)))
    return float(weight @ (x * y)) / spread if spread > 1e-12 else None


def _arrivals(requests: Requests | RequestDistribution) -> dict[str, Any]:
    """Rate, burstiness and sessions, where the source has them."""
    empty = ("duration_s", "rate_per_s", "interarrival_cv", "dispersion_10_s", "dispersion_60_s")
    if not isinstance(requests, Requests):
        return {**dict.fromkeys(empty), "sessions": None, "n_dropped_rows": 0}
    arrivals = dict.fromkeys(empty) if requests.arrival_s is None else vars(arrival_statistics(requests.arrival_s))
    sessions = None
    if requests.session_id is not None:
        known = requests.session_id[requests.session_id >= 0]
        n_sessions = len(np.unique(known))
        sessions = {"count": n_sessions, "requests_per_session": len(known) / n_sessions}
    return {**arrivals, "sessions": sessions, "n_dropped_rows": requests.n_dropped_rows}


def _class_report(classes: RequestClasses, error_fraction: float) -> dict[str, Any]:
    """The request classes and the errors they make."""
    return {
        "n_classes": classes.n_classes,
        "error_fraction": error_fraction,
        "prefill_error_fraction": classes.prefill_error_fraction,
        "knee_error_fraction": classes.knee_error_fraction,
        "kv_length_error_fraction": classes.kv_length_error_fraction,
        "total_tokens_error_fraction": classes.total_tokens_error_fraction,
        "weight": classes.weight.tolist(),
        "input_tokens": classes.input_tokens.tolist(),
        "output_tokens": classes.output_tokens.tolist(),
        "cached_prefix_tokens": classes.cached_prefix_tokens.tolist(),
    }
