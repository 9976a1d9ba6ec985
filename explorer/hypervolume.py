"""How much of the space of objectives a front dominates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from explorer.objectives import Objective
from explorer.pareto import non_dominated
from models.checks import FloatArray

REFERENCE_MARGIN = 0.1
"""How far beyond the worst of a front the reference of its hypervolume lies, as a share of the best."""


def proven_hypervolume(
    objectives: Sequence[Objective], found: FloatArray, optimistic: FloatArray
) -> dict[str, Any] | None:
    """
    Return the hypervolume of a front between what was found and what could still be found.

    Each objective is taken as its loss relative to the best value found, so volumes are pure numbers. The true front
    of the space dominates at least the lower and at most the upper one.

    Parameters
    ----------
    objectives : sequence of Objective
    found : array of shape (n_members, n_objectives)
        Costs of the front.
    optimistic : array of shape (n_rows, n_objectives)
        Costs of which every feasible design is at best as good as one row.

    Returns
    -------
    dict or None
        `lower`, `upper` [1] and the `reference`, metric -> value; None without a feasible design.
    """
    if not len(found):
        return None
    best = found.min(axis=0)
    scale = np.where(best == 0, 1.0, np.abs(best))
    reference = found.max(axis=0) + REFERENCE_MARGIN * scale
    lower, upper = (dominated_hypervolume(each / scale, reference / scale) for each in (found, optimistic))
    return {
        "lower": lower,
        "upper": max(lower, upper),
        "reference": {o.metric: o.value(float(each)) for o, each in zip(objectives, reference, strict=True)},
    }


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
