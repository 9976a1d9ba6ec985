"""Request classes: a few weighted request sizes that stand for a whole distribution, within a stated error."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from models.checks import FloatArray, IntArray, require_fraction
from models.workload.distribution import (
    RequestDistribution,
    RequestMoments,
    observed_distribution,
    request_moments,
)
from models.workload.requests import Requests

DEFAULT_ERROR_FRACTION = 0.01
KNEE_TOKENS = 2.0 ** np.arange(5.0, 14.0625, 0.125)
"""Prompt lengths at which a step may turn from bound by weights to bound by compute: prefill time has a knee there."""
_BETWEEN_KNEES = 0.8
"""Share of the error allowed at a knee of the list, so that those between two of them keep it too."""
_FINE_ATOMS = 4096
"""Distributions with more atoms are first put on a logarithmic grid far finer than the error asked for."""
_FINE_WIDTH, _FINE_MARGIN = 0.5, 0.95
"""Cells of that grid are this wide times the root of the error, which hides width^2 / 12 of it: 2 of the 5 % kept."""


@dataclass(frozen=True)
class RequestClasses:
    """
    Weighted request classes with the exact moments of the distribution they stand for.

    Parameters
    ----------
    weight : array of shape (n_classes,)
        Share of the requests, summing to 1.
    input_tokens, output_tokens, cached_prefix_tokens : arrays of shape (n_classes,)
        Means over the requests of the class, ordered by input. [tokens]
    moments : RequestMoments
        Of the unquantised distribution.
    prefill_error_fraction, knee_error_fraction, kv_length_error_fraction, total_tokens_error_fraction : float
        Relative error of the classes against the distribution: of the mean prefill time with the attention share
        asked for, of its worst knee (see `quantise`), of the mean KV length and of all tokens.
    """

    weight: FloatArray
    input_tokens: FloatArray
    output_tokens: FloatArray
    cached_prefix_tokens: FloatArray
    moments: RequestMoments
    prefill_error_fraction: float
    knee_error_fraction: float
    kv_length_error_fraction: float
    total_tokens_error_fraction: float

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.weight)


def quantise(
    requests: Requests | RequestDistribution,
    error_fraction: float = DEFAULT_ERROR_FRACTION,
    *,
    attention_share: float = 1.0,
) -> RequestClasses:
    """
    Return as few request classes as keep mean prefill time and mean KV length within the stated error.

    Prefill time is a + b prompt + c prompt (cached + prompt / 2), whose last term makes up `attention_share` of the
    mean. The first two are kept exactly, as class means are; the last is off by the spread within the classes. For
    designs whose steps are bound by weights up to some length the mean of max(prompt, knee) is kept within the error
    too, for knees from 32 to 16384 tokens. Classes are cut where the largest of these errors shrinks most until all
    are met, so the resolution follows the data.

    Parameters
    ----------
    requests : Requests or RequestDistribution
        Of n requests or atoms.
    error_fraction : float
        Largest relative error, above 0 and at most 1.
    attention_share : float
        Share of attention in the mean prefill time, 0..1; 1 covers every network and length.

    Returns
    -------
    RequestClasses
        Of shape (n_classes,).

    Raises
    ------
    ValueError
        If the error is not in (0, 1].

    Examples
    --------
    >>> trace = Requests(None, np.array([100.0, 102.0]), np.array([5.0, 5.0]), np.zeros(2))
    >>> quantise(trace).input_tokens
    array([101.])
    """
    if not 0 < error_fraction <= 1:
        raise ValueError(f"error_fraction must be above 0 and at most 1, got {error_fraction:g}")
    require_fraction("attention_share", attention_share)
    distribution = observed_distribution(requests) if isinstance(requests, Requests) else requests
    moments = request_moments(distribution)
    cells = _fine_cells(distribution, error_fraction)
    tolerance = _tolerances(cells.sums.sum(axis=1), error_fraction, attention_share)
    groups = _cut(cells, tolerance)
    return _classes(np.stack([cells.total(group) for group in groups]), moments, attention_share)


# Columns of the sums over a group of atoms: weight, x = input, y = output, p = cached prefix, their products, knees.
_W, _X, _Y, _P, _XX, _YY, _PP, _XY, _KNEES = range(9)
_AXES = (_X, _Y, _P)


@dataclass(frozen=True)
class _Cells:
    """Weighted sums, shape (n_sums, n_cells), and the rank of each cell along each axis, shape (3, n_cells)."""

    sums: FloatArray
    ranks: IntArray

    def total(self, group: IntArray) -> FloatArray:
        """Sums over a group of cells, shape (n_sums,)."""
        return np.array([column[group].sum() for column in self.sums])


def _fine_cells(distribution: RequestDistribution, error_fraction: float) -> _Cells:
    """Each atom as a cell, or the cells of a fine grid where there are many atoms."""
    lengths = (distribution.input_tokens, distribution.output_tokens, distribution.cached_prefix_tokens)
    if len(distribution.weight) <= _FINE_ATOMS:
        ranks = [np.unique(tokens, return_inverse=True)[1] for tokens in lengths]
        return _Cells(np.stack(list(_products(distribution))), np.stack(ranks))
    width = _FINE_WIDTH * np.sqrt(error_fraction)
    codes = [np.floor(np.log1p(tokens) / width).astype(np.int64) for tokens in lengths]
    shape = tuple(int(code.max()) + 1 for code in codes)
    keys, cell = np.unique(np.ravel_multi_index(codes, shape), return_inverse=True)
    sums: FloatArray = np.stack([np.bincount(cell, weights=column) for column in _products(distribution)])
    return _Cells(sums, np.stack(np.unravel_index(keys, shape)))


def _products(distribution: RequestDistribution) -> Iterator[FloatArray]:
    """Columns of the sums, one at a time, each of shape (n_atoms,)."""
    w, x, y = distribution.weight, distribution.input_tokens, distribution.output_tokens
    p = distribution.cached_prefix_tokens
    yield from (w, w * x, w * y, w * p, w * x * x, w * y * y, w * p * p, w * x * y)
    for knee_tokens in KNEE_TOKENS:
        yield w * np.maximum(x - p, knee_tokens)


def _errors(sums: FloatArray, knee_tokens: FloatArray = KNEE_TOKENS) -> FloatArray:
    """Largest error of standing for a group by its means, per criterion: attention, KV length, each knee."""
    w, x, y, p = (sums[..., i] for i in (_W, _X, _Y, _P))
    safe = np.maximum(w, 1e-300)
    spread_x, spread_y, spread_p = (
        np.maximum(sums[..., square] - mean * mean / safe, 0.0) for square, mean in ((_XX, x), (_YY, y), (_PP, p))
    )
    covariance = np.abs(sums[..., _XY] - x * y / safe)
    knees = sums[..., _KNEES:] - np.maximum((x - p)[..., None], knee_tokens * w[..., None])
    attention, kv_length = (spread_x + spread_p) / 2, covariance + spread_y / 2
    return np.concatenate([attention[..., None], kv_length[..., None], np.maximum(knees, 0.0)], axis=-1)


def _tolerances(total: FloatArray, error_fraction: float, attention_share: float) -> FloatArray:
    """What the errors of all groups may sum to, per criterion."""
    attention = max(total[_XX] - total[_PP], 1e-6 * total[_XX]) / 2 / max(attention_share, 1e-6)
    means = np.concatenate([[attention, total[_XY] + total[_YY] / 2], _BETWEEN_KNEES * total[_KNEES:]])
    return error_fraction * means


def _cut(cells: _Cells, tolerance: FloatArray) -> list[IntArray]:
    """Cut the cells into groups until the errors of every criterion sum to no more than its tolerance."""
    groups = [np.arange(cells.sums.shape[1])]
    errors = [_errors(cells.total(groups[0])) / tolerance]
    while True:
        total = np.sum(errors, axis=0)
        worst = int(np.argmax(total))
        if total[worst] <= _FINE_MARGIN:
            return groups
        order = np.argsort([-error[worst] for error in errors])
        chosen = next((int(index) for index in order if len(groups[index]) > 1), None)
        if chosen is None:
            return groups
        halves = _halves(cells, groups[chosen], worst)
        groups[chosen : chosen + 1] = halves
        errors[chosen : chosen + 1] = [_errors(cells.total(half)) / tolerance for half in halves]


def _halves(cells: _Cells, group: IntArray, criterion: int) -> list[IntArray]:
    """The two parts of a group with the least error of one criterion, over all cuts along each axis."""
    best_error, best = np.inf, [group[:1], group[1:]]
    knee = slice(criterion - 2, criterion - 1) if criterion >= 2 else slice(0)
    inside = [column[group] for column in (*cells.sums[:_KNEES], *cells.sums[_KNEES:][knee])]
    for ranks in cells.ranks:
        rank = ranks[group]
        rank = rank - rank.min()
        below = np.cumsum([np.bincount(rank, weights=column) for column in inside], axis=1).T
        cuts = np.flatnonzero(np.bincount(rank))[:-1]
        if not cuts.size:
            continue
        left, right = below[cuts], below[-1] - below[cuts]
        both = _errors(left, KNEE_TOKENS[knee]) + _errors(right, KNEE_TOKENS[knee])
        error = both[:, min(criterion, 2)]
        at = int(np.argmin(error))
        if error[at] < best_error:
            best_error = float(error[at])
            is_left = rank <= cuts[at]
            best = [group[is_left], group[~is_left]]
    return best


def _classes(sums: FloatArray, moments: RequestMoments, attention_share: float) -> RequestClasses:
    """Class means and the errors they make against the unquantised distribution."""
    sums = sums[np.argsort(sums[:, _X] / sums[:, _W])]
    weight = sums[:, _W] / sums[:, _W].sum()
    x, y, p = (sums[:, axis] / sums[:, _W] for axis in _AXES)
    p = np.minimum(p, x)
    met = request_moments(RequestDistribution(weight, x, y, p))
    knee_errors = weight @ np.maximum((x - p)[:, None], KNEE_TOKENS) / sums[:, _KNEES:].sum(axis=0) - 1.0
    return RequestClasses(
        weight=weight,
        input_tokens=x,
        output_tokens=y,
        cached_prefix_tokens=p,
        moments=moments,
        prefill_error_fraction=attention_share * _relative(met.prefill_token_pairs, moments.prefill_token_pairs),
        knee_error_fraction=float(np.abs(knee_errors).max()),
        kv_length_error_fraction=_relative(met.context_tokens, moments.context_tokens),
        total_tokens_error_fraction=_relative(
            met.input_tokens + met.output_tokens, moments.input_tokens + moments.output_tokens
        ),
    )


def _relative(value: float, reference: float) -> float:
    return abs(value / reference - 1.0) if reference else abs(value)
