"""Serving of networks with recurrent layers, and refusal of those that no step of ours describes."""

import dataclasses

import numpy as np
import pytest

from models.architectures import load_network, lower
from models.architectures.plans import ParallelPlan
from models.evaluate import evaluate
from models.hardware.design import reference_design, replace
from models.operators.factor_tables import FactorTables
from models.serving.steady import compile_serving
from tests.models.serving.hybrids import hybrid, recurrent
from tests.models.serving_scenarios import scenario


def step_term(network, name, **changes):
    work = compile_serving(with_network(network, **changes), [ParallelPlan()])
    return next(each for each in work.step.terms if each.name == name), work


def with_network(network, **changes):
    return dataclasses.replace(scenario(**changes), network=network)


def judged(network, designs, **changes):
    return evaluate(designs, designs, [compile_serving(with_network(network, **changes))], FactorTables())[0]


def test_a_decoded_token_reads_and_writes_the_state_of_its_sequence_once():
    network = recurrent()
    found, work = step_term(network, "state_decode_0", mixes=("bf16",))
    state = network.states[0]
    c = {name: values[found.index] for name, values in found.columns.items()}
    np.testing.assert_allclose(c["sequences"], work.choices.batch)
    np.testing.assert_allclose(c["state_bytes"], 2.0 * state.state_elements)
    np.testing.assert_allclose(c["flop_per_token"], state.flop_per_token)
    assert found.count[0] == state.count == 8


def test_a_recurrent_network_has_no_cache_but_a_state_to_hold():
    with_states = compile_serving(with_network(recurrent()), [ParallelPlan()])
    assert (with_states.pipelines.sequence_bytes > 0).all()
    longer = dataclasses.replace(with_network(recurrent()), requests=dataclasses.replace(
        with_network(recurrent()).requests, reserved_tokens=1e6))  # fmt: skip
    again = compile_serving(longer, [ParallelPlan()])
    np.testing.assert_array_equal(again.pipelines.sequence_bytes, with_states.pipelines.sequence_bytes)


def test_a_hybrid_serves_faster_with_more_bandwidth():
    slow = reference_design()
    fast = replace(slow, memory_bandwidth_bytes_per_s=2 * slow.memory_bandwidth_bytes_per_s)
    assert (judged(hybrid(), fast).step_s < judged(hybrid(), slow).step_s).all()


def test_states_take_time():
    network = hybrid()
    without = dataclasses.replace(network, states=())
    assert (judged(network, reference_design()).step_s > judged(without, reference_design()).step_s).all()


def test_an_encoder_is_refused_by_name():
    with pytest.raises(ValueError, match="reads its input once and makes no tokens, got network 'bert-base'"):
        compile_serving(with_network(lower(load_network("bert-base"))))


def test_an_encoder_decoder_is_refused_for_its_source():
    network = dataclasses.replace(lower(load_network("bert-base")), kind="encoder_decoder", name="whisper")
    with pytest.raises(ValueError, match=r"cross attention over a source .* is not served, got network 'whisper'"):
        compile_serving(with_network(network))


def test_a_vision_transformer_is_refused():
    with pytest.raises(ValueError, match="llm_serving needs a decoder"):
        compile_serving(with_network(lower(load_network("vit-b-16"))))
