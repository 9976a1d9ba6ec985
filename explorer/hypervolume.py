"""How much of the space of objectives a front dominates."""

from __future__ import annotations

import numpy as np

from explorer.pareto import non_dominated
from models.checks import FloatArray


def dominated_hypervolume(costs: FloatArray, reference: FloatArray) -> float:
    """
    Return the volume between the reference and everything that some row is at least as good as.

    By slices along the last objective, which is exact; one objective gives a length.

    Parameters
    ----------
    costs : array of shape (n_points, n_objectives)
        Smaller is better; rows that are not better than the reference everywhere count nothing.
    reference : array of shape (n_objectives,)

    Returns
    -------
    float
        In the product of the objectives' units.

    Examples
    --------
    >>> dominated_hypervolume(np.array([[1.0, 3.0], [2.0, 1.0]]), np.array([4.0, 4.0]))
    7.0
    """
    inside = costs[np.all(costs < reference, axis=1)]
    if not len(inside):
        return 0.0
    return _volume(inside[non_dominated(inside)], reference)


def _volume(front: FloatArray, reference: FloatArray) -> float:
    """Volume of a front inside the reference, rows that another beats included."""
    if front.shape[1] == 1:
        return float(reference[0] - front.min())
    front = front[np.argsort(front[:, -1], kind="stable")]
    if front.shape[1] == 2:
        reached = np.minimum.accumulate(front[:, 0])
        heights = np.diff(front[:, 1], append=reference[1])
        return float(np.sum((reference[0] - reached) * heights))
    heights = np.diff(front[:, -1], append=reference[-1])
    slices = [_volume(front[: i + 1, :-1], reference[:-1]) * height for i, height in enumerate(heights) if height > 0]
    return float(sum(slices))
