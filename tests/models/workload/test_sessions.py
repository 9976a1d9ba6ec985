"""Conversations over a prefix cache, and speculative decoding."""

from __future__ import annotations

import numpy as np
import pytest

from models.workload.distribution import request_distribution, request_moments
from models.workload.sessions import (
    Sessions,
    SpeculativeDecoding,
    accepted_tokens_per_step,
    multi_turn,
    verified_tokens_per_step,
)


def test_single_turn_changes_nothing():
    turn = request_distribution([100.0, 300.0], [10.0, 20.0], cached_prefix_tokens=[0.0, 50.0])
    np.testing.assert_array_equal(multi_turn(turn, Sessions(1)).input_tokens, turn.input_tokens)


def test_full_hits_leave_each_turn_only_what_is_new():
    moments = request_moments(multi_turn(request_distribution(100.0, 50.0), Sessions(5, hit_fraction=1.0)))
    assert moments.prompt_tokens == pytest.approx(100)
    assert moments.input_tokens == pytest.approx(100 + 2 * 150)


def test_no_hits_compute_the_whole_history_again():
    moments = request_moments(multi_turn(request_distribution(100.0, 50.0), Sessions(5, hit_fraction=0.0)))
    assert moments.prompt_tokens == moments.input_tokens


def test_system_prompt_is_carried_once():
    turns = multi_turn(request_distribution(1100.0, 50.0, cached_prefix_tokens=1000.0), Sessions(3))
    assert turns.input_tokens.tolist() == [1100, 1250, 1400]
    assert turns.cached_prefix_tokens.tolist() == [1000, 1150, 1300]


@pytest.mark.parametrize(
    ("draft", "acceptance", "expected"), [(0, 0.9, 1.0), (4, 0.0, 1.0), (4, 1.0, 5.0), (2, 0.5, 1.75)]
)
def test_expected_tokens_per_step_is_the_geometric_sum(draft, acceptance, expected):
    speculation = SpeculativeDecoding(draft, acceptance)
    assert accepted_tokens_per_step(speculation) == pytest.approx(expected)
    assert verified_tokens_per_step(speculation) == draft + 1


def test_expected_tokens_per_step_is_the_mean_of_simulated_drafts():
    # 200,000 drafts: standard error below 0.004
    accepted = np.cumprod(np.random.default_rng(0).random((200_000, 5)) < 0.7, axis=1).sum(axis=1)
    assert accepted_tokens_per_step(SpeculativeDecoding(5, 0.7)) == pytest.approx(1 + accepted.mean(), abs=0.02)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Sessions(0), "turns_per_session must be at least 1"),
        (lambda: Sessions(2.5), "turns_per_session must be a whole number"),
        (lambda: Sessions(2, 1.1), "hit_fraction must be between 0 and 1"),
        (lambda: SpeculativeDecoding(-1), "draft_tokens must be at least 0"),
        (lambda: SpeculativeDecoding(3, 1.2), "acceptance must be between 0 and 1"),
    ],
)
def test_bad_sessions_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
