"""Request lengths given by a formula: family, mean, spread, limits and how prompt and answer go together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from scipy import special

from models.checks import FloatArray, require_at_least, require_fraction, require_known, require_non_negative
from models.workload.distribution import RequestDistribution, request_distribution, with_prefix_hits
from models.workload.requests import MAX_TOKENS, Requests

Family = Literal["normal", "lognormal", "gamma"]


@dataclass(frozen=True)
class LengthFormula:
    """
    Lengths of one side of a request, cut to `min_tokens`..`max_tokens`.

    Parameters
    ----------
    mean_tokens, std_tokens : float
        Mean and standard deviation of the family before it is cut; a spread of 0 is one fixed length. [tokens]
    family : "normal", "lognormal" or "gamma"
    min_tokens, max_tokens : float
        Limits of the length. [tokens]

    Raises
    ------
    ValueError
        If a mean is not positive, a spread negative, or the limits are below 1, crossed or exclude the family.
    """

    mean_tokens: float
    std_tokens: float = 0.0
    family: Family = "normal"
    min_tokens: float = 1.0
    max_tokens: float = float(MAX_TOKENS)

    def __post_init__(self) -> None:
        require_known("length family", self.family, get_args(Family))
        require_at_least("mean", self.mean_tokens, 1.0, "tokens")
        require_non_negative("std", self.std_tokens, "tokens")
        require_at_least("min", self.min_tokens, 1.0, "tokens")
        require_at_least("max", self.max_tokens, self.min_tokens, "tokens")
        low, high = _limits(self)
        if not high - low > 1e-9:
            raise ValueError(f"lengths from {self.min_tokens:g} to {self.max_tokens:g} tokens are beyond {self.family}")


@dataclass(frozen=True)
class RequestFormula:
    """
    Prompt and answer lengths by formula.

    `correlation` is that of the normal scores of both lengths (a Gaussian copula), -1..1; production traces are near
    0. `prefix_hit_fraction` of every prompt is found in the prefix cache.
    """

    input: LengthFormula
    output: LengthFormula
    correlation: float = 0.0
    prefix_hit_fraction: float = 0.0

    def __post_init__(self) -> None:
        if not -1 <= self.correlation <= 1:
            raise ValueError(f"correlation must be between -1 and 1, got {self.correlation:g}")
        require_fraction("prefix_hit_fraction", self.prefix_hit_fraction)


def length_quantile(formula: LengthFormula, fraction: FloatArray) -> FloatArray:
    """
    Return the length below which a fraction of the requests lies, after the cut.

    Parameters
    ----------
    formula : LengthFormula
    fraction : array of any shape
        0..1, both ends excluded.

    Returns
    -------
    array of the same shape
        Not rounded. [tokens]

    Examples
    --------
    >>> length_quantile(LengthFormula(550.0, 150.0), np.array([0.5])).round(1)
    array([550.])
    """
    if formula.std_tokens == 0:
        return np.full(np.shape(fraction), np.clip(formula.mean_tokens, formula.min_tokens, formula.max_tokens))
    low, high = _limits(formula)
    lengths = _family_quantile(formula, low + (high - low) * np.asarray(fraction, dtype=np.float64))
    return np.asarray(np.clip(lengths, formula.min_tokens, formula.max_tokens), dtype=np.float64)


def formula_distribution(formula: RequestFormula) -> RequestDistribution:
    """
    Return the distribution of a formula as weighted strata, fine in both tails.

    Each stratum of the prompt's quantiles meets each stratum of what the answer adds to it; lengths are means over
    their stratum.

    Examples
    --------
    >>> atoms = formula_distribution(RequestFormula(LengthFormula(550.0, 150.0), LengthFormula(150.0, 10.0)))
    >>> round(float(atoms.weight @ atoms.input_tokens))
    550
    """
    edges = _strata() if formula.input.std_tokens or formula.output.std_tokens else np.array([0.0, 1.0])
    share = np.diff(edges)
    # eight Gauss points per stratum integrate every family here to far below the quantisation error
    nodes, node_weight = np.polynomial.legendre.leggauss(8)
    points = edges[:-1, None] + share[:, None] * (nodes + 1) / 2
    inputs = length_quantile(formula.input, points) @ node_weight / 2
    rho = formula.correlation
    if rho:
        scores = special.ndtri(points)
        answers = special.ndtr(rho * scores[:, None, :, None] + np.sqrt(1 - rho**2) * scores[None, :, None, :])
        lengths = length_quantile(formula.output, np.clip(answers, 1e-12, 1 - 1e-12))
        outputs = lengths @ node_weight @ node_weight / 4
    else:
        outputs = np.tile(length_quantile(formula.output, points) @ node_weight / 2, (len(share), 1))
    inputs = np.broadcast_to(inputs[:, None], outputs.shape)
    atoms = request_distribution(inputs.ravel(), outputs.ravel(), weight=np.outer(share, share).ravel())
    return with_prefix_hits(atoms, formula.prefix_hit_fraction)


def draw_requests(source: RequestFormula | RequestDistribution, n: int, seed: int) -> Requests:
    """
    Draw whole request lengths from a formula or a distribution, without arrivals.

    Parameters
    ----------
    source : RequestFormula or RequestDistribution
    n : int
        Number of requests.
    seed : int
        The same seed gives the same requests.

    Examples
    --------
    >>> draw_requests(RequestFormula(LengthFormula(550.0), LengthFormula(150.0)), 2, seed=0).input_tokens
    array([550., 550.])
    """
    rng = np.random.default_rng(seed)
    if isinstance(source, RequestDistribution):
        atom = rng.choice(len(source.weight), size=n, p=source.weight)
        lengths = [source.input_tokens[atom], source.output_tokens[atom], source.cached_prefix_tokens[atom]]
        inputs, outputs, cached = (np.round(values) for values in lengths)
        return Requests(None, np.maximum(inputs, 1.0), np.maximum(outputs, 1.0), np.minimum(cached, inputs))
    prompt, answer = rng.standard_normal((2, n))
    answer = source.correlation * prompt + np.sqrt(1 - source.correlation**2) * answer
    inputs = np.round(length_quantile(source.input, special.ndtr(prompt)))
    outputs = np.round(length_quantile(source.output, special.ndtr(answer)))
    return Requests(None, inputs, outputs, np.floor(inputs * source.prefix_hit_fraction))


def _family_quantile(formula: LengthFormula, share: FloatArray) -> FloatArray:
    """Length below which a share of the uncut family lies [tokens]."""
    mean, std = formula.mean_tokens, formula.std_tokens
    if formula.family == "gamma":
        return np.asarray(special.gammaincinv((mean / std) ** 2, share) * std**2 / mean, dtype=np.float64)
    if formula.family == "lognormal":
        sigma = _lognormal_sigma(formula)
        return np.asarray(mean * np.exp(sigma * special.ndtri(share) - sigma**2 / 2), dtype=np.float64)
    return np.asarray(mean + std * special.ndtri(share), dtype=np.float64)


def _family_share(formula: LengthFormula, tokens: float) -> float:
    """Share of the uncut family below a length."""
    mean, std = formula.mean_tokens, formula.std_tokens
    if formula.family == "gamma":
        return float(special.gammainc((mean / std) ** 2, tokens * mean / std**2))
    if formula.family == "lognormal":
        sigma = _lognormal_sigma(formula)
        return float(special.ndtr(np.log(tokens / mean) / sigma + sigma / 2))
    return float(special.ndtr((tokens - mean) / std))


def _lognormal_sigma(formula: LengthFormula) -> float:
    return float(np.sqrt(np.log1p((formula.std_tokens / formula.mean_tokens) ** 2)))


def _limits(formula: LengthFormula) -> tuple[float, float]:
    """Shares of the family below its smallest and largest allowed length, rounding to whole tokens included."""
    if formula.std_tokens == 0:
        return 0.0, 1.0
    return _family_share(formula, formula.min_tokens - 0.5), _family_share(formula, formula.max_tokens + 0.5)


def _strata() -> FloatArray:
    """Edges of the strata, from 0 to 1: 40 even ones whose outer two shrink geometrically to 1e-7."""
    inner = np.linspace(0.0, 1.0, 41)[1:-1]
    tail = np.geomspace(1e-7, inner[0], 13)[:-1]
    return np.concatenate([[0.0], tail, inner, 1.0 - tail[::-1], [1.0]])
