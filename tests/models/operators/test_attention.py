"""Attention: FLOP and bytes, bounds, monotone in every resource, batch equals one at a time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.hardware.catalog import chip_designs
from models.hardware.design import concatenate, peak_flop_per_s, reference_design, replace, take
from models.operators.attention import (
    attention_bytes,
    attention_decode_time_s,
    attention_flop,
    attention_prefill_time_s,
    mean_keys,
)

RESOURCES = (
    "array_m", "n_cores", "clock_hz", "vector_lanes_per_core", "l2_bytes", "memory_bandwidth_bytes_per_s",
    "scratchpad_bytes_per_core", "tdp_w",
)  # fmt: skip


def prefill(designs, batch=2.0, new=1024.0, past=0.0, heads=32.0, kv_heads=8.0, dim=128.0, kv_bytes=2.0, **options):
    return attention_prefill_time_s(designs, batch, new, past, heads, kv_heads, dim, dim, kv_bytes, **options)


def decode(designs, batch=16.0, kv=2048.0, heads=32.0, kv_heads=8.0, dim=128.0, kv_bytes=2.0, elements=None):
    elements = 2.0 * np.asarray(kv_heads) * dim if elements is None else elements
    return attention_decode_time_s(designs, batch, kv, heads, kv_heads, dim, dim, kv_bytes, elements)


def latent_decode(designs, batch, kv):
    return attention_decode_time_s(designs, batch, kv, 128, 1, 576, 512, 2, 576)


def test_causal_flop_is_that_of_the_triangle_with_its_diagonal():
    flop = attention_flop(1, 4, mean_keys(4, 0), 1, 8, 8)
    pairs = 1 + 2 + 3 + 4
    assert flop[0] == pairs * 2 * (8 + 8)


def test_flop_is_conserved_when_a_prompt_is_cut_into_chunks():
    whole = attention_flop(1, 1000, mean_keys(1000, 0), 32, 128, 128)
    cut = sum(attention_flop(1, 250, mean_keys(250, 250 * i), 32, 128, 128) for i in range(4))
    assert cut == pytest.approx(whole, rel=1e-12)


@pytest.mark.parametrize(("new", "past", "window"), [(8, 0, 3), (5, 2, 4), (6, 10, 4)], ids=str)
def test_window_cuts_the_mean_keys_as_counting_does(new, past, window):
    counted = np.mean([min(past + i + 1, window) for i in range(new)])
    assert mean_keys(new, past, True, window)[0] == pytest.approx(counted)


def test_latent_cache_counts_once_for_all_heads():
    moved = attention_bytes(1, 1, 1000, 128, 576, 512, 2, 576)
    assert moved[0] == 1000 * 576 * 2 + 2 * 128 * (576 + 512)


def test_batched_designs_and_shapes_equal_one_at_a_time():
    designs = concatenate([reference_design(), chip_designs(["a100_sxm", "b200_sxm"])])
    new, kv = np.array([16.0, 700.0, 8192.0]), np.array([3.0, 700.0, 100000.0])
    together = prefill(designs, new=new), decode(designs, kv=kv)
    for d in range(3):
        for s in range(3):
            one = take(designs, [d])
            assert prefill(one, new=new[s])[0, 0] == pytest.approx(together[0][d, s], rel=1e-12)
            assert decode(one, kv=kv[s])[0, 0] == pytest.approx(together[1][d, s], rel=1e-12)


def test_sizes_may_differ_by_design():
    designs = take(reference_design(), [0, 0])
    batch = np.array([[1.0, 4.0], [8.0, 64.0]])
    assert decode(designs, batch=batch)[1, 1] == pytest.approx(decode(reference_design(), batch=64.0)[0, 0])


@settings(max_examples=25, deadline=None)
@given(
    resource=st.sampled_from(RESOURCES), factor=st.floats(1.05, 4.0), batch=st.floats(0.3, 300.0),
    tokens=st.floats(1.0, 50000.0), heads=st.sampled_from([1.0, 4.0, 8.0, 32.0]), ratio=st.floats(0.5, 4.0),
)  # fmt: skip
def test_more_of_any_resource_is_never_slower(resource, factor, batch, tokens, heads, ratio):
    design = reference_design()
    better = replace(design, **{resource: getattr(design, resource) * factor})
    for model in (
        lambda d: prefill(d, batch, tokens, 100.0, heads, 1.0, matrix_rate_ratio=ratio),
        lambda d: decode(d, batch, tokens, heads, 1.0),
        lambda d: latent_decode(d, batch, tokens),
    ):
        assert model(better)[0, 0] <= model(design)[0, 0] * (1 + 1e-12)


@settings(max_examples=25, deadline=None)
@given(
    batch=st.floats(1.0, 500.0), tokens=st.floats(1.0, 100000.0), kv_heads=st.sampled_from([1.0, 8.0, 32.0]),
    chip=st.sampled_from(["a100_sxm", "h100_sxm", "b200_sxm", "l40s", "mi300x"]),
)  # fmt: skip
def test_time_is_never_below_compute_and_compulsory_traffic(batch, tokens, kv_heads, chip):
    design = chip_designs([chip])
    peak, bandwidth = peak_flop_per_s(design)[0], design.memory_bandwidth_bytes_per_s[0]
    for time_s, queries, keys in (
        (prefill(design, batch, tokens, kv_heads=kv_heads)[0, 0], tokens, mean_keys(tokens, 0.0)),
        (decode(design, batch, tokens, kv_heads=kv_heads)[0, 0], 1.0, tokens),
    ):
        flop = attention_flop(batch, queries, keys, 32.0, 128.0, 128.0)[0]
        moved = attention_bytes(batch, queries, tokens, 32.0, 128.0, 128.0, 2.0, 2 * kv_heads * 128.0)[0]
        assert time_s >= max(flop / peak, moved / bandwidth)


def test_fewer_than_one_prompt_costs_its_chance():
    assert prefill(reference_design(), batch=0.25)[0, 0] == pytest.approx(0.25 * prefill(reference_design(), 1.0)[0, 0])


def test_latent_decode_is_compute_bound_at_large_batch_and_grouped_decode_is_not():
    # H800 runs MLA at 0.54 of its peak and 0.66 of its bandwidth at batch 16 and 64k tokens (InferSim bench data)
    chip = chip_designs(["h100_sxm"])
    wide = replace(chip, array_k=chip.array_k * 2)
    latent = latent_decode(chip, 64, 16384)[0, 0] / latent_decode(wide, 64, 16384)[0, 0]
    grouped = decode(chip, 64, 16384)[0, 0] / decode(wide, 64, 16384)[0, 0]
    assert latent > 1.15
    assert grouped < 1.1


def test_mla_decode_of_h800_lies_within_a_quarter_of_infersim():
    # alibaba/InferSim bench_data, FlashMLA on H800: batch 64, 16384 tokens, 128 heads, bf16: 619 us
    predicted = latent_decode(chip_designs(["h800_sxm"]), 64, 16384)[0, 0]
    assert predicted == pytest.approx(619e-6, rel=0.25)


def test_prefill_of_h100_lies_within_a_quarter_of_flash_attention_3():
    # FlashAttention-3 paper, ablation table: batch 4, 8448 tokens, 16 heads of 128, not causal: 661 TFLOP/s
    time_s = prefill(chip_designs(["h100_sxm"]), 4, 8448, heads=16, kv_heads=16, causal=False)[0, 0]
    flop = attention_flop(4, 8448, 8448, 16, 128, 128)[0]
    assert flop / time_s == pytest.approx(661e12, rel=0.25)
