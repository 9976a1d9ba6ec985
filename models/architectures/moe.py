"""Routing of a mixture of experts: which experts a batch touches, how uneven the load is, what tokens carry along."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import gammaln, ndtri

from models.checks import FloatArray, require_at_least, require_non_negative, require_positive


def expert_chances(n_experts: int, top_k: float, zipf_exponent: float = 0.0) -> FloatArray:
    """
    Return the chance that a token meets each expert, most popular first.

    Popularity falls as rank^-zipf_exponent and a token draws `top_k` different experts one after the other. The
    chance of being among them is approximated by exponential order sampling, 1 - exp(-x p_i) with x such that the
    chances sum to top_k: exact for equal popularity, and within a few percent of drawing without replacement.

    Parameters
    ----------
    n_experts, top_k : int, float
        Experts of the layer and how many of them a token meets.
    zipf_exponent : float
        0: all alike; 1: popularity inversely proportional to rank.

    Returns
    -------
    array of shape (n_experts,)
        Chances that sum to `top_k`. [1]

    References
    ----------
    .. [1] B. Rosén, "Asymptotic theory for successive sampling with varying probabilities without replacement",
       Ann. Math. Stat. 43, 1972, doi:10.1214/aoms/1177692620.

    Examples
    --------
    >>> expert_chances(4, 2).tolist()
    [0.5, 0.5, 0.5, 0.5]
    """
    require_at_least("n_experts", n_experts, 1, "experts")
    require_positive("top_k", top_k, "experts")
    require_non_negative("zipf_exponent", zipf_exponent, "")
    if top_k > n_experts:
        raise ValueError(f"top_k must be at most n_experts ({n_experts}), got {top_k}")
    if zipf_exponent == 0 or top_k == n_experts:
        return np.full(n_experts, top_k / n_experts)
    popularity = np.arange(1.0, n_experts + 1.0) ** -zipf_exponent
    popularity /= popularity.sum()
    upper = 1.0
    while -np.expm1(-upper * popularity).sum() < top_k:
        upper *= 2.0
    scale = brentq(lambda x: -np.expm1(-x * popularity).sum() - top_k, 0.0, upper, xtol=1e-12 * upper)
    return np.asarray(-np.expm1(-scale * popularity))


def touched_experts(n_experts: int, top_k: float, n_tokens: ArrayLike, zipf_exponent: float = 0.0) -> FloatArray:
    """
    Return the expected number of different experts that a batch touches: sum of 1 - (1 - chance_i)^n_tokens.

    Tokens choose independently of each other. Equal popularity gives E (1 - (1 - k/E)^M).

    Parameters
    ----------
    n_tokens : array of shape (n_alternatives,)
        Tokens of the batch. [1]

    Returns
    -------
    array of shape (n_alternatives,)
        Between min(top_k, n_experts) at one token and n_experts. [1]

    Examples
    --------
    >>> touched_experts(128, 8, [1, 16, 1024]).round(1).tolist()
    [8.0, 82.4, 128.0]
    """
    tokens = require_non_negative("n_tokens", n_tokens, "tokens")
    missed = np.minimum(expert_chances(n_experts, top_k, zipf_exponent), 1.0)
    with np.errstate(divide="ignore"):
        log_miss = np.maximum(np.log1p(-missed), -1e6)
    return np.asarray(-np.expm1(tokens[..., None] * log_miss).sum(axis=-1))


def busiest_rank_load_ratio(
    n_experts: int, top_k: float, n_tokens: ArrayLike, n_ranks: int, zipf_exponent: float = 0.0
) -> FloatArray:
    """
    Return the expected load of the busiest of the ranks that share the experts, over the mean load.

    Experts are dealt to ranks without regard to their popularity. The load of a rank varies with which experts it
    holds (a draw without replacement) and with what the tokens choose; its expected maximum is that of independent
    normal loads, and at least that of the rank with the most popular expert.

    Parameters
    ----------
    n_tokens : array of shape (n_alternatives,)
        Tokens of all ranks together. [1]
    n_ranks : int
        Ranks, at most n_experts.

    Returns
    -------
    array of shape (n_alternatives,)
        At least 1, at most n_ranks. [1]

    References
    ----------
    .. [1] G. Blom, "Statistical estimates and transformed beta-variables", 1958: expected normal order statistics.
    """
    tokens = require_positive("n_tokens", n_tokens, "tokens")
    require_at_least("n_ranks", n_ranks, 1, "ranks")
    if n_ranks > n_experts:
        raise ValueError(f"n_ranks must be at most n_experts ({n_experts}), got {n_ranks}")
    if n_ranks == 1:
        return np.ones(tokens.shape)
    chances = expert_chances(n_experts, top_k, zipf_exponent)
    held = n_experts / n_ranks
    mean = tokens * top_k / n_ranks
    spread = chances.var(ddof=1) if n_experts > 1 else 0.0
    placement = held * (1.0 - held / n_experts) * spread * tokens**2
    choice = held * np.mean(chances * (1.0 - chances)) * tokens
    normal_maximum = ndtri((n_ranks - 0.375) / (n_ranks + 0.25))
    busiest = mean + normal_maximum * np.sqrt(placement + choice)
    with_most_popular = tokens * (chances[0] + (held - 1.0) * (top_k - chances[0]) / max(n_experts - 1, 1))
    one_token = np.minimum(tokens, 1.0) * min(top_k, 1.0)
    return np.asarray(np.clip(np.maximum.reduce([busiest, with_most_popular, one_token]) / mean, 1.0, n_ranks))


def dispatch_bytes_per_token(
    hidden_size: int, n_experts: int, top_k: int, n_ranks: ArrayLike, bits_per_element: ArrayLike
) -> FloatArray:
    """
    Return what one token sends to other ranks to reach its experts, once to each rank that holds any of them.

    The combine step brings the same number of rows back, in its own format. Experts lie evenly over the ranks and
    are equally popular; the chance that a rank holds none of a token's experts is hypergeometric.

    Parameters
    ----------
    n_ranks, bits_per_element : arrays that broadcast to shape (n_alternatives,)
        Ranks that share the experts, and bits of one element of the row with its scales. [1], [bits]

    Returns
    -------
    array of shape (n_alternatives,)
        [B]

    Examples
    --------
    One rank keeps everything; with one expert on each of 256 ranks nearly all eight rows leave.

    >>> dispatch_bytes_per_token(7168, 256, 8, [1, 256], 8).round().tolist()
    [0.0, 57120.0]
    """
    ranks = require_at_least("n_ranks", n_ranks, 1, "ranks")
    bits = require_positive("bits_per_element", bits_per_element, "bits")
    others = n_experts - n_experts / ranks
    log_none = _log_choose(others, float(top_k)) - _log_choose(np.asarray(float(n_experts)), float(top_k))
    reached = -np.expm1(np.where(others >= top_k, log_none, -np.inf))
    return np.asarray((ranks - 1.0) * reached * hidden_size * bits / 8.0)


def _log_choose(n: FloatArray, k: float) -> FloatArray:
    """Logarithm of the binomial coefficient, for real n of at least k."""
    n = np.maximum(n, k)
    return np.asarray(gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0))
