"""How designs scale out: efficiency, binding resources, changes of the plan, tensor parallelism across nodes."""

import copy

import pytest

from explorer.document import StudyError
from explorer.evaluation import evaluate_document

LARGE = {
    "name": "large", "kind": "llm_serving", "network": "llama-3.1-405b",
    "requests": {"preset": "llmperf-550-150"}, "slo": {"ttft_p95": "4 s", "tpot_p95": "100 ms"},
    "batching": {"max_batch": 256},
}  # fmt: skip
STUDY = {
    "name": "scaling",
    "workload": {"scenarios": [LARGE]},
    "budget": {"area": "900 mm2", "tdp": "700 W"},
    "system": {"n_chips": 16, "n_chips_per_node": 8},
    "quality": {"no_worse_than": "bf16"},
    "objectives": [{"metric": "output_tokens_per_s_per_chip", "direction": "maximize"}],
}
TRAINING = {
    "name": "train", "kind": "training", "network": "llama-3.1-8b", "sequence_tokens": 8192,
    "global_batch_sequences": 64,
}  # fmt: skip


def study(scenario, **changes):
    document = copy.deepcopy(STUDY) | changes
    document["workload"]["scenarios"][0] = scenario
    return document


def scaling(document, asked, chip="h100_sxm"):
    return evaluate_document({"chip": chip, "study": document, "scaling": asked})["scaling"]["scenarios"][0]


@pytest.fixture(scope="module")
def large():
    return {each["n_chips"]: each for each in scaling(STUDY, {"max_chips": 64})["steps"]}


@pytest.fixture(scope="module")
def trained():
    network = {"bandwidth": "25 GB/s", "nodes_per_leaf": 4, "oversubscription": 4}
    document = study(
        TRAINING, objectives=[{"metric": "trained_tokens_per_s", "direction": "maximize"}],
        system={"n_chips": 16, "n_chips_per_node": 8, "scale_out": network},
    )  # fmt: skip
    del document["quality"]
    return scaling(document, {"max_chips": 1024})


def test_sizes_that_do_not_hold_the_network_say_which_limit_they_exceed(large):
    # 405.85e9 weights of 2 B over 80 GB a chip need at least 11 chips
    for n in (1, 2, 4, 8):
        assert not large[n]["serves"]
        assert large[n]["limit"] == "memory_capacity"
    assert large[1]["excess_fraction"] > large[8]["excess_fraction"] > 0
    assert large[16]["serves"]


def test_copies_of_an_engine_scale_without_loss(large):
    assert [large[n]["efficiency_ratio"] for n in (16, 32, 64)] == pytest.approx([1.0, 1.0, 1.0])
    assert large[64]["plan"]["data_parallel"] == 4 * large[16]["plan"]["data_parallel"]


def test_the_best_plan_for_what_no_node_holds_is_a_pipeline_over_nodes_and_not_wider_tensor_parallelism(large):
    plan, wide = large[16]["plan"], large[16]["tensor_parallel_across_nodes"]
    assert (plan["tensor_parallel"], plan["pipeline_parallel"]) == (8, 2)
    assert wide["degrees"]["tensor_parallel"] == 16
    assert wide["rate_ratio"] < 0.8
    links = ("scale_out_link", "host_io")
    assert sum(wide["time_shares"][n] for n in links) > 3 * sum(large[16]["time_shares"][n] for n in links)


def test_experts_are_dealt_to_chips_where_tensor_parallelism_would_span_nodes():
    # 671e9 weights, mostly of one byte, over 80 GB a chip: more than a node's 8
    document = study(LARGE | {"network": "deepseek-v3"}, quality={"no_worse_than": "deepseek_v3"})
    (step,) = scaling(document, {"chips": [16]})["steps"]
    assert step["plan"]["expert_parallel"] > 1
    assert step["plan"]["tensor_parallel"] <= 8
    assert step["tensor_parallel_across_nodes"]["rate_ratio"] < 0.5


def test_a_fixed_batch_stops_scaling_and_the_report_says_where_and_why(trained):
    steps = [each for each in trained["steps"] if each["serves"]]
    assert trained["breaks"]["n_chips"] in [each["n_chips"] for each in steps]
    assert trained["breaks"]["rate_ratio"] < 0.8
    assert steps[-1]["efficiency_ratio"] < 0.5 * steps[0]["efficiency_ratio"]
    changes = [each["plan_change"] for each in steps if "plan_change" in each]
    assert changes
    assert all(each["from"] != each["to"] and each["reason"] for each in changes)


def test_sizes_go_from_chip_and_node_to_rack_and_racks(trained):
    levels = {each["n_chips"]: each["level"] for each in trained["steps"]}
    assert [levels[n] for n in (1, 8, 16, 32, 64)] == ["chip", "node", "rack", "rack", "racks"]


def test_a_plan_is_only_left_for_one_that_is_no_slower(trained):
    gains = [each["plan_change"]["rate_gain_fraction"] for each in trained["steps"]
             if "rate_gain_fraction" in each.get("plan_change", {})]  # fmt: skip
    assert gains
    assert min(gains) >= 0


def test_every_step_equals_an_evaluation_on_a_system_of_that_size(large):
    system = {"n_chips": 32, "n_chips_per_node": 8}
    alone = evaluate_document({"chip": "h100_sxm", "study": STUDY | {"system": system}})
    assert large[32]["tokens_per_s"] == pytest.approx(alone["metrics"]["output_tokens_per_s"], rel=1e-12)
    assert large[32]["plan"] == alone["operating_point"]["plan"]
    assert sum(large[32]["time_shares"].values()) == pytest.approx(1.0, abs=0.05)


def test_a_stated_plan_is_kept_and_sizes_that_it_does_not_divide_are_refused():
    document = study(LARGE | {"plan": {"tensor_parallel": 8, "pipeline_parallel": 3}},
                     system={"n_chips": 24, "n_chips_per_node": 8})  # fmt: skip
    steps = {each["n_chips"]: each for each in scaling(document, {"chips": [24, 48]})["steps"]}
    assert steps[48]["plan"] == {"tensor_parallel": 8, "pipeline_parallel": 3, "data_parallel": 2}
    rule = "tensor_parallel x attention_data_parallel x pipeline_parallel must divide 32 chips, got 8 x 1 x 3 = 24"
    with pytest.raises(StudyError, match=f"scaling.chips: 32 chips: {rule}"):
        scaling(document, {"chips": [24, 32]})


def test_a_stated_size_that_no_plan_divides_is_refused_and_a_size_of_the_ladder_says_so():
    document = study(
        TRAINING | {"plan": {"tensor_parallel": 8, "pipeline_parallel": 3}},
        objectives=[{"metric": "trained_tokens_per_s", "direction": "maximize"}],
        system={"n_chips": 24, "n_chips_per_node": 8},
    )
    del document["quality"]
    rule = "tensor_parallel x pipeline_parallel must divide 16 chips, got 24"
    with pytest.raises(StudyError, match=f"scaling.chips: 16 chips: {rule}"):
        scaling(document, {"chips": [16]})
    steps = {each["n_chips"]: each for each in scaling(document, {"max_chips": 16})["steps"]}
    assert steps[16] == {"n_chips": 16, "n_nodes": 2, "level": "nodes", "serves": False, "refused": rule}
