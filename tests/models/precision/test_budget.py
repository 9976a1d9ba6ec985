"""Quality budgets and the mixes found under them for arrays of several kinds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from models.architectures.config import load_network
from models.architectures.lowered import LoweredNetwork
from models.architectures.lowering import lower
from models.checks import UnknownNameError
from models.precision.budget import budget_nats, mixes_of_classes, mixes_under_budget, recipes_under_budget
from models.precision.choices import ChoiceGroup, choice_groups, mix_of
from models.precision.error import mix_kl_nats
from models.precision.formats import FORMATS, number_format
from models.precision.knapsack import cheapest_choices
from models.precision.mix import RECIPES
from models.precision.prices import Load, choice_costs, representative_loads
from models.precision.promotion import common_classes

CLASS_SETS = [("bf16",), ("bf16", "int8"), ("bf16", "fp8"), ("bf16", "fp8", "int8"), ("bf16", "fp8", "fp4")]
LLAMA = lower(load_network("llama-3.1-8b"))
DEEPSEEK = lower(load_network("deepseek-v3"))


def test_budget_of_a_recipe_is_its_own_error() -> None:
    assert budget_nats(LLAMA, no_worse_than="q4_k_m") == mix_kl_nats(RECIPES["q4_k_m"], LLAMA)
    assert budget_nats(LLAMA, max_kl_nats=0.05) == 0.05
    assert budget_nats(LLAMA) == np.inf


def test_budget_below_bf16_is_refused_with_the_number_it_can_reach() -> None:
    least = mix_kl_nats(RECIPES["bf16"], LLAMA)
    with pytest.raises(ValueError, match=f"at least {least:.3g} nat, which bf16 everywhere costs, got 1e-06"):
        budget_nats(LLAMA, max_kl_nats=1e-6)


@pytest.mark.parametrize("bad", [np.nan, -0.1, 0.0, np.inf])
def test_budget_that_is_no_positive_number_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match=r"quality\.max_kl_nats must be positive"):
        budget_nats(LLAMA, max_kl_nats=bad)


def test_two_budgets_and_an_unknown_recipe_are_refused() -> None:
    with pytest.raises(ValueError, match="max_kl_nats or no_worse_than, got both"):
        budget_nats(LLAMA, max_kl_nats=0.1, no_worse_than="bf16")
    with pytest.raises(UnknownNameError, match="unknown precision recipe 'fp7'"):
        budget_nats(LLAMA, no_worse_than="fp7")


def test_recipes_under_the_budget_of_deepseek_v3_leave_out_fp8_everywhere_and_four_bits() -> None:
    names = {mix.name for mix in recipes_under_budget(budget_nats(LLAMA, no_worse_than="deepseek_v3"), LLAMA)}
    assert {"bf16", "deepseek_v3"} <= names
    assert not {"fp8", "w4a16", "nvfp4"} & names


@pytest.mark.parametrize("native", CLASS_SETS, ids="+".join)
@pytest.mark.parametrize("network", [LLAMA, DEEPSEEK], ids=["dense", "experts"])
class TestMixesFound:
    def test_stay_within_the_budget_and_use_most_of_it(self, network: LoweredNetwork, native: tuple[str, ...]) -> None:
        budget = budget_nats(network, no_worse_than="deepseek_v3")
        mixes = mixes_under_budget(budget, network, native)
        assert 1 <= len(mixes) <= 12
        kl_nats = [mix_kl_nats(mix, network) for mix in mixes]
        assert max(kl_nats) <= budget * (1 + 1e-9)
        assert max(kl_nats) > 0.8 * budget

    def test_run_on_the_arrays_they_were_asked_for(self, network: LoweredNetwork, native: tuple[str, ...]) -> None:
        for mix in mixes_under_budget(budget_nats(network, no_worse_than="q4_k_m"), network, native):
            for module in ("attention_output", "output_head", "ffn_up"):
                assert set(common_classes(*mix.operand_formats(module))) & set(native)

    def test_keep_residual_softmax_norm_and_gate_above_the_format_of_the_big_products(
        self, network: LoweredNetwork, native: tuple[str, ...]
    ) -> None:
        for mix in mixes_under_budget(budget_nats(network, no_worse_than="deepseek_v3"), network, native):
            assert {mix.vector_format[m] for m in ("norm", "residual", "scores")} == {"bf16"}
            assert mix.weight_format["moe_gate"] == "bf16"


@pytest.mark.parametrize("network", [LLAMA, DEEPSEEK], ids=["dense", "experts"])
def test_output_head_is_never_rounded_more_coarsely_than_the_big_products(network: LoweredNetwork) -> None:
    up, down = ("expert_up", "expert_down") if network is DEEPSEEK else ("ffn_up", "ffn_down")
    mixes = mixes_under_budget(budget_nats(network, no_worse_than="deepseek_v3"), network, ("bf16", "fp8"))
    eps = [[number_format(mix.weight_format[m]).gaussian_eps for m in ("output_head", up, down)] for mix in mixes]
    assert all(head <= max(big) for head, *big in eps if max(big) > 0.002)


def small_groups(network: LoweredNetwork) -> tuple[ChoiceGroup, ...]:
    """Two options of five groups, so that all mixes can be tried."""
    groups = choice_groups(network, ("bf16", "fp8"))[:5]
    return tuple(ChoiceGroup(g.name, g.kind, g.modules, (g.choices[0], g.choices[-2])) for g in groups)


def test_best_mix_of_every_load_equals_brute_force_over_all_mixes() -> None:
    groups = small_groups(LLAMA)
    loads = representative_loads()
    costs = choice_costs(LLAMA, groups, loads)
    _, total = cheapest_choices(costs, [g.kl_nats for g in groups], 0.12)
    everything = list(itertools.product(*[range(len(g.choices)) for g in groups]))
    allowed = [c for c in everything if sum(g.kl_nats[o] for g, o in zip(groups, c, strict=True)) <= 0.12]
    assert 1 < len(allowed) < len(everything)
    best = [min(sum(costs[g][i, o] for g, o in enumerate(c)) for c in allowed) for i in range(len(loads))]
    assert total.tolist() == pytest.approx(best)


def test_kept_mixes_serve_other_loads_than_those_they_were_chosen_for_within_three_percent() -> None:
    native, budget = ("bf16", "fp8"), budget_nats(LLAMA, no_worse_than="deepseek_v3")
    groups = choice_groups(LLAMA, native)
    rng = np.random.default_rng(4)
    draw = np.exp(rng.uniform(np.log([1, 500, 60, 2]), np.log([600, 20_000, 500, 20]), (25, 4)))
    loads = [Load(b, b, s, f, v) for b, s, f, v in draw]
    costs = choice_costs(LLAMA, groups, loads)
    _, best = cheapest_choices(costs, [g.kl_nats for g in groups], budget)
    kept = {mix.name for mix in mixes_under_budget(budget, LLAMA, native)}
    picks = distinct_picks(groups, budget, kept)
    served = np.min([sum(costs[g][:, o] for g, o in enumerate(pick)) for pick in picks], axis=0)
    assert np.max(served / best - 1) < 0.03


def distinct_picks(groups: tuple[ChoiceGroup, ...], budget: float, names: set[str]) -> list[np.ndarray]:
    """Options of the kept mixes, found again by their names."""
    costs = choice_costs(LLAMA, groups, representative_loads())
    picks, _ = cheapest_choices(costs, [g.kl_nats for g in groups], budget)
    return [pick for pick in np.unique(picks, axis=0) if mix_of(groups, pick).name in names]


def test_error_of_a_found_mix_is_the_sum_of_its_choices_and_what_has_no_choice() -> None:
    groups = choice_groups(DEEPSEEK, ("bf16", "fp8", "fp4"))
    for seed in range(5):
        picked = [int(i) for i in np.random.default_rng(seed).integers(0, [len(g.choices) for g in groups])]
        total = sum(g.kl_nats[o] for g, o in zip(groups, picked, strict=True))
        assert mix_kl_nats(mix_of(groups, picked), DEEPSEEK) == pytest.approx(total)


def test_every_option_that_was_dropped_is_beaten_in_bits_and_error() -> None:
    for group in choice_groups(LLAMA, ("bf16", "fp8", "int8")):
        kept = [(FORMATS[c.stationary].weight_bits, c.kl_nats) for c in group.choices]
        assert kept[0][1] == min(kl for _, kl in kept)
        assert len(set(kept)) == len(kept)


def test_latent_cache_takes_one_format_for_keys_and_values() -> None:
    mixes = mixes_under_budget(budget_nats(DEEPSEEK, no_worse_than="q4_k_m"), DEEPSEEK, ("bf16", "fp8"))
    assert all(mix.key_format == mix.value_format for mix in mixes)
    assert any(mix.key_format != "bf16" for mix in mixes)


def test_union_of_classes_holds_each_mix_once() -> None:
    mixes = mixes_of_classes(budget_nats(LLAMA, no_worse_than="w8a8_kv8"), LLAMA, CLASS_SETS)
    assert len({mix.name for mix in mixes}) == len(mixes)


def test_budget_below_every_mix_and_arrays_without_rates_are_refused() -> None:
    with pytest.raises(ValueError, match=r"no mix of native formats stays within 1e-06 nat, the least error is"):
        mixes_under_budget(1e-6, LLAMA, ("bf16",))
    with pytest.raises(ValueError, match="no format of attention_input runs on arrays with no rates"):
        mixes_under_budget(1.0, LLAMA, ())
    with pytest.raises(UnknownNameError, match="unknown rate class 'fp5'"):
        mixes_under_budget(1.0, LLAMA, ("fp5",))
