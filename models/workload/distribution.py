"""Distributions of request lengths as weighted atoms, and the exact moments that a steady state depends on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from models.checks import FloatArray, require_at_least, require_fraction, require_non_negative
from models.workload.requests import Requests


@dataclass(frozen=True)
class RequestDistribution:
    """
    Weighted request lengths: what a trace, a histogram and a formula all become.

    Parameters
    ----------
    weight : array of shape (n_atoms,)
        Share of the requests, summing to 1.
    input_tokens, output_tokens : arrays of shape (n_atoms,)
        At least 1, whole numbers or means. The prompt includes its cached prefix. [tokens]
    cached_prefix_tokens : array of shape (n_atoms,)
        Leading prompt tokens that need no computation. [tokens]

    Examples
    --------
    >>> observed_distribution(Requests(None, *np.full((2, 4), 100.0), np.zeros(4))).weight
    array([0.25, 0.25, 0.25, 0.25])
    """

    weight: FloatArray
    input_tokens: FloatArray
    output_tokens: FloatArray
    cached_prefix_tokens: FloatArray


@dataclass(frozen=True)
class RequestMoments:
    """
    Exact means of a request distribution. [tokens], `_squared` in tokens^2

    `prompt_tokens` are those left to compute after prefix hits. `prefill_token_pairs` is the mean of
    prompt (cached + prompt / 2), the query-key pairs of causal attention, and `effective_prompt_tokens` the one
    length with the same pairs per prompt token. `context_tokens` and `reserved_tokens` are means over generated
    tokens: of the KV length that is read, input + output / 2, and of what a running sequence holds, input + output.
    """

    input_tokens: float
    output_tokens: float
    cached_prefix_tokens: float
    prompt_tokens: float
    input_tokens_squared: float
    prefill_token_pairs: float
    effective_prompt_tokens: float
    context_tokens: float
    reserved_tokens: float
    input_p95_tokens: float
    output_p95_tokens: float
    prompt_p95_tokens: float


def request_distribution(
    input_tokens: ArrayLike,
    output_tokens: ArrayLike,
    *,
    weight: ArrayLike = 1.0,
    cached_prefix_tokens: ArrayLike = 0.0,
) -> RequestDistribution:
    """
    Return the distribution of a joint histogram: lengths and how often each pair occurs.

    Parameters
    ----------
    input_tokens, output_tokens, cached_prefix_tokens : arrays broadcast to (n_atoms,)
        Lengths of at least 1 and prefixes no longer than the prompt. [tokens]
    weight : array broadcast to (n_atoms,)
        Counts or shares in any unit; they are normalised.

    Raises
    ------
    ValueError
        If a length is below 1, a prefix longer than its prompt, or the weights are negative or all zero.

    Examples
    --------
    >>> request_distribution([100.0, 900.0], 50.0, weight=[3, 1]).weight
    array([0.75, 0.25])
    """
    given = (input_tokens, output_tokens, weight, cached_prefix_tokens)
    arrays = [np.atleast_1d(np.asarray(values, dtype=np.float64)) for values in given]
    inputs, outputs, shares, cached = (np.array(values) for values in np.broadcast_arrays(*arrays))
    require_at_least("input_tokens", inputs, 1.0, "tokens")
    require_at_least("output_tokens", outputs, 1.0, "tokens")
    require_non_negative("weight", shares, "1")
    require_non_negative("cached_prefix_tokens", cached, "tokens")
    if (cached > inputs).any():
        raise ValueError(f"cached_prefix_tokens must be at most input_tokens, got {(cached - inputs).max():g} more")
    if not shares.sum() > 0:
        raise ValueError("weight must not be zero everywhere")
    kept = shares > 0
    return RequestDistribution(shares[kept] / shares.sum(), inputs[kept], outputs[kept], cached[kept])


def observed_distribution(requests: Requests) -> RequestDistribution:
    """Return observed requests as a distribution in which each weighs the same."""
    weight = np.full(requests.n, 1.0 / requests.n)
    return RequestDistribution(weight, requests.input_tokens, requests.output_tokens, requests.cached_prefix_tokens)


def independent_distribution(
    input_tokens: ArrayLike, input_weight: ArrayLike, output_tokens: ArrayLike, output_weight: ArrayLike
) -> RequestDistribution:
    """
    Return the distribution of two histograms whose lengths are independent of each other.

    Parameters
    ----------
    input_tokens, input_weight : arrays of shape (n_inputs,)
        Prompt lengths [tokens] and how often each occurs.
    output_tokens, output_weight : arrays of shape (n_outputs,)
        Answer lengths [tokens] and how often each occurs.

    Examples
    --------
    >>> independent_distribution([100.0, 200.0], [1, 1], [10.0, 20.0], [1, 3]).weight
    array([0.125, 0.375, 0.125, 0.375])
    """
    pairs = []
    for name, tokens, weight in (("input", input_tokens, input_weight), ("output", output_tokens, output_weight)):
        values, shares = np.atleast_1d(np.asarray(tokens, float)), np.atleast_1d(np.asarray(weight, float))
        if values.shape != shares.shape:
            raise ValueError(f"{name}_weight must have {len(values)} entries as {name}_tokens, got {len(shares)}")
        pairs.append((values, require_non_negative(f"{name}_weight", shares, "1")))
    (inputs, input_shares), (outputs, output_shares) = pairs
    return request_distribution(
        np.repeat(inputs, len(outputs)),
        np.tile(outputs, len(inputs)),
        weight=np.outer(input_shares, output_shares).ravel(),
    )


def with_prefix_hits(distribution: RequestDistribution, hit_fraction: float) -> RequestDistribution:
    """
    Return the distribution in which a fraction of every prompt is found in the prefix cache.

    A hit removes computation but no cache capacity, and attention still reads the cached keys.

    Parameters
    ----------
    distribution : RequestDistribution
    hit_fraction : float
        Share of the prompt tokens that are hits, 0..1.

    Examples
    --------
    >>> with_prefix_hits(request_distribution(1000.0, 10.0), 0.3).cached_prefix_tokens
    array([300.])
    """
    require_fraction("prefix_hit_fraction", hit_fraction)
    cached = distribution.input_tokens * hit_fraction
    return RequestDistribution(distribution.weight, distribution.input_tokens, distribution.output_tokens, cached)


def weighted_quantiles(values: FloatArray, weight: FloatArray, fractions: ArrayLike) -> FloatArray:
    """
    Return the values below which the given shares of the weight lie.

    Equal weights give the usual linear interpolation between the sorted values; unequal ones the smallest value
    that at least that share of the weight does not exceed.

    Parameters
    ----------
    values, weight : arrays of shape (n,)
    fractions : array of shape (n_fractions,)
        0..1.

    Returns
    -------
    array of shape (n_fractions,)

    Examples
    --------
    >>> weighted_quantiles(np.array([1.0, 2.0, 9.0]), np.array([0.5, 0.4, 0.1]), [0.5, 0.9])
    array([1., 2.])
    """
    shares = np.asarray(fractions, dtype=np.float64)
    if weight.min() == weight.max():
        return np.asarray(np.quantile(values, shares), dtype=np.float64)
    order = np.argsort(values)
    reached = np.cumsum(weight[order])
    index = np.searchsorted(reached, shares * reached[-1] * (1.0 - 1e-12))
    return np.asarray(values[order[np.minimum(index, len(order) - 1)]], dtype=np.float64)


def request_moments(distribution: RequestDistribution) -> RequestMoments:
    """
    Return the exact moments of a request distribution.

    The last token of a prompt is always computed, since the first output token follows from it: a prefix hit covers
    at most the others.

    Examples
    --------
    >>> moments = request_moments(request_distribution(1000.0, 100.0, cached_prefix_tokens=400.0))
    >>> moments.prompt_tokens, moments.prefill_token_pairs, moments.context_tokens
    (600.0, 420000.0, 1050.0)
    """
    w, inputs, outputs = distribution.weight, distribution.input_tokens, distribution.output_tokens
    cached = np.minimum(distribution.cached_prefix_tokens, inputs - 1.0)
    prompt = np.maximum(inputs - cached, 1.0)
    output_mean, prompt_mean = float(w @ outputs), max(float(w @ prompt), 1.0)
    pairs = float(w @ (prompt * (cached + prompt / 2)))
    return RequestMoments(
        input_tokens=float(w @ inputs),
        output_tokens=output_mean,
        cached_prefix_tokens=float(w @ cached),
        prompt_tokens=prompt_mean,
        input_tokens_squared=float(w @ inputs**2),
        prefill_token_pairs=pairs,
        effective_prompt_tokens=2 * pairs / prompt_mean,
        context_tokens=float(w @ (outputs * (inputs + outputs / 2))) / output_mean,
        reserved_tokens=float(w @ (outputs * (inputs + outputs))) / output_mean,
        input_p95_tokens=float(weighted_quantiles(inputs, w, [0.95])[0]),
        output_p95_tokens=float(weighted_quantiles(outputs, w, [0.95])[0]),
        prompt_p95_tokens=float(weighted_quantiles(prompt, w, [0.95])[0]),
    )
