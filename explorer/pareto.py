"""Fronts of several objectives."""

from __future__ import annotations

import numpy as np

from models.checks import BoolArray, FloatArray, IntArray


def non_dominated(costs: FloatArray) -> BoolArray:
    """
    Return which rows no other row beats or equals in every column while beating it in one; of equal rows the first.

    Parameters
    ----------
    costs : array of shape (n_points, n_objectives)
        Smaller is better.

    Returns
    -------
    array of shape (n_points,)

    Examples
    --------
    >>> non_dominated(np.array([[1.0, 3.0], [2.0, 2.0], [2.0, 3.0], [3.0, 1.0]]))
    array([ True,  True, False,  True])
    """
    order = np.lexsort(costs.T[::-1])
    mask = np.zeros(len(costs), dtype=bool)
    mask[order[_best_of_sorted(costs[order])]] = True
    return mask


def _best_of_sorted(costs: FloatArray) -> IntArray:
    """
    Positions of the non-dominated rows where rows come in lexicographic order, so that only earlier ones dominate.

    Two columns need one pass. With more, each round keeps the row of least sum of ranks and drops all it beats: as
    many rounds as the front has members, each over what is left.
    """
    if costs.shape[1] == 1:
        return np.arange(min(1, len(costs)))
    if costs.shape[1] == 2:
        before = np.minimum.accumulate(np.concatenate([[np.inf], costs[:-1, 1]]))
        return np.flatnonzero(costs[:, 1] < before)
    left = np.arange(len(costs))
    sums = np.argsort(np.argsort(costs, axis=0, kind="stable"), axis=0, kind="stable").sum(axis=1)
    kept = []
    while len(left):
        best = left[np.lexsort((left, sums[left]))[0]]
        best = left[np.flatnonzero(np.all(costs[left] <= costs[best], axis=1))[0]]
        kept.append(int(best))
        left = left[np.any(costs[left] < costs[best], axis=1)]
    return np.sort(np.array(kept, dtype=np.int64))


def knee(costs: FloatArray) -> int:
    """
    Return the row with the least sum of relative losses against the best of each column.

    Costs of maximised metrics are negative; a relative loss is |log(cost / best)|, so units do not matter.

    Examples
    --------
    >>> knee(np.array([[1.0, 9.0], [1.5, 4.0], [4.0, 3.0]]))
    1
    """
    best = costs.min(axis=0)
    return int(np.argmin(np.abs(np.log(costs / best)).sum(axis=1)))
