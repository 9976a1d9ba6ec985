"""Precision map, classes of modules, marginal price of quality, narrow accumulators."""

from __future__ import annotations

import numpy as np
import pytest

from models.precision.error import known_kappa, mix_kl_nats
from models.precision.explanation import (
    ADVICE,
    accumulator_squared_error,
    advice,
    budget_return,
    module_amplification,
    precision_map,
)
from models.precision.mix import RECIPES, recipe


@pytest.mark.parametrize("mix", RECIPES.values(), ids=RECIPES)
def test_map_of_a_mix_holds_its_whole_error_largest_share_first(mix) -> None:  # type: ignore[no-untyped-def]
    rows = precision_map(mix, 32)
    assert sum(row.kl_nats for row in rows) == pytest.approx(mix_kl_nats(mix, 32))
    assert sum(row.error_share_fraction for row in rows) == pytest.approx(1.0)
    assert [row.kl_nats for row in rows] == sorted((row.kl_nats for row in rows), reverse=True)


def test_map_states_formats_and_saved_bits() -> None:
    rows = {row.module: row for row in precision_map(recipe("nvfp4"), 32)}
    assert (rows["ffn_up"].stationary, rows["ffn_up"].moving) == ("nvfp4", "nvfp4")
    assert rows["ffn_up"].saved_fraction == pytest.approx(1 - 4.5 / 16)
    assert rows["output_head"].saved_fraction == 0
    assert rows["key"].stationary == "fp8_e4m3"


def test_residual_and_norm_amplify_most_and_values_least() -> None:
    amplification = module_amplification()
    assert amplification["residual"] == max(amplification.values())
    assert amplification["norm"] > amplification["attention_output"]
    assert min(amplification, key=lambda module: amplification[module]) in ("value", "embedding")


def test_four_classes_have_four_different_advices() -> None:
    assert len(set(ADVICE.values())) == 4
    given = advice([3.0, 3.0, 0.5, 0.5], [0.3, 0.0, 0.3, 0.0])
    assert given == [ADVICE[True, True], ADVICE[True, False], ADVICE[False, True], ADVICE[False, False]]
    with pytest.raises(ValueError, match="amplification must be zero or positive"):
        advice([-1.0], [0.1])


def test_more_budget_returns_a_share_between_nothing_and_all() -> None:
    cost, error = [np.array([[4.0, 1.0], [4.0, 4.0]])], [np.array([0.0, 1.0])]
    assert budget_return(cost, error, 0.95).tolist() == [0.75, 0.0]
    assert budget_return(cost, error, 0.5).tolist() == [0.0, 0.0]


def test_narrow_accumulator_agrees_with_measured_errors_within_20_percent() -> None:
    # e measured on the network of the profile (hidden size 576, down projection 1536; all linears at once):
    # 7 bits rounding every 32 products 0.0234, every 128 0.0132; 10 bits every 32 0.0029.
    reduction = 900.0  # mean of the reduction sizes, weighted by squared amplification
    error = np.sqrt(accumulator_squared_error([7, 7, 10], [reduction] * 3, [32, 128, 32]))
    assert error.tolist() == pytest.approx([0.0234, 0.0132, 0.0029], rel=0.2)


def test_known_networks_have_a_scale_and_others_keep_the_cautious_one() -> None:
    # Llama-3-8B q4_K_M: published KL 0.0313 nat.
    predicted = mix_kl_nats(recipe("q4_k_m"), 32, kappa=known_kappa("llama-3.1-8b"))
    assert predicted == pytest.approx(0.0313, rel=0.4)
    assert known_kappa("unheard-of") == 1.0
