"""Steps of a network: work conserved, and equal to what the published sizes say."""

import numpy as np
import pytest

from models.architectures import load_network, lower
from models.architectures.plans import ParallelPlan
from models.hardware.design import reference_design, replace
from models.operators.factor_tables import FactorTables
from models.operators.step import run_step
from models.precision.mix import RECIPES
from models.serving.programs import StepLoad, compile_step
from models.serving.scenario import alternatives

DESIGN = replace(reference_design(), fp8_rate_ratio=2.0, memory_capacity_bytes=1e12)
MIXES = (RECIPES["bf16"], RECIPES["fp8_kv8"])


def load(choices, *, decoding=0.0, context=0.0, prompts=0.0, prompt_tokens=0.0):
    """The same tokens in every alternative."""
    full = np.ones(len(choices))
    tokens = decoding + prompts * prompt_tokens
    return StepLoad(
        *[value * full for value in (tokens, decoding + prompts, decoding, context, prompts, prompt_tokens)]
    )


def activity(name="llama-3.1-8b", degrees=(1,), mixes=MIXES[:1], *, design=DESIGN, per_node=None, **tokens):
    network, choices = lower(load_network(name)), alternatives([ParallelPlan(t) for t in degrees], len(mixes), [1])
    program = compile_step(network, mixes, choices, load(choices, **tokens), overhead_s=0.0, n_chips_per_node=per_node)
    return run_step(program, design, FactorTables(), keep_terms=True)


def flop(found):
    return 2.0 * sum(found.macs.values())[0]


def flop_of(found, part):
    return 2.0 * sum(sum(t.macs.values()).sum() for name, t in found.terms.items() if part in name)


class TestLlama8b:
    """32 layers of width 4096, 32 query and 8 key heads of 128, MLP of 14336, vocabulary 128256."""

    MATRICES = 32 * (4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336)
    HEAD = 4096 * 128256

    def test_a_decode_step_is_twice_the_active_parameters_per_token_and_attention(self):
        found = activity(decoding=64.0, context=1000.0)
        attention = 64 * 1000 * 32 * 32 * (128 + 128) * 2
        assert flop(found)[0] == pytest.approx(2 * 64 * (self.MATRICES + self.HEAD) + attention, rel=0.01)
        # the published count includes the embedding table, which is looked up and not multiplied
        assert pytest.approx(8.03e9 - self.HEAD, rel=0.001) == self.MATRICES + self.HEAD

    def test_a_prompt_is_twice_the_matrices_per_token_and_causal_attention(self):
        found = activity(prompts=1.0, prompt_tokens=2000.0)
        attention = 2000 * 2001 / 2 * 32 * 32 * (128 + 128) * 2
        expected = 2 * 2000 * self.MATRICES + 2 * self.HEAD + attention
        assert flop(found)[0] == pytest.approx(expected, rel=0.01)

    def test_every_decode_step_reads_all_weights_and_the_cache(self):
        small = replace(DESIGN, l2_bytes=2.0**20)
        found = activity(decoding=16.0, context=3000.0, design=small)
        compulsory = 2 * (self.MATRICES + self.HEAD) + 16 * 3000 * 131072
        assert found.dram_bytes[0, 0] >= compulsory
        assert found.dram_bytes[0, 0] == pytest.approx(compulsory, rel=0.05)

    def test_two_all_reduces_a_layer_cross_the_links(self):
        found = activity(degrees=(1, 2, 4), decoding=32.0, context=100.0)
        message = 32 * 4096 * 2
        # a ring sends 2 (p - 1) / p of the message from each chip
        expected = [0.0, 64 * message * 1.0, 64 * message * 1.5]
        np.testing.assert_allclose(found.link_bytes[0], expected)


@pytest.mark.parametrize(
    ("name", "active"),
    [
        ("mixtral-8x7b", 12.9e9),  # Mistral AI announcement, embedding included
        ("deepseek-v3", 37e9),  # technical report, arXiv 2412.19437
    ],
)
def test_routed_networks_multiply_with_their_active_parameters_alone(name, active):
    found = activity(name, prompts=1.0, prompt_tokens=512.0)
    matrices = flop(found)[0] - flop_of(found, "attention_prefill") + 2 * 511 * _head(name)
    assert matrices / (2 * 512) == pytest.approx(active, rel=0.03)


def _head(name):
    network = lower(load_network(name))
    return network.hidden_size * next(o.n_out for o in network.linears if o.module == "output_head")


@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen3-30b-a3b", "gemma-2-9b"])
def test_splitting_over_chips_conserves_multiplications(name):
    found = activity(name, degrees=(1, 2, 4), decoding=16.0, context=500.0, prompts=2.0, prompt_tokens=300.0)
    np.testing.assert_allclose(flop(found) * np.array([1, 2, 4]), flop(found)[0], rtol=0.02)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "mixtral-8x7b", "deepseek-v3", "gemma-3-12b", "llama-4-scout"])
def test_twice_the_tokens_are_twice_the_multiplications(name):
    one = activity(name, decoding=8.0, context=400.0)
    two = activity(name, decoding=16.0, context=400.0)
    np.testing.assert_allclose(flop(two), 2 * flop(one), rtol=1e-9)


def test_a_prompt_in_two_thirds_of_the_steps_costs_two_thirds():
    whole = activity(decoding=1.0, prompts=1.0, prompt_tokens=600.0).terms["attention_prefill_0"]
    some = activity(decoding=1.0, prompts=2 / 3, prompt_tokens=600.0).terms["attention_prefill_0"]
    np.testing.assert_allclose(some.time_s, whole.time_s * 2 / 3)
    np.testing.assert_allclose(some.macs["bf16"], whole.macs["bf16"] * 2 / 3)


def test_narrow_formats_move_fewer_bytes_and_run_on_faster_arrays():
    wide, narrow = (activity(mixes=(mix,), decoding=4.0, context=2000.0) for mix in MIXES)
    assert narrow.dram_bytes[0, 0] < 0.6 * wide.dram_bytes[0, 0]
    assert narrow.macs["fp8"][0, 0] > 0.8 * sum(wide.macs.values())[0, 0]
    assert narrow.time_s[0, 0] < wide.time_s[0, 0]


def test_groups_beyond_a_node_exchange_over_both_kinds_of_link():
    slow = replace(DESIGN, scale_out_bytes_per_s=1e10)
    inside = activity(degrees=(8,), decoding=64.0, context=100.0, design=slow, per_node=8)
    across = activity(degrees=(8,), decoding=64.0, context=100.0, design=slow, per_node=4)
    assert set(across.terms) - set(inside.terms) == {"all_reduce_between_nodes"}
    assert across.time_s[0, 0] > inside.time_s[0, 0]
