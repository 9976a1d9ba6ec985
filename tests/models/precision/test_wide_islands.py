"""Modules that stay wide under the budget of the DeepSeek-V3 recipe, on several networks and arrays, and why."""

import dataclasses

import numpy as np
import pytest

from models.architectures.config import load_network
from models.architectures.lowering import lower
from models.precision.budget import budget_nats, mixes_under_budget
from models.precision.error import error_bill_nats, error_terms, known_kappa
from models.precision.formats import number_format
from models.precision.mix import RECIPES, precision_mix
from models.precision.profile import default_profile

NETWORKS = ("llama-3.1-8b", "llama-3.1-70b", "qwen2.5-72b", "gemma-2-9b", "mixtral-8x7b", "deepseek-v3", "gpt-oss-120b")
ARRAYS = [("bf16",), ("bf16", "int8"), ("bf16", "fp8"), ("bf16", "fp8", "int8"), ("bf16", "fp8", "fp4")]
PROFILE = default_profile()
BIG = {
    "ffn_up": ("w_up", "ffn_input"), "expert_up": ("w_up", "ffn_input"),
    "ffn_down": ("w_down", "down_input"), "expert_down": ("w_down", "down_input"),
    "attention_output": ("w_o", "o_input"),
}  # fmt: skip
HEAD = ("head", "head_input")
WIDE = ("norm", "residual", "scores")


def mixes(name, native, profile=PROFILE):
    """Network and mixes found under the budget of the DeepSeek-V3 recipe, itself judged by the same profile."""
    network, kappa = lower(load_network(name)), known_kappa(name)
    budget = budget_nats(network, no_worse_than="deepseek_v3", kappa=kappa, profile=profile)
    return network, mixes_under_budget(budget, network, native, kappa=kappa, profile=profile)


def rounding(mix, module, sites):
    """Relative rounding error of both operands of a product [1]."""
    formats = mix.weight_format[module], mix.activation_format[module]
    return float(np.hypot(*[PROFILE.eps(site, number_format(f)) for site, f in zip(sites, formats, strict=True)]))


@pytest.mark.parametrize("native", ARRAYS, ids="+".join)
@pytest.mark.parametrize("name", NETWORKS)
def test_norm_residual_softmax_and_head_stay_finer_than_big_products_coarser_than_int8(name, native):
    network, found = mixes(name, native)
    big = [module for module in BIG if module in {term.module for term in error_terms(network)}]
    eight_bits = precision_mix("int8", weights=dict.fromkeys(big, "int8"), activations=dict.fromkeys(big, "int8"))
    for mix in found:
        assert {mix.vector_format[module] for module in WIDE} == {"bf16"}
        assert {mix.weight_format["output_head"], mix.activation_format["output_head"]} <= {"bf16", "int8"}
        coarsest = max(rounding(mix, module, BIG[module]) for module in big)
        if coarsest > 1.001 * max(rounding(eight_bits, module, BIG[module]) for module in big):
            assert rounding(mix, "output_head", HEAD) < coarsest


@pytest.mark.parametrize("name", NETWORKS)
def test_head_in_fp8_would_take_more_than_a_fifth_of_the_budget_and_eight_times_what_int8_weights_take(name):
    network = lower(load_network(name))
    budget = budget_nats(network, no_worse_than="deepseek_v3")

    def share(number):
        mix = precision_mix("head", weights={"output_head": number})
        return error_bill_nats(mix, network)["output_head", "head"] / budget

    assert share("fp8_e4m3") > max(0.2, 8 * share("int8"))
    assert share("int8") < 0.06


def made_tolerant(sites):
    """The profile of a network that hardly reacts to rounding at some sites."""
    known = {site: {} if site in sites else row for site, row in PROFILE.error_at.items()}
    scaled = [
        {site: value / 50 if site in sites else value for site, value in table.items()}
        for table in (PROFILE.float_amplification, PROFILE.int_amplification)
    ]
    return dataclasses.replace(PROFILE, error_at=known, float_amplification=scaled[0], int_amplification=scaled[1])


@pytest.mark.parametrize("site", ["norm", "residual"])
def test_vector_modules_are_narrowed_where_the_numbers_allow_it(site):
    _, found = mixes("llama-3.1-8b", ("bf16", "fp8"), made_tolerant((site,)))
    assert any(mix.vector_format[site] != "bf16" for mix in found)


def test_the_head_is_narrowed_to_fp8_where_the_numbers_allow_it():
    _, found = mixes("llama-3.1-8b", ("bf16", "fp8"), made_tolerant(HEAD))
    assert any(number_format(mix.weight_format["output_head"]).rate_class == "fp8" for mix in found)


def test_the_gate_stays_wide_as_a_constraint_that_no_number_moves():
    assert all(mix.weight_format["moe_gate"] == "bf16" for mix in RECIPES.values())
    with pytest.raises(ValueError, match="moe_gate weight format must be at least bf16"):
        precision_mix("bad", weights={"moe_gate": "fp8_tile"})
