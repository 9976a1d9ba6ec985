import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.architectures.moe import (
    busiest_rank_load_ratio,
    dispatch_bytes_per_token,
    expert_chances,
    touched_experts,
)


def draw(rng, n_experts, top_k, n_tokens, zipf_exponent, trials):
    """Which experts each token meets when it draws them one after the other without replacement: Gumbel top-k."""
    logits = -zipf_exponent * np.log(np.arange(1, n_experts + 1))
    keys = logits + rng.gumbel(size=(trials, n_tokens, n_experts))
    chosen = np.argpartition(-keys, top_k - 1, axis=-1)[..., :top_k]
    met = np.zeros(keys.shape, dtype=bool)
    np.put_along_axis(met, chosen, True, axis=-1)
    return met


def test_equal_popularity_has_the_closed_form():
    tokens = np.array([0.0, 1.0, 7.0, 300.0])
    assert touched_experts(256, 8, tokens) == pytest.approx(256 * (1 - (1 - 8 / 256) ** tokens))


@pytest.mark.parametrize("zipf_exponent", [0.0, 0.5, 1.0, 1.5])
@pytest.mark.parametrize(("n_experts", "top_k"), [(8, 2), (64, 6), (128, 8)])
def test_touched_experts_agree_with_drawing_without_replacement(n_experts, top_k, zipf_exponent):
    # 400 batches: the standard error of the mean is below 0.5 %; exponential order sampling explains the rest.
    met = draw(np.random.default_rng(1), n_experts, top_k, 24, zipf_exponent, 400)
    drawn = met.any(axis=1).sum(axis=-1).mean()
    assert touched_experts(n_experts, top_k, [24], zipf_exponent)[0] == pytest.approx(drawn, rel=0.03)


@pytest.mark.parametrize("zipf_exponent", [0.0, 1.0])
@pytest.mark.parametrize("n_tokens", [16, 256])
def test_the_busiest_rank_agrees_with_drawing_experts_and_their_places(n_tokens, zipf_exponent):
    # Mean over 300 placements; the normal approximation of the maximum is good to about a tenth.
    rng = np.random.default_rng(2)
    met = draw(rng, 64, 4, n_tokens, zipf_exponent, 300).sum(axis=1)
    placed = np.stack([load[rng.permutation(64)] for load in met]).reshape(300, 8, 8).sum(axis=-1)
    drawn = placed.max(axis=-1).mean() / placed.mean()
    assert busiest_rank_load_ratio(64, 4, [n_tokens], 8, zipf_exponent)[0] == pytest.approx(drawn, rel=0.12)


def test_dispatch_agrees_with_drawing_experts():
    met = draw(np.random.default_rng(3), 64, 6, 1, 0.0, 4000).reshape(4000, 8, 8)
    reached = met.any(axis=-1)[:, 1:].sum(axis=-1).mean()
    # 4000 draws of at most 7: standard error below 0.5 %.
    assert dispatch_bytes_per_token(100, 64, 6, [8], 8)[0] == pytest.approx(100 * reached, rel=0.015)


@settings(max_examples=40, deadline=None)
@given(n_experts=st.integers(1, 256), share=st.floats(0.01, 1), zipf_exponent=st.floats(0, 2))
def test_chances_are_chances_that_sum_to_the_experts_of_a_token(n_experts, share, zipf_exponent):
    top_k = max(1, int(share * n_experts))
    chances = expert_chances(n_experts, top_k, zipf_exponent)
    assert chances.sum() == pytest.approx(top_k)
    assert ((chances > 0) & (chances <= 1 + 1e-12)).all()
    assert (np.diff(chances) <= 1e-12).all()


@settings(max_examples=30, deadline=None)
@given(zipf_exponent=st.floats(0, 2), more=st.floats(0, 1))
def test_more_tokens_touch_more_and_more_skew_touches_fewer(zipf_exponent, more):
    tokens = np.array([1.0, 2.0, 8.0, 64.0, 4096.0])
    touched = touched_experts(64, 4, tokens, zipf_exponent)
    assert (np.diff(touched) >= -1e-9).all()
    assert touched[0] == pytest.approx(4)
    assert (touched_experts(64, 4, tokens, zipf_exponent + more) <= touched + 1e-6).all()


def test_a_batch_of_sizes_equals_one_at_a_time():
    tokens = np.array([1.0, 5.0, 90.0])
    together = busiest_rank_load_ratio(64, 4, tokens, 8, 0.7)
    assert together.tolist() == [busiest_rank_load_ratio(64, 4, [t], 8, 0.7)[0] for t in tokens]


def test_load_evens_out_with_tokens_when_all_experts_are_alike():
    ratio = busiest_rank_load_ratio(256, 8, [16, 256, 65536], 32)
    assert ratio[0] > ratio[1] > ratio[2]
    assert ratio[2] == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((4, 5), "top_k must be at most n_experts \\(4\\), got 5"),
        ((0, 1), "n_experts must be at least 1"),
        ((4, 0), "top_k must be positive"),
        ((4, 1, -1.0), "zipf_exponent must be zero or positive"),
        ((4, 1, float("nan")), "zipf_exponent must be zero or positive"),
    ],
    ids=str,
)
def test_bad_routing_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        expert_chances(*arguments)


def test_more_ranks_than_experts_are_refused():
    with pytest.raises(ValueError, match=r"n_ranks must be at most n_experts \(8\), got 16"):
        busiest_rank_load_ratio(8, 2, [4], 16)
