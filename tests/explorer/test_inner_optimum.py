"""The exact mix of a design at its batch and degree against brute force through the whole engine."""

import dataclasses
import itertools
import time

import numpy as np
import pytest

from explorer.inner_optimum import Operation, inner_optimum, judged_mixes, native_classes, relative_costs
from explorer.objectives import Objective
from models.architectures.plans import ParallelPlan
from models.evaluate import evaluate
from models.hardware.design import concatenate, reference_design, replace
from models.operators.factor_tables import FactorTables
from models.precision.choices import choice_groups, mix_of
from models.precision.error import mix_kl_nats
from models.precision.mix import RECIPES
from models.precision.single_changes import best_mixes
from models.serving.steady import compile_serving
from tests.models.serving_scenarios import scenario

DESIGN = replace(reference_design(), fp8_rate_ratio=2.0, int8_rate_ratio=2.0, tdp_w=1500.0)
RATE = Objective("sustainable_output_tokens_per_s", True)
COST = Objective("usd_per_million_output_tokens", False)
CHAT = scenario(mixes=("bf16",))
BUDGET = mix_kl_nats(RECIPES["deepseek_v3"], CHAT.network)


def operation(objectives=(RATE,), **changes):
    return Operation(dataclasses.replace(CHAT, **changes), DESIGN, ParallelPlan(2), 8, objectives)


def few_groups():
    """Four groups of at most three options; the others keep their widest."""
    groups = choice_groups(CHAT.network, native_classes(DESIGN))
    some = ("ffn_up", "ffn_down", "key", "norm")
    return [dataclasses.replace(group, choices=group.choices[: 3 if group.name in some else 1]) for group in groups]


@pytest.mark.parametrize("objectives", [(RATE,), (COST,), (RATE, COST)], ids=["rate", "cost", "both"])
@pytest.mark.parametrize("share", [0.05, 0.4, 1.0])
def test_exact_mix_equals_brute_force_through_the_engine(objectives, share):
    groups = few_groups()
    picks = list(itertools.product(*[range(len(group.choices)) for group in groups]))
    mixes = [mix_of(groups, pick) for pick in picks]
    kl_nats = np.array([sum(g.kl_nats[i] for g, i in zip(groups, pick, strict=True)) for pick in picks])
    budget = max(share * BUDGET, 1.02 * kl_nats[0])
    costs = relative_costs(objectives, judged_mixes(operation(objectives), mixes))
    best = np.flatnonzero(kl_nats <= budget)[np.argmin(costs[kl_nats <= budget])]
    found = inner_optimum(operation(objectives), budget, groups=groups)
    assert len(picks) > 50
    assert found.cost == pytest.approx(costs[best], rel=2e-4)
    assert found.predicted_cost == pytest.approx(found.cost, rel=2e-3)


def test_exact_mix_keeps_the_budget_and_beats_the_recipe_that_sets_it():
    found = inner_optimum(operation(), BUDGET)
    judged = judged_mixes(operation(), [found.changes.mixes[0], RECIPES["deepseek_v3"]])
    assert mix_kl_nats(found.mix, CHAT.network) <= BUDGET * (1 + 1e-9)
    assert found.cost <= relative_costs((RATE,), judged)[1] * (1 + 1e-3)


def test_more_error_budget_never_costs_more():
    costs = [inner_optimum(operation(), share * BUDGET).predicted_cost for share in (0.2, 0.5, 1.0, 3.0)]
    assert np.all(np.diff(costs) <= 1e-12)


def test_a_budget_below_the_widest_formats_is_refused_with_the_least_error():
    with pytest.raises(ValueError, match="no mix stays within 1e-09 nat, the least error is"):
        inner_optimum(operation(), 1e-9)


def test_share_of_choosing_among_all_combinations_in_an_evaluation(benchmark):
    """Of 64 designs not met before: the dynamic program over a million mixes each, against degrees, batches and six."""
    found = inner_optimum(operation(), BUDGET)
    assert np.prod([float(len(group.choices)) for group in found.changes.groups]) > 1e6
    six = scenario(mixes=("bf16", "deepseek_v3", "w4a16", "fp8_kv8", "w8a8_kv8", "q4_k_m"), n_chips=8, max_batch=1024)
    compiled = compile_serving(six)
    designs = concatenate([replace(DESIGN, n_cores=float(40 + i)) for i in range(64)])
    base, rng = found.single_costs[0], np.random.default_rng(0)
    cost = base + (found.single_costs - base) * rng.uniform(0.5, 2.0, (64, len(found.single_costs)))
    evaluated_s = _shortest_s(lambda: evaluate(designs, designs, [compiled], FactorTables()))
    benchmark(lambda: best_mixes(found.changes, cost, BUDGET))
    benchmark.extra_info["share_of_evaluation_fraction"] = benchmark.stats.stats.min / evaluated_s


def _shortest_s(action):
    times = []
    for _ in range(5):
        started = time.process_time()
        action()
        times.append(time.process_time() - started)
    return min(times)
