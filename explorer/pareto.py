"""Fronts of several objectives."""

from __future__ import annotations

import numpy as np

from models.checks import BoolArray, FloatArray


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
    kept: list[int] = []
    front = np.empty((0, costs.shape[1]))
    for i in order:
        if len(front) and np.any(np.all(front <= costs[i], axis=1)):
            continue
        kept.append(int(i))
        front = np.vstack([front, costs[i]])
    mask = np.zeros(len(costs), dtype=bool)
    mask[kept] = True
    return mask


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
