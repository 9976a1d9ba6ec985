"""The front door: the two-batch contract, monotonicity, and the physical bound."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.architectures import load_network, lower
from models.architectures.plans import ParallelPlan
from models.evaluate import evaluate
from models.evaluation import alternative_windows, take_alternatives, worst_violation
from models.hardware.catalog import chip_designs
from models.hardware.design import DESIGN_FIELDS, concatenate, peak_flop_per_s, reference_design, replace, take
from models.hardware.figures import chip_figures
from models.hardware.rates import RATE_CLASSES, rate_ratios
from models.operators.factor_tables import FactorTables
from models.operators.topology import Interconnect, ScaleOut, ScaleUp
from models.serving.scenario import Slo, Speculation, System
from tests.models.random_designs import MEMORY, RESOURCES, between, random_designs, with_more
from tests.models.serving_scenarios import compiled, same

SEEDS = st.integers(0, 10_000)
FEW = settings(max_examples=3, deadline=None)
TABLES = FactorTables()
SLO = Slo(ttft_s=0.5, tpot_s=0.02)
GUESSES = Speculation(3, 0.7, lower(load_network("llama-3.1-8b")))
WIRED = Interconnect(
    ScaleUp("torus", (4, 2), 2e-7), ScaleOut(1, 3.0, 1e-6, port_bytes_per_s=40e9), overlap_fraction=0.5
)  # fmt: skip
SCENARIOS = {
    "dense on two chips": compiled(mixes=("bf16", "w4a16"), slo=SLO),
    "dense, whole prompts": compiled(mixes=("fp8_kv8",), slo=SLO, scheduling="whole_prompt"),
    "experts across nodes": compiled(
        "qwen3-30b-a3b", mixes=("w4a16",), system=System(4, 2), plans=[ParallelPlan(2), ParallelPlan(4)], slo=SLO
    ),
    "latent attention": compiled(
        "deepseek-v3", mixes=("deepseek_v3",), system=System(8, 8), plans=[ParallelPlan(8), ParallelPlan(2, 4)], slo=SLO
    ),
    "pipelines across nodes": compiled("llama-3.1-70b", mixes=("bf16",), system=System(4, 2), slo=SLO),
    "pipelines, whole prompts": compiled(
        "llama-3.1-70b", mixes=("fp8_kv8",), system=System(8, 2), slo=SLO, scheduling="whole_prompt"
    ),
    "pools of two nodes": compiled(mixes=("fp8_kv8",), system=System(4, 2), slo=SLO, scheduling="disaggregated"),
    "guesses of a draft": compiled(mixes=("fp8_kv8",), slo=SLO, speculation=GUESSES),
    "groups that share experts": compiled("mixtral-8x7b", mixes=("fp8_kv8",), system=System(4, 2), slo=SLO),
    "a torus and a fat tree": compiled(
        "qwen3-30b-a3b",
        mixes=("w4a16",),
        system=System(16, 8, interconnect=WIRED),
        slo=SLO,
        plans=[ParallelPlan(4, pipeline_parallel=4), ParallelPlan(16), ParallelPlan(2, 8)],
    ),
    "windows": compiled("gemma-3-12b", mixes=("fp8_kv8",), plans=[ParallelPlan(2)], slo=SLO),
}
BETTER_IF_LOWER = ("energy_per_unit_j", "step_s", "ttft_s", "tpot_s")


def judged(performance, cost=None, scenarios=SCENARIOS.values(), **options):
    return evaluate(performance, performance if cost is None else cost, list(scenarios), TABLES, **options)


def assert_bounds(bound, point):
    assert (bound.units_per_s >= point.units_per_s * (1 - 1e-9)).all()
    for name in BETTER_IF_LOWER:
        assert (getattr(bound, name) <= getattr(point, name) * (1 + 1e-9)).all(), name
    for name, excess in point.violations.items():
        if name == "memory_capacity":  # a shallower pipeline that fits may fill more of it
            excess = np.maximum(excess, 0.0)
        assert (bound.violations[name] <= excess + 1e-9 * (1 + np.abs(excess))).all(), name
    for name, excess in point.figures.violations.items():
        assert (bound.figures.violations[name] <= excess + 1e-9 * (1 + np.abs(excess))).all(), name
    for name in ("area_mm2", "static_w", "tdp_w", "full_rate_power_w", "unit_cost_usd", "usd_per_s", "usd_per_j"):
        low, exact = getattr(bound.figures, name), getattr(point.figures, name)
        assert (low <= exact * (1 + 1e-9)).all(), name


class TestTwoBatchContract:
    @FEW
    @given(seed=SEEDS)
    def test_the_corners_of_a_box_bound_every_design_inside(self, seed):
        low = random_designs(seed, 6, tdp_w=500.0)
        high = with_more(low, seed + 1, (*RESOURCES, "memory_stacks"))
        inside = between(low, high, seed + 2)
        for bound, point in zip(judged(high, low), judged(inside), strict=True):
            assert_bounds(bound, point)

    @FEW
    @given(seed=SEEDS, resource=st.sampled_from((*RESOURCES, "memory_stacks")))
    def test_the_ends_of_one_short_edge_bound_both_of_them(self, seed, resource):
        low = random_designs(seed, 6, tdp_w=500.0)
        raised = np.ceil(getattr(low, resource) * 1.02 + (resource == "l2_bytes") * 2**20)
        high = replace(low, **{resource: raised})
        for bound, point, other in zip(judged(high, low), judged(low), judged(high), strict=True):
            assert_bounds(bound, point)
            assert_bounds(bound, other)

    def test_limits_of_manufacturing_are_never_above_at_the_lower_corner(self):
        low = random_designs(3, 300)
        high = with_more(low, 4, (*RESOURCES, "memory_stacks"))
        less, more = (chip_figures(each).violation_ratio for each in (low, high))
        assert set(more) == {"reticle", "memory_edge", "tdp"}
        for name, excess in more.items():
            assert (less[name] <= excess + 1e-12).all(), name

    @pytest.mark.parametrize("resource", [*RESOURCES, "memory_stacks"])
    def test_more_of_a_resource_is_never_smaller_cheaper_or_more_frugal_per_access(self, resource):
        low = random_designs(5, 100)
        high = replace(low, **{resource: np.ceil(getattr(low, resource) * 1.5 + (resource == "l2_bytes") * 2**20)})
        small, large = chip_figures(low), chip_figures(high)
        for name in ("area_mm2", "full_rate_power_w", "unit_cost_usd", "usd_per_s"):
            assert (getattr(large, name) >= getattr(small, name) * (1 - 1e-12)).all(), name
        less, more = small.access, large.access
        for name in RATE_CLASSES:
            assert (more.mac_j[name] >= less.mac_j[name] * (1 - 1e-12)).all(), name
        for name in ("dram_j_per_byte", "link_j_per_byte", "vector_j_per_op", "static_w"):
            assert (getattr(more, name) >= getattr(less, name) * (1 - 1e-12)).all(), name


class TestMonotonicity:
    @FEW
    @given(seed=SEEDS)
    def test_more_memory_is_never_slower_and_never_holds_less(self, seed):
        low = random_designs(seed, 6, tdp_w=1e6)
        high = with_more(low, seed, MEMORY)
        for less, more in zip(judged(low), judged(high, low), strict=True):
            assert (more.units_per_s >= less.units_per_s * (1 - 1e-12)).all()
            excess = np.maximum(less.violations["memory_capacity"], 0.0)
            assert (more.violations["memory_capacity"] <= excess).all()

    @FEW
    @given(seed=SEEDS)
    def test_a_higher_cap_is_never_slower(self, seed):
        low = random_designs(seed, 6, tdp_w=300.0)
        for less, more in zip(judged(low), judged(replace(low, tdp_w=600.0)), strict=True):
            assert (more.units_per_s >= less.units_per_s * (1 - 1e-12)).all()


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
class TestEveryScenario:
    def test_a_batch_equals_one_at_a_time_in_any_order(self, scenario):
        designs = random_designs(21, 6)
        whole = judged(designs, scenarios=[scenario])[0]
        for i in range(6):
            alone = judged(take(designs, [i]), scenarios=[scenario])[0]
            np.testing.assert_allclose(whole.units_per_s[i], alone.units_per_s[0], rtol=1e-12)
            np.testing.assert_allclose(whole.energy_per_unit_j[i], alone.energy_per_unit_j[0], rtol=1e-12)
        back = judged(take(designs, np.arange(6)[::-1]), scenarios=[scenario])[0]
        np.testing.assert_allclose(back.units_per_s[::-1], whole.units_per_s, rtol=1e-12)

    def test_tables_of_other_designs_change_nothing(self, scenario):
        designs = random_designs(22, 4)
        fresh = evaluate(designs, designs, [scenario], FactorTables())[0]
        assert same(fresh, judged(designs, scenarios=[scenario])[0])

    def test_no_design_beats_compute_or_the_bytes_it_must_move(self, scenario):
        designs = random_designs(23, 30)
        found = judged(designs, scenarios=[scenario])[0]
        best_class = peak_flop_per_s(designs) * np.maximum(rate_ratios(designs), 1.0).max(axis=1)
        network, requests = scenario.scenario.network, scenario.scenario.requests
        active = sum(o.n_in * o.n_out * o.count * (o.top_k or 1) for o in network.linears if o.rows != "sampled")
        flop_per_request = 2.0 * active * (requests.output_tokens + requests.prompt_tokens)
        n_chips = scenario.scenario.system.n_chips
        utilisation = found.units_per_s * flop_per_request / (n_chips * best_class[:, None])
        assert (utilisation <= 1.0 + 1e-9).all()
        # weights beyond the shared buffer cross main memory once a step, the cache of every sequence too
        groups = n_chips / scenario.choices.tensor_parallel
        cache = scenario.pipelines.sequence_bytes[:, 0] * requests.context_tokens / requests.reserved_tokens * 0.5
        moved = np.maximum(0.0, _least_step_weight_bytes(scenario) - designs.l2_bytes[:, None])
        moved = moved + (scenario.choices.batch * cache) * (not network.attentions[0].window_tokens)
        assert (found.step_s >= moved / designs.memory_bandwidth_bytes_per_s[:, None]).all()
        assert (groups >= 1).all()


def _least_step_weight_bytes(scenario):
    """Weights that every step reads on each chip: all of a dense network, the shared ones of a routed one."""
    network, choices = scenario.scenario.network, scenario.choices
    rows = [o for o in network.linears if o.rows == "tokens" and not o.n_experts]
    by_mix = [
        sum(o.n_in * o.n_out * o.count * mix.weight_bits(o.module) / 8.0 for o in rows)
        for mix in scenario.scenario.mixes
    ]
    return np.array(by_mix)[choices.mix] / choices.tensor_parallel


def test_batches_of_unequal_length_are_refused():
    two = concatenate([reference_design(), reference_design()])
    with pytest.raises(ValueError, match="equally many designs, got 2 and 1"):
        evaluate(two, reference_design(), list(SCENARIOS.values()), TABLES)


def test_taking_an_alternative_keeps_its_numbers():
    found = judged(random_designs(24, 5))[0]
    chosen = np.array([0, 3, 5, 1, 2])
    taken = take_alternatives(found, chosen)
    assert taken.units_per_s.shape == (5, 1)
    np.testing.assert_array_equal(taken.units_per_s[:, 0], found.units_per_s[np.arange(5), chosen])
    np.testing.assert_array_equal(
        taken.violations["ttft_p95"][:, 0], found.violations["ttft_p95"][np.arange(5), chosen]
    )
    np.testing.assert_array_equal(taken.choices["batch"][:, 0], found.choices["batch"][np.arange(5), chosen])


def test_the_worst_violation_is_the_largest_of_all():
    found = judged(random_designs(25, 5))[0]
    stacked = np.stack([np.broadcast_to(v, found.units_per_s.shape) for v in found.violations.values()])
    np.testing.assert_array_equal(worst_violation(found), stacked.max(axis=0))


def test_windows_are_the_runs_of_a_key():
    np.testing.assert_array_equal(alternative_windows(np.array([4, 4, 1, 1, 1, 2])), [[0, 1], [2, 4], [5, 5]])


def test_the_h100_is_ahead_of_the_a100_on_every_plan():
    # 989 / 312 TFLOP/s and 3.35 / 2.04 TB/s: no workload can gain more than the larger of both ratios
    chips = chip_designs(["a100_sxm", "h100_sxm"])
    found = judged(chips, scenarios=[compiled(mixes=("bf16",))])[0]
    ratio = found.units_per_s[1] / found.units_per_s[0]
    assert (ratio > 1.1).all() and (ratio < 989 / 312 * 1.02).all()


def test_every_design_field_is_bounded_by_a_resource_or_told_apart_as_a_category():
    categories = {
        "node_nm", "array_m", "array_n", "array_k", "memory_kind", "stationarity", "array_groups", "array_variants",
        "second_tier", "bulk_async_copy", "l2_halves", "core_control", "n_dies", "tdp_w",
        *(f"{n}_rate_ratio" for n in RATE_CLASSES),
    }  # fmt: skip
    unsearched = {
        "host_bytes_per_s", "register_file_bytes_per_core", "fp64_lanes_per_core", "spare_core_fraction",
        "spare_l2_fraction", "spare_memory_stacks", "short_reach_bytes_per_s", "other_area_mm2",
    }  # fmt: skip
    assert set(DESIGN_FIELDS) == {*RESOURCES, *MEMORY} | categories | unsearched


def test_llama_8b_fits_one_h100_and_is_lowered_whole():
    assert lower(load_network("llama-3.1-8b")).n_layers == 32
    found = judged(chip_designs(["h100_sxm"]), scenarios=[compiled(n_chips=1)])[0]
    assert (found.violations["memory_capacity"] <= 0).all()
