"""What fits in memory: weights and cache of one chip, and the batch that they leave."""

import numpy as np
import pytest

from models.architectures import load_network, lower
from models.architectures.plans import ParallelPlan
from models.hardware.design import concatenate, reference_design, replace
from models.precision.mix import RECIPES
from models.serving.capacity import (
    largest_batch,
    memory_excess_fraction,
    plan_memory_bytes,
    plans_that_fit,
    sequence_bytes_per_chip,
    stage_weight_bytes,
    usable_memory_bytes,
    weight_bytes_per_chip,
)
from models.serving.scenario import System
from models.tables import constants
from tests.models.random_designs import random_designs
from tests.models.serving_scenarios import scenario

BF16, W4A16, KV8 = RECIPES["bf16"], RECIPES["w4a16"], RECIPES["fp8_kv8"]


def network(name="llama-3.1-8b"):
    return lower(load_network(name))


def test_weights_of_llama_8b_in_bf16_are_its_published_parameters_twice():
    # 8.03B parameters: Hugging Face safetensors metadata of Llama-3.1-8B
    weights = weight_bytes_per_chip(network(), [1], [BF16])
    assert weights[0, 0] == pytest.approx(2 * 8.030e9, rel=0.001)


def test_weights_of_four_bits_take_about_a_third_with_embedding_and_head_kept_wide():
    weights = weight_bytes_per_chip(network(), [1], [BF16, W4A16])
    # 6.98B of 8.03B parameters are inside the layers and shrink from 16 to about 4.25 bits
    expected = (2 * 1.05e9 + 6.98e9 * 4.25 / 8) / (2 * 8.03e9)
    assert weights[0, 1] / weights[0, 0] == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "mixtral-8x7b", "gemma-3-12b"])
def test_chips_share_weights_nearly_evenly(name):
    weights = weight_bytes_per_chip(network(name), [1, 2, 4], [BF16])[:, 0]
    assert weights[1] == pytest.approx(weights[0] / 2, rel=0.1)
    assert weights[2] == pytest.approx(weights[0] / 4, rel=0.25)
    assert weights[1] >= weights[0] / 2 * (1 - 1e-9)


def test_cache_of_llama_8b_is_128_kib_a_token_in_bf16():
    # 2 (key, value) x 32 layers x 8 heads x 128 x 2 bytes
    cache = sequence_bytes_per_chip(network(), [1, 2, 8], [BF16, KV8], 1000.0)
    assert cache[0, 0] == 1000 * 128 * 1024
    np.testing.assert_allclose(cache[:, 0], cache[0, 0] / np.array([1, 2, 8]))
    np.testing.assert_allclose(cache[:, 1], cache[:, 0] / 2, rtol=0.002)  # fp8 keeps scales beside its values


def test_cache_of_multi_head_latent_attention_is_not_cut_by_the_degree():
    # DeepSeek-V3: 512 + 64 elements a token and layer, 61 layers, the same on every chip
    cache = sequence_bytes_per_chip(network("deepseek-v3"), [1, 8], [BF16], 100.0)[:, 0]
    np.testing.assert_allclose(cache, 100 * 576 * 61 * 2)


def test_a_window_bounds_the_cache():
    windowed = network("gemma-3-12b")
    short, long = (sequence_bytes_per_chip(windowed, [1], [BF16], tokens)[0, 0] for tokens in (1e3, 1e5))
    assert long < 100 * short * 0.35  # five of six layers look back 1024 tokens


def test_largest_batch_is_free_memory_over_a_sequence():
    design = replace(reference_design(), memory_capacity_bytes=80.0 * 2**30)
    batch = largest_batch(design, np.array([16e9, 0.0]), np.array([1e8, 1e8]))[0]
    c = constants("serving")
    usable = 80 * 2**30 * c["addressable_memory_fraction"] * c["memory_utilization_fraction"]
    free = usable - c["activation_reserve_bytes"]
    np.testing.assert_allclose(batch, np.array([(free - 16e9) / 1e8, free / 1e8]) * c["kv_pool_fraction"])
    assert 0.85 < usable / (80 * 2**30) < 1.0


def test_a_network_that_does_not_fit_leaves_no_sequence():
    small = replace(reference_design(), memory_capacity_bytes=8.0 * 2**30)
    assert largest_batch(small, np.array([16e9]), np.array([1e8]))[0, 0] < 0


def test_more_memory_never_holds_less():
    designs = concatenate(
        [replace(reference_design(), memory_capacity_bytes=gib * 2.0**30) for gib in (1, 16, 17, 64, 512)]
    )
    batch = largest_batch(designs, np.array([1e9, 30e9]), np.array([1e7, 1e9]))
    assert (np.diff(batch, axis=0) > 0).all()
    assert (np.diff(usable_memory_bytes(designs)) > 0).all()


@pytest.mark.parametrize(
    ("memory_gib", "expected"),
    [
        (None, {1: [1, 2, 4], 2: [1, 2], 4: [1]}),  # nothing is known: all
        (24, {1: [1, 2, 4], 2: [1, 2], 4: [1]}),  # 16 GB of weights fit one chip
        (16, {1: [2, 4], 2: [1, 2], 4: [1]}),  # they fit 16 GiB, but not beside activations
        (7.5, {1: [4], 2: [2], 4: [1]}),
        (2, {1: [1, 2, 4], 2: [1, 2], 4: [1]}),  # nothing fits: all, so that the excess shows
    ],
)
def test_only_plans_that_hold_a_sequence_are_tried(memory_gib, expected):
    memory_bytes = None if memory_gib is None else memory_gib * 2.0**30
    asked = scenario(mixes=("bf16",), system=System(4, 4), largest_memory_bytes=memory_bytes)
    assert {plan.tensor_parallel: depths for plan, depths in plans_that_fit(asked).items()} == expected


def test_a_stage_holds_its_layers_and_the_larger_end_of_the_network():
    whole, half = (stage_weight_bytes(network(), ParallelPlan(pipeline_parallel=p), [BF16])[0] for p in (1, 2))
    end = 2 * 128256 * 4096.0  # embedding and output head of Llama-3.1-8B are alike
    assert half == pytest.approx((whole - 2 * end) / 2 + end)


def test_stages_of_unequal_length_count_the_longest():
    # 61 layers of DeepSeek-V3 on 4 stages: 16 on the fullest
    whole, quarter = (
        stage_weight_bytes(network("deepseek-v3"), ParallelPlan(pipeline_parallel=p), [BF16])[0] for p in (1, 4)
    )
    end = 2 * 129280 * 7168.0
    assert quarter == pytest.approx((whole - 2 * end) * 16 / 61 + end)


def test_groups_with_tokens_of_their_own_hold_all_but_the_experts_again():
    # Mixtral 8x7B: 8 experts of 3 x 4096 x 14336 in 32 layers
    experts = 2 * 8 * 32 * 3 * 4096 * 14336.0
    weights = [stage_weight_bytes(network("mixtral-8x7b"), ParallelPlan(1, d), [BF16])[0] for d in (1, 2, 8)]
    np.testing.assert_allclose(np.diff(weights), [-experts / 2, -experts * 3 / 8])


def test_every_stage_keeps_its_layers_of_all_micro_batches():
    one, two = (plan_memory_bytes(network(), ParallelPlan(pipeline_parallel=p), [BF16], 1000.0)[1] for p in (1, 2))
    np.testing.assert_allclose(one, two)  # half of the layers of twice as many sequences


def test_memory_is_exceeded_exactly_where_the_batch_is_above_the_largest():
    designs = random_designs(1, 40)
    weights, sequence = np.array([1e9, 16e9, 16e9, 70e9]), np.array([1e8, 0.0, 3e9, 1e8])
    held = largest_batch(designs, weights, sequence)
    for batch in (1.0, 8.0, 100.0):
        excess = memory_excess_fraction(designs, weights, sequence, np.full(4, batch))
        np.testing.assert_array_equal(excess <= 0, held >= batch)
    assert (held >= 8).any() and (held < 8).any()


def test_the_excess_is_what_is_needed_over_what_there_is():
    # 810 GB of weights on one chip of 80 GiB: some ten times its memory, whatever the batch
    design = replace(reference_design(), memory_capacity_bytes=80.0 * 2**30)
    excess = memory_excess_fraction(design, np.array([810e9]), np.array([1e8]), np.array([1.0]))
    assert excess[0, 0] == pytest.approx(812e9 / usable_memory_bytes(design)[0] - 1.0, rel=1e-3)
