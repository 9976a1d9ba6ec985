"""Exact choice of one option per group at least cost under one error budget, for many designs at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from models.checks import FloatArray, IntArray, require_finite, require_non_negative

_BLOCK_DESIGNS = 16
"""Designs solved together: more of them share a pass but keep more combinations alive, each for the sake of one."""


def cheapest_choices(
    cost: Sequence[FloatArray], error: Sequence[FloatArray], budget: float
) -> tuple[IntArray, FloatArray]:
    """
    Return the cheapest option of every group whose errors add to at most `budget`: an exact optimum per design.

    Dynamic programming over the groups. The combinations of the groups merged so far are sorted by error, and one
    stays only if for some design it is cheaper than every combination with less error. The cheapest of those with
    less error stays itself, so no design loses its optimum. Any cost that adds over groups is allowed.

    Parameters
    ----------
    cost : sequence of arrays of shape (n_designs, n_options of the group)
        In any one unit.
    error : sequence of arrays of shape (n_options of the group,)
        Error of each option, the same for all designs. [nat]
    budget : float
        Largest allowed sum of errors. [nat]

    Returns
    -------
    choice : array of shape (n_designs, n_groups)
        Index of the option of each group; -1 where nothing fits the budget. [1]
    total_cost : array of shape (n_designs,)
        Infinite where nothing fits.

    Raises
    ------
    ValueError
        If a cost or error is not finite, an error is negative, or the shapes do not agree.

    Examples
    --------
    Two groups; only one of them may take its cheap, erroneous option.

    >>> choice, total = cheapest_choices(
    ...     [np.array([[5.0, 1.0]]), np.array([[5.0, 2.0]])], [np.array([0.0, 1.0])] * 2, 1.0
    ... )
    >>> choice.tolist(), total.tolist()
    ([[1, 0]], [6.0])
    """
    costs = [require_finite("cost", values, "") for values in cost]
    errors = [require_non_negative("error", values, "nat") for values in error]
    _require_shapes(costs, errors)
    n_designs = len(costs[0])
    order = np.argsort([len(values) for values in errors], kind="stable")  # few combinations until late
    costs, errors = [costs[i] for i in order], [errors[i] for i in order]
    parts = [
        _cheapest([values[start : start + _BLOCK_DESIGNS] for values in costs], errors, budget * (1.0 + 1e-12))
        for start in range(0, n_designs, _BLOCK_DESIGNS)
    ]
    choice = np.concatenate([choice for choice, _ in parts])[:, np.argsort(order)]
    return choice, np.concatenate([total for _, total in parts])


def _cheapest(costs: Sequence[FloatArray], errors: Sequence[FloatArray], allowed: float) -> tuple[IntArray, FloatArray]:
    """One block of designs."""
    n_designs, n_groups = len(costs[0]), len(errors)
    least_later = np.cumsum([values.min() for values in reversed(errors)])[::-1]
    least_later = np.append(least_later[1:], 0.0)
    picked = np.zeros((1, 0), dtype=np.int64)
    total_error = np.zeros(1)
    total_cost = np.zeros((n_designs, 1))
    for group, (cost, error) in enumerate(zip(costs, errors, strict=True)):
        merged = (total_error[:, None] + error).ravel()
        fits = np.flatnonzero(merged + least_later[group] <= allowed)
        order = fits[np.argsort(merged[fits], kind="stable")]
        before, option = np.divmod(order, len(error))
        merged_cost = total_cost[:, before] + cost[:, option]
        kept = _cheaper_than_all_before(merged_cost)
        picked = np.column_stack([picked[before[kept]], option[kept]])
        total_error, total_cost = merged[order[kept]], merged_cost[:, kept]
    if not len(picked):
        return np.full((n_designs, n_groups), -1), np.full(n_designs, np.inf)
    best = total_cost.argmin(axis=1)
    return picked[best], total_cost[np.arange(n_designs), best]


def _cheaper_than_all_before(cost: FloatArray) -> IntArray:
    """Columns that are strictly cheaper than every earlier one for some row."""
    lowest = np.minimum.accumulate(cost, axis=1)
    improves = np.ones(cost.shape[1], dtype=bool)
    improves[1:] = (cost[:, 1:] < lowest[:, :-1]).any(axis=0)
    return np.flatnonzero(improves)


def _require_shapes(costs: Sequence[FloatArray], errors: Sequence[FloatArray]) -> None:
    if not costs or len(costs) != len(errors):
        raise ValueError(f"cost and error must have the same number of groups, got {len(costs)} and {len(errors)}")
    for group, (cost, error) in enumerate(zip(costs, errors, strict=True)):
        if cost.ndim != 2 or error.ndim != 1 or cost.shape != (len(costs[0]), len(error)) or not len(error):
            raise ValueError(f"cost of group {group} must have shape ({len(costs[0])}, {error.size}), got {cost.shape}")
