"""Best mix from one-at-a-time evaluations against every mix evaluated."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from models.architectures.config import load_network
from models.architectures.lowering import lower
from models.precision.choices import ChoiceGroup, choice_groups, mix_of
from models.precision.error import mix_kl_nats
from models.precision.mix import PrecisionMix
from models.precision.single_changes import best_mixes, single_changes

LLAMA = lower(load_network("llama-3.1-8b"))


def few_groups() -> tuple[ChoiceGroup, ...]:
    """All groups, three options each at most and only four groups with a choice."""
    groups = choice_groups(LLAMA, ("bf16", "fp8"))
    kept = [g.choices[:: max(1, len(g.choices) // 2)][:3] if i < 4 else g.choices[:1] for i, g in enumerate(groups)]
    return tuple(ChoiceGroup(g.name, g.kind, g.modules, c) for g, c in zip(groups, kept, strict=True))


def step_cost(mix: PrecisionMix, balance: np.ndarray) -> np.ndarray:
    """Roofline of each module on two machines, added up, shape (n_designs,)."""
    total = np.zeros(len(balance))
    for linear in LLAMA.linears:
        elements = linear.count * linear.n_in * linear.n_out
        rate = 2.0 if mix.compute_class(linear.module) == "fp8" else 1.0
        total += np.maximum(elements * mix.weight_bits(linear.module) / 8, elements * balance / rate)
    return total


@pytest.mark.parametrize("budget", [0.01, 0.03, 0.2])
def test_best_mix_equals_the_best_of_all_mixes_evaluated(budget: float) -> None:
    groups, balance = few_groups(), np.array([0.1, 1.5])
    changes = single_changes(groups)
    cost = np.stack([step_cost(mix, balance) for mix in changes.mixes], axis=1)
    picked, total = best_mixes(changes, cost, budget)
    every = [mix_of(groups, p) for p in itertools.product(*[range(len(g.choices)) for g in groups])]
    allowed = [mix for mix in every if mix_kl_nats(mix, LLAMA) <= budget * (1 + 1e-9)]
    best = np.min([step_cost(mix, balance) for mix in allowed], axis=0)
    assert total.tolist() == pytest.approx(best.tolist())
    for design, options in enumerate(picked):
        assert step_cost(mix_of(groups, options), balance)[design] == pytest.approx(best[design])


def test_number_of_evaluations_is_one_and_one_for_each_further_option() -> None:
    groups = few_groups()
    assert len(single_changes(groups).mixes) == 1 + sum(len(g.choices) - 1 for g in groups)


def test_cost_of_another_number_of_mixes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"cost must have shape \(n_designs, \d+\), got \(2, 3\)"):
        best_mixes(single_changes(few_groups()), np.ones((2, 3)), 0.1)
