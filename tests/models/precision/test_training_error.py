"""What training formats do to gradients and optimizer state."""

import numpy as np
import pytest

from models.precision.formats import fake_quantise
from models.precision.mix import RECIPES, TrainingFormats, precision_mix
from models.precision.training_error import require_trainable, state_rules, weight_gradient_error

DEEPSEEK = RECIPES["deepseek_v3_training"]
STATE = {
    "gradient": "fp8_tile", "gradient_storage": "fp32", "master_weight": "fp32",
    "first_moment": "bf16", "second_moment": "bf16",
}  # fmt: skip


def training_mix(activation="fp8_tile", **changes):
    """A recipe like DeepSeek-V3's with other formats."""
    return precision_mix(
        "tried", weights={"linears": "fp8_tile"}, activations={"linears": activation},
        training=TrainingFormats(**(STATE | changes)),
    )  # fmt: skip


@pytest.mark.parametrize("number", ["fp8_tile", "mxfp8", "int8", "nvfp4"])
def test_error_of_a_weight_gradient_is_that_of_a_product_of_rounded_operands(number):
    # dW = dY^T X of Gaussian operands; 64 x 64 sums of 4096 tokens scatter by about 1 %, columns are the block axis
    rng = np.random.default_rng(0)
    gradient, inputs = rng.normal(size=(64, 4096)), rng.normal(size=(64, 4096))
    exact = gradient @ inputs.T
    measured = np.linalg.norm(fake_quantise(gradient, number) @ fake_quantise(inputs, number).T - exact)
    predicted = weight_gradient_error(training_mix(number, gradient=number), "ffn_up")
    assert predicted == pytest.approx(measured / np.linalg.norm(exact), rel=0.08)


@pytest.mark.parametrize("microbatches", [8, 64])
def test_a_narrow_gradient_store_adds_a_rounding_for_each_microbatch(microbatches):
    # running sums grow, so late roundings weigh more and early ones less: their mean square is half of the last
    rng = np.random.default_rng(1)
    parts = rng.normal(size=(microbatches, 20_000)) + rng.normal(size=20_000)
    total = np.zeros(20_000)
    for part in parts:
        total = fake_quantise(total + part, "bf16")
    exact = parts.sum(axis=0)
    measured = np.linalg.norm(total - exact) / np.linalg.norm(exact)
    wide = weight_gradient_error(training_mix(), "ffn_up", reductions=microbatches)
    narrow = weight_gradient_error(training_mix(gradient_storage="bf16"), "ffn_up", reductions=microbatches)
    assert 0.5 < measured / np.sqrt(narrow**2 - wide**2) < 1.0


def test_recipe_of_deepseek_v3_is_noisier_than_bf16_and_both_can_be_trained():
    errors = [weight_gradient_error(RECIPES[name], "ffn_up") for name in ("bf16_training", "deepseek_v3_training")]
    assert 0.002 < errors[0] < 0.003 < 0.03 < errors[1] < 0.04
    for name in ("bf16_training", "deepseek_v3_training"):
        require_trainable(RECIPES[name])


@pytest.mark.parametrize("number", ["bf16", "fp16", "fp32"])
def test_an_update_at_the_stated_limit_is_swallowed_and_one_four_times_as_large_is_not(number):
    rule = state_rules(TrainingFormats(**(STATE | {"master_weight": number})))[0]
    weight = 1.9  # near the top of a binade, where the spacing is smallest against the value
    below, above = (weight * (1 + share * rule.smallest_kept_ratio) for share in (0.5, 4.0))
    start = fake_quantise([weight], number)[0]
    assert fake_quantise([start * below / weight], number)[0] == start
    assert fake_quantise([start * above / weight], number)[0] > start


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"master_weight": "bf16"}, "master_weight format must keep changes of 0.0001, bf16 loses those below 0.00195"),
        ({"second_moment": "nvfp4"}, "second_moment format must keep changes of 0.05"),
        ({"gradient": "fp8_e4m3"}, "gradient format below 16 bits and 5 exponent bits must have a scale for each"),
    ],
    ids=["weights", "moments", "gradients"],
)  # fmt: skip
def test_formats_that_lose_what_does_not_average_out_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        require_trainable(training_mix(**changes))


def test_gradients_of_e5m2_need_one_scale_only():
    require_trainable(training_mix(gradient="fp8_e5m2"))


def test_a_mix_for_serving_has_no_error_of_training():
    with pytest.raises(ValueError, match="precision mix 'w4a16' must state formats of gradients and moments"):
        weight_gradient_error(RECIPES["w4a16"], "ffn_up")
    with pytest.raises(ValueError, match="must state formats of gradients and moments to train with"):
        require_trainable(RECIPES["w4a16"])
