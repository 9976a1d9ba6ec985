"""Precision as a budget in the search: which mixes compete, and what an impossible budget gives."""

import dataclasses

import numpy as np
import pytest

from explorer.document import QualityDocument
from explorer.problem import judge_points
from explorer.run import explore_study
from explorer.workload import FEWEST_MIXES, MIX_BATCHES, MOST_MIXES, SEARCHED_RECIPES, read_quality
from models.architectures import load_network, lower
from models.hardware.design import reference_design, replace
from models.precision.budget import mixes_of_space, recipes_under_budget
from models.precision.error import known_kappa, mix_kl_nats
from models.precision.formats import number_format
from models.precision.mix import RECIPES
from models.precision.prices import representative_loads
from models.serving.capacity import largest_batch
from models.serving.steady import compile_serving
from tests.explorer.small_studies import problem_of, study

SETS = [("bf16",), ("bf16", "int8"), ("bf16", "fp8"), ("bf16", "fp8", "int8"), ("bf16", "fp8", "fp4")]
LLAMA = lower(load_network("llama-3.1-8b"))
WIDE_SPACE = {"native_formats": [list(each) for each in SETS]}


def quality(**limits):
    return read_quality(QualityDocument(**limits), LLAMA, SETS)


class TestCompetingMixes:
    def test_every_mix_keeps_the_budget_and_states_its_error(self):
        found = quality(no_worse_than="deepseek_v3")
        assert found.budget_nats == pytest.approx(mix_kl_nats(RECIPES["deepseek_v3"], LLAMA, kappa=found.kappa))
        assert all(kl <= found.budget_nats * (1 + 1e-9) for kl in found.kl_nats)
        assert len(found.mixes) == len(set(found.mixes)) <= MOST_MIXES

    def test_the_recipe_of_the_budget_and_bf16_stay_in_the_list(self):
        names = [mix.name for mix in quality(no_worse_than="deepseek_v3").mixes]
        assert {"bf16", "deepseek_v3"} < set(names)

    def test_an_absolute_budget_uses_the_measured_kappa_of_the_network(self):
        found = quality(max_kl_nats=0.02)
        assert found.kappa == known_kappa("llama-3.1-8b") < 1
        assert max(found.kl_nats) > 0.01

    @pytest.mark.parametrize(("n_batches", "most"), [(1, MOST_MIXES), (MIX_BATCHES, FEWEST_MIXES)])
    def test_more_mixes_compete_where_few_batches_are_tried(self, n_batches, most):
        found = read_quality(QualityDocument(no_worse_than="q4_k_m"), LLAMA, SETS, n_batches=n_batches)
        assert len(found.mixes) == most
        assert found.selection.n_considered > 3 * most

    def test_without_a_budget_the_recipes_in_use_today_compete(self):
        found = read_quality(None, LLAMA, SETS)
        assert [mix.name for mix in found.mixes] == ["bf16", "deepseek_v3", "w4a16"]
        assert np.isinf(found.budget_nats)


@pytest.mark.parametrize("network", ["llama-3.1-8b", "llama-3.1-70b", "deepseek-v3"])
def test_mixes_of_the_deepseek_budget_keep_the_sensitive_modules_wider_than_the_big_products(network):
    lowered = lower(load_network(network))
    budget = mix_kl_nats(RECIPES["deepseek_v3"], lowered)
    mixes = mixes_of_space(budget, lowered, [("bf16", "fp8")], limit=12).mixes
    big = "expert_up" if network == "deepseek-v3" else "ffn_up"
    narrow = [mix for mix in mixes if number_format(mix.weight_format[big]).code_bits <= 8]
    assert narrow
    for mix in narrow:
        formats = [mix.vector_format[name] for name in ("norm", "residual", "scores")]
        assert all(number_format(name).code_bits >= 16 for name in formats)
        head = max(number_format(mix.activation_format["output_head"]).code_bits, mix.weight_bits("output_head"))
        assert head >= 16


def test_the_search_is_at_least_as_good_as_with_the_recipes_alone():
    problem = problem_of(study(space=WIDE_SPACE, quality={"no_worse_than": "deepseek_v3"}))
    scenario = problem.scenarios[0].scenario
    recipes = recipes_under_budget(
        problem.qualities[0].budget_nats, scenario.network, names=SEARCHED_RECIPES, kappa=problem.qualities[0].kappa
    )
    alone = dataclasses.replace(
        problem, scenarios=(compile_serving(dataclasses.replace(scenario, mixes=recipes)),), proofs=[]
    )
    rng = np.random.default_rng(3)
    points = np.stack([rng.integers(0, size, 60) for size in problem.space.sizes], axis=1)
    found, base = judge_points(problem, points), judge_points(alone, points)
    assert np.all(found.feasible >= base.feasible)
    ratio = found.objectives[base.feasible, 0] / base.objectives[base.feasible, 0]
    assert np.all(ratio >= 1 - 1e-9)
    assert ratio.mean() > 1.02


def test_mixes_left_out_save_little_on_every_design_of_a_space_tried_with_all_of_them():
    problem = problem_of(study(space=WIDE_SPACE, quality={"no_worse_than": "q4_k_m"}))
    scenario, quality = problem.scenarios[0].scenario, problem.qualities[0]
    loads = representative_loads((scenario.requests.context_tokens,), scenario.requests.prompt_tokens, 4)
    everything = mixes_of_space(
        quality.budget_nats, LLAMA, SETS, loads=loads, kappa=quality.kappa, limit=1000, tolerance=0.0
    )
    assert everything.largest_extra_cost_fraction < 1e-9
    assert len(everything.mixes) > 2 * len(quality.mixes)
    compiled = compile_serving(dataclasses.replace(scenario, mixes=everything.mixes))
    points = np.stack(np.unravel_index(np.arange(0, problem.space.n_designs, 4), problem.space.sizes), axis=1)
    kept, tried = (
        judge_points(each, points) for each in (problem, dataclasses.replace(problem, scenarios=(compiled,)))
    )
    saved = 1 - kept.objectives[kept.feasible, 0] / tried.objectives[kept.feasible, 0]
    assert saved.mean() < 0.02
    assert saved.max() < 0.06
    assert tried.objectives[tried.feasible, 0].max() <= kept.objectives[kept.feasible, 0].max() * 1.02


def test_a_budget_below_what_bf16_costs_is_a_result_that_names_quality_and_its_excess():
    document = study(quality={"max_kl_nats": 1e-9}, search={"trials": 10})
    result = explore_study(document, None, lambda done, total: None)
    assert result["feasible"] is False
    assert result["recommended"] is None
    assert result["binding_limit"]["limit"] == "quality"
    least = mix_kl_nats(RECIPES["bf16"], LLAMA, kappa=known_kappa("llama-3.1-8b"))
    assert result["binding_limit"]["excess_fraction"] == pytest.approx(least / 1e-9 - 1, rel=1e-6)


def test_arrays_without_any_format_of_a_module_are_refused():
    with pytest.raises(ValueError, match="runs on arrays with fp4"):
        mixes_of_space(1e-6, LLAMA, [("fp4",)])


def test_no_mix_within_the_budget_states_the_least_error():
    with pytest.raises(ValueError, match="the least error is"):
        mixes_of_space(1e-9, LLAMA, SETS)


def test_narrow_weights_double_what_fits_and_the_batch_that_a_full_memory_holds():
    compiled = problem_of(study(quality={"no_worse_than": "w8a8_kv8"})).scenarios[0]
    scenario = dataclasses.replace(compiled.scenario, mixes=(RECIPES["bf16"], RECIPES["fp8"]))
    wide, narrow = ((compiled := compile_serving(scenario)).choices.mix == i for i in (0, 1))
    weights, cache = compiled.pipelines.weight_bytes[:, 0], compiled.pipelines.sequence_bytes[:, 0]
    assert weights[wide] / weights[narrow] == pytest.approx(2.0, rel=1e-2)
    assert cache[wide] / cache[narrow] == pytest.approx(2.0, rel=1e-2)
    full = replace(reference_design(), memory_capacity_bytes=24e9)
    fits = largest_batch(full, weights, cache)
    assert fits[0, narrow].min() > 3 * fits[0, wide].max() > 0
