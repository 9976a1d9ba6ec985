"""The exact best mix of a design from evaluations in which one group of modules at a time changes its format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.checks import FloatArray, IntArray
from models.precision.choices import ChoiceGroup, mix_of
from models.precision.knapsack import cheapest_choices
from models.precision.mix import PrecisionMix


@dataclass(frozen=True)
class SingleChanges:
    """
    The base mix (first option of every group) and, for every other option, the mix that changes only that group.

    What is evaluated is `mixes`; the step time of a design at one batch and degree is a sum over the modules, so the
    differences to the base are the costs of the options and any combination of them is known without evaluating it.
    """

    groups: tuple[ChoiceGroup, ...]
    mixes: tuple[PrecisionMix, ...]
    group_of: IntArray
    """Group that each mix changes, shape (n_mixes,); -1 for the base."""
    option_of: IntArray
    """Option it takes there, shape (n_mixes,)."""


def single_changes(groups: Sequence[ChoiceGroup]) -> SingleChanges:
    """Return the mixes to evaluate: one, plus one for each option of each group but the first."""
    slots = [(-1, 0)] + [(g, o) for g, group in enumerate(groups) for o in range(1, len(group.choices))]
    mixes = []
    for changed, option in slots:
        picked = [0] * len(groups)
        if changed >= 0:
            picked[changed] = option
        mixes.append(mix_of(groups, picked))
    pairs = np.array(slots, dtype=np.int64)
    return SingleChanges(tuple(groups), tuple(mixes), pairs[:, 0], pairs[:, 1])


def best_mixes(changes: SingleChanges, cost: FloatArray, budget: float) -> tuple[IntArray, FloatArray]:
    """
    Return the cheapest mix within a budget for every design, over all combinations of the options.

    Parameters
    ----------
    changes : SingleChanges
    cost : array of shape (n_designs, n_mixes)
        Cost of each of `changes.mixes` on each design, in any unit that adds over modules (a step time at one batch
        and degree, an energy, bytes).
    budget : float
        From `budget_nats`. [nat/token]

    Returns
    -------
    picked : array of shape (n_designs, n_groups)
        Option of each group, for `mix_of`; -1 where nothing fits the budget. [1]
    total_cost : array of shape (n_designs,)
        Predicted cost of that mix; infinite where nothing fits.
    """
    if cost.ndim != 2 or cost.shape[1] != len(changes.mixes):
        raise ValueError(f"cost must have shape (n_designs, {len(changes.mixes)}), got {cost.shape}")
    base = cost[:, :1]
    costs = [np.zeros((len(cost), len(group.choices))) for group in changes.groups]
    for column in range(1, len(changes.mixes)):
        costs[changes.group_of[column]][:, changes.option_of[column]] = cost[:, column] - base[:, 0]
    picked, saved = cheapest_choices(costs, [group.kl_nats for group in changes.groups], budget)
    return picked, base[:, 0] + saved
