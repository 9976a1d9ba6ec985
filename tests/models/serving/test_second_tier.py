"""What a second tier holds: the placement is exact, bounded and monotone, and nothing changes where it is not used."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.evaluate import evaluate
from models.hardware.design import SecondTier, reference_design, replace
from models.hardware.memory import second_tier_bandwidth_bytes_per_s, second_tier_column
from models.metrics import METRICS, metrics_of
from models.operators.factor_tables import FactorTables
from models.serving.capacity import needed_memory_bytes, usable_memory_bytes
from models.serving.second_tier import ColdContents, best_placement
from models.tables import constants
from tests.models.random_designs import between, random_designs, with_more
from tests.models.serving_scenarios import compiled, same

ONE = replace(reference_design(), second_tier=SecondTier.LPDDR5X_256GB, memory_capacity_bytes=40e9)
MIXTRAL = compiled("mixtral-8x7b", mixes=("bf16",), n_chips=2, offload=True)
PLAIN = compiled("mixtral-8x7b", mixes=("bf16",), n_chips=2)
TABLES = FactorTables()
TIERS = np.tile([SecondTier.LPDDR5X_256GB, SecondTier.CXL_512GB], 20)
LOW = random_designs(31, 40, tdp_w=600.0, scale_up_bytes_per_s=2e11, second_tier=TIERS, memory_capacity_bytes=30e9)
HIGH = with_more(LOW, 32)
INSIDE = between(LOW, HIGH, 33)


def placed(weights, embedding, experts, sequences, share, depth, step_s, designs=ONE):
    contents = ColdContents(*(np.array([v]) for v in (embedding, experts, share, 1.0 / depth)))
    return best_placement(designs, contents, np.array([weights]), np.array([1e8]), np.array([sequences]), step_s)


@settings(max_examples=40, deadline=None)
@given(
    dense=st.floats(1e8, 6e10), embedding=st.floats(0, 2e9), experts=st.floats(0, 1e11), sequences=st.floats(1, 500),
    share=st.floats(0.01, 1.0), depth=st.sampled_from([1, 2, 8]), step_s=st.floats(1e-4, 1.0),
)  # fmt: skip
def test_no_other_placement_makes_a_step_shorter(dense, embedding, experts, sequences, share, depth, step_s):
    weights = dense + embedding + experts
    found = placed(weights, embedding, experts, sequences, share, depth, np.array([[step_s]]))
    needed = needed_memory_bytes(np.array([weights]), np.array([1e8]), np.array([sequences]))
    overflow = max(float(needed[0] - usable_memory_bytes(ONE)[0]), 0.0)
    cache = float(needed[0]) - weights - constants("serving")["activation_reserve_bytes"]
    held = [float(v[0, 0]) for v in (found.embedding_bytes, found.expert_bytes, found.cache_bytes, found.weight_bytes)]
    assert sum(held) == pytest.approx(overflow, rel=1e-9, abs=1.0)
    limits = (embedding, experts, cache)
    assert all(-1.0 <= h <= limit * (1 + 1e-9) + 1.0 for h, limit in zip(held[:3], limits, strict=True))
    # every split of what the embedding leaves, on a fine grid: cache, other weights, experts
    rate = float(second_tier_bandwidth_bytes_per_s(ONE)[0])
    rest = overflow - min(overflow, embedding)
    in_cache, in_experts = np.meshgrid(*(np.linspace(0, min(rest, v), 80) for v in (cache, experts)))
    others = rest - in_cache - in_experts
    possible = (others >= -1e-12 * rest) & (others <= dense)
    times = np.maximum(step_s, (in_cache / depth + others) / rate) + share * in_experts / rate
    latency_s = float(second_tier_column("latency_s", ONE.second_tier)[0])
    if possible.any():
        assert float(found.time_s[0, 0]) <= times[possible].min() * (1 + 1e-6) + latency_s
    assert float(found.time_s[0, 0]) >= step_s


@settings(max_examples=40, deadline=None)
@given(sequences=st.floats(1, 400), more=st.floats(1.0, 3.0), share=st.floats(0.05, 1.0), step_s=st.floats(1e-3, 0.5))
def test_more_main_memory_or_a_faster_step_never_makes_a_step_longer(sequences, more, share, step_s):
    sizes = (9e10, 5e8, 6e10, sequences, share, 2)
    before = placed(*sizes, np.array([[step_s]]))
    larger = replace(ONE, memory_capacity_bytes=ONE.memory_capacity_bytes * more)
    assert placed(*sizes, np.array([[step_s]]), larger).time_s[0, 0] <= before.time_s[0, 0] * (1 + 1e-12)
    assert placed(*sizes, np.array([[step_s / more]])).time_s[0, 0] <= before.time_s[0, 0] * (1 + 1e-12)


def test_what_main_memory_holds_stays_there():
    roomy = replace(ONE, memory_capacity_bytes=1e12)
    found = placed(9e10, 5e8, 6e10, 10.0, 0.5, 1, np.array([[0.02]]), roomy)
    assert found.held_bytes[0, 0] == 0 and found.time_s[0, 0] == 0.02


def test_a_design_whose_memory_is_too_small_serves_with_a_second_tier_and_more_slowly_than_with_enough():
    small, roomy = (replace(ONE, memory_capacity_bytes=v, scale_up_bytes_per_s=3e11) for v in (25e9, 500e9))
    (without,) = evaluate(small, small, [PLAIN], TABLES)
    (with_tier,) = evaluate(small, small, [MIXTRAL], TABLES)
    (enough,) = evaluate(roomy, roomy, [MIXTRAL], TABLES)
    assert (without.violations["memory_capacity"] > 0).all()
    fits = with_tier.violations["memory_capacity"] <= 0
    assert fits.any()
    assert (with_tier.step_s[fits] > enough.step_s[fits]).all()
    assert (with_tier.energy_per_unit_j[fits] > enough.energy_per_unit_j[fits]).all()


def test_designs_without_a_tier_and_scenarios_that_use_none_are_as_before():
    none = replace(LOW, second_tier=SecondTier.NONE, memory_capacity_bytes=500e9)
    (first,) = evaluate(none, none, [PLAIN], TABLES)
    tiered = replace(none, second_tier=SecondTier.LPDDR5X_256GB)
    (second,) = evaluate(tiered, none, [PLAIN], TABLES)
    np.testing.assert_array_equal(first.units_per_s, second.units_per_s)
    alone = compiled("mixtral-8x7b", mixes=("bf16",), n_chips=1)
    offloaded = compiled("mixtral-8x7b", mixes=("bf16",), n_chips=1, offload=True)
    pair = [evaluate(none, none, [each], TABLES)[0] for each in (alone, offloaded)]
    assert same(*pair)


@pytest.mark.parametrize("name", [name for name, metric in metrics_of("llm_serving").items() if metric.bounded])
def test_corners_of_a_box_bound_designs_with_a_second_tier(name):
    metric = METRICS[name]
    (bound,), (point,) = BOUNDS, POINTS
    sign = 1.0 if metric.direction == "minimize" else -1.0
    limits, values = (sign * np.broadcast_to(metric.read(e), e.units_per_s.shape) for e in (bound, point))
    assert ((limits - values) <= 1e-9 * np.abs(values)).all()


BOUNDS = evaluate(HIGH, LOW, [MIXTRAL], TABLES)
POINTS = evaluate(INSIDE, INSIDE, [MIXTRAL], TABLES)


def test_designs_together_are_judged_as_each_alone():
    from models.hardware.design import take

    for i in (0, 7):
        (alone,) = evaluate(take(INSIDE, [i]), take(INSIDE, [i]), [MIXTRAL], FactorTables())
        np.testing.assert_allclose(POINTS[0].units_per_s[i], alone.units_per_s[0], rtol=1e-12)


def test_every_depth_of_a_pipeline_is_an_alternative_of_its_own():
    assert MIXTRAL.pipelines.depth.shape[1] == 1
    assert set(MIXTRAL.pipelines.depth[:, 0]) == {1, 2}


def test_engines_of_their_own_for_prompts_do_not_offload():
    with pytest.raises(ValueError, match="offload needs engines that do prompts and answers alike"):
        compiled("llama-3.1-8b", n_chips=4, scheduling="disaggregated", offload=True)


def test_reads_are_a_part_of_the_cost_of_movement():
    from models.evaluation import take_alternatives
    from models.hardware.figures import chip_figures
    from models.metrics.phases import phases_of
    from models.metrics.reshape_cost import moved_items, reshape_fraction

    chosen = np.full(LOW.n_designs, MIXTRAL.n_alternatives - 1)
    taken = take_alternatives(evaluate(LOW, LOW, [MIXTRAL], TABLES)[0], chosen)
    access = chip_figures(LOW).access
    phases = phases_of(MIXTRAL, taken, chosen, LOW, access, TABLES)
    rate = taken.n_chips / phases[0].n_chips / sum(phase.seconds_per_unit for phase in phases)
    np.testing.assert_allclose(rate, taken.units_per_s, rtol=1e-12)
    energy_j = sum(phase.runs_per_unit * phase.n_chips * phase.settled.energy_j for phase in phases)
    np.testing.assert_allclose(energy_j, taken.energy_per_unit_j, rtol=1e-12)
    items = moved_items(phases, LOW, access)
    fetched = [each for each in items if each.item == "second_tier_fetch"]
    assert len(fetched) == 1 and (fetched[0].bytes["second_tier"] > 0).all()
    assert (reshape_fraction(items, phases) <= 1).all()
    assert dataclasses.asdict(fetched[0])["paid"] == "step"
