"""Expert MLPs: distinct experts, load, bounds, monotone, a golden row."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.hardware.catalog import chip_designs
from models.hardware.design import peak_flop_per_s, reference_design, replace, take
from models.operators.moe import (
    expected_distinct_experts,
    expert_mlp_time_s,
    grouped_gemm_time_s,
    load_imbalance_ratio,
    local_expert_mlp_time_s,
)

RESOURCES = ("array_m", "n_cores", "clock_hz", "memory_bandwidth_bytes_per_s", "l2_bytes", "vector_lanes_per_core")


def test_one_token_touches_exactly_its_own_experts():
    assert expected_distinct_experts(256, 8, 1)[0] == pytest.approx(8.0)


def test_uniform_routing_matches_a_simulation():
    rng = np.random.default_rng(0)
    drawn = [len({e for _ in range(32) for e in rng.choice(64, 4, replace=False)}) for _ in range(200)]
    # standard error of 200 draws is below 0.2 experts: six of them stay under 3 %
    assert expected_distinct_experts(64, 4, 32)[0] == pytest.approx(np.mean(drawn), rel=0.03)


@pytest.mark.parametrize("zipf", [0.6, 1.2, 2.0])
def test_skewed_routing_matches_a_simulation_within_8_percent(zipf):
    rng = np.random.default_rng(0)
    share = np.arange(1, 129.0) ** -zipf
    share /= share.sum()
    drawn = [len({e for _ in range(32) for e in rng.choice(128, 8, replace=False, p=share)}) for _ in range(30)]
    # standard error of 30 draws is below 0.7 of 42 experts, so 8 % is five of them; the intervals of rank cost 5 %
    assert expected_distinct_experts(128, 8, 32, zipf)[0] == pytest.approx(np.mean(drawn), rel=0.08)


def test_busiest_rank_carries_the_most_popular_expert():
    assert load_imbalance_ratio(256, 8, 32, 0.0)[0] == 1.0
    mild, strong, alone = (load_imbalance_ratio(256, 8, n, z)[0] for n, z in ((32, 0.5), (32, 1.0), (256, 1.0)))
    assert 1.0 < mild < strong < alone <= 256 / 8


@settings(max_examples=25, deadline=None)
@given(
    resource=st.sampled_from(RESOURCES), factor=st.floats(1.05, 4.0), tokens=st.floats(1.0, 1e5),
    ranks=st.sampled_from([1.0, 8.0, 64.0]), zipf=st.floats(0.0, 1.5),
)  # fmt: skip
def test_more_of_any_resource_is_never_slower(resource, factor, tokens, ranks, zipf):
    design = reference_design()
    better = replace(design, **{resource: getattr(design, resource) * factor})
    before, after = (
        expert_mlp_time_s(d, tokens, 4096, 1536, 128, 8, expert_parallel=ranks, zipf_exponent=zipf)[0, 0]
        for d in (design, better)
    )
    assert after <= before * (1 + 1e-12)


@settings(max_examples=25, deadline=None)
@given(active=st.floats(1.0, 256.0), rows=st.floats(1.0, 1e6))
def test_grouped_gemm_is_never_below_compute_and_weights(active, rows):
    design = reference_design()
    time_s = grouped_gemm_time_s(design, active, rows, 2048, 7168)[0, 0]
    assert time_s >= 2 * rows * 2048 * 7168 / peak_flop_per_s(design)[0]
    assert time_s >= active * 2048 * 7168 * 2 / design.memory_bandwidth_bytes_per_s[0]


def test_batched_designs_and_rates_equal_one_at_a_time():
    designs = take(reference_design(), [0, 0])
    tokens, rates = np.array([8.0, 512.0, 20000.0]), np.array([[1.0, 1.0, 1.0], [1.0, 2.0, 2.0]])
    together = expert_mlp_time_s(designs, tokens, 4096, 1536, 128, 8, matrix_rate_ratio=rates)
    alone = expert_mlp_time_s(reference_design(), 512, 4096, 1536, 128, 8, matrix_rate_ratio=2.0)
    assert together.shape == (2, 3)
    assert together[1, 1] == pytest.approx(alone[0, 0], rel=1e-12)


def test_a_gate_costs_a_third_of_the_weights():
    shared = {"local_experts": 64, "routed_choices": 64}
    gated, plain = (
        local_expert_mlp_time_s(reference_design(), 64, 64, 4096, 4096, **shared, gated=gate, start_s=0.0)[0, 0]
        for gate in (True, False)
    )
    assert gated / plain == pytest.approx(1.5, rel=0.05)


def test_balanced_layer_of_h100_lies_within_30_percent_of_trtllm():
    # ai-dynamo/aiconfigurator moe_perf, TensorRT-LLM 1.3.0rc20, H100, bf16, balanced: hidden 4096, inter 1536,
    # 128 experts, top 8, 2048 tokens, tp 1, ep 1: 2092 us; 16384 rows, all experts active.
    # Nine of ten rows of the fit lie within 30 %
    time_s = local_expert_mlp_time_s(chip_designs(["h100_sxm"]), 128, 16384, 4096, 1536, 128, 16384)[0, 0]
    assert time_s == pytest.approx(2092e-6, rel=0.3)
