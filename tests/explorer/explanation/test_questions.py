"""Must it grow across chips and machines: what an engine holds, and how many chips longer requests would need."""

import pytest

from explorer.document import read_document
from explorer.explanation.document import quick_explanation
from explorer.explanation.work import work_of
from explorer.known_work import fitted_to
from explorer.problem import judge_designs, prepare
from models.hardware.catalog import chip_designs

STUDY = {
    "name": "growth",
    "budget": {"area": "900 mm2", "tdp": "700 W"},
    "quality": {"no_worse_than": "bf16"},
    "objectives": [{"metric": "output_tokens_per_s_per_chip", "direction": "maximize"}],
}


def growth(network, input_tokens, system, plan):
    scenario = {
        "name": "chat", "kind": "llm_serving", "network": network, "batching": {"max_batch": 8}, "plan": plan,
        "requests": {"input": {"mean": input_tokens}, "output": {"mean": 100}},
    }  # fmt: skip
    document = read_document(STUDY | {"system": system, "workload": {"scenarios": [scenario]}})
    designs = chip_designs(["h100_sxm"])
    problem = fitted_to(prepare(document), designs)
    work = work_of(problem, designs, judge_designs(problem, designs).chosen)
    explanation = quick_explanation(work, {"memory_capacity": -0.1})
    return explanation["questions"]["growth"]["chat"], explanation["summary"]


def test_an_engine_that_spans_nodes_says_so():
    # 405.85e9 weights of 2 B over 16 chips leave room for 2,000 tokens
    system = {"n_chips": 16, "n_chips_per_node": 8}
    found, summary = growth("llama-3.1-405b", 400, system, {"tensor_parallel": 8, "pipeline_parallel": 2})
    assert (found["engine_chips"], found["engine_nodes"]) == (16, 2)
    assert found["fits_4x_length"]
    assert (found["engine_chips_at_4x_length"], found["leaves_node_at_4x_length"]) == (16, False)
    assert "An engine is 16 chips in 2 nodes, which also holds requests four times as long" in summary


@pytest.fixture(scope="module")
def long_prompts():
    # 141e9 B of weights on two chips of 80 GB: 30,000 tokens of 330 KB fit beside them, 120,000 do not
    return growth("llama-3.1-70b", 30_000, {"n_chips": 2, "n_chips_per_node": 2}, {"tensor_parallel": 2})


def test_work_that_outgrows_a_node_says_how_many_chips_it_needs(long_prompts):
    found, summary = long_prompts
    assert (found["engine_chips"], found["engine_nodes"]) == (2, 1)
    assert not found["fits_4x_length"]
    assert found["engine_chips_at_4x_length"] == 4
    assert found["leaves_node_at_4x_length"]
    assert "requests four times as long would need 4, more than a node has" in summary
