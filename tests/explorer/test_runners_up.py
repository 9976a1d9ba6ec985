"""Plans of one design side by side."""

import copy

import pytest

from explorer.evaluation import evaluate_document
from tests.explorer.small_studies import study

SEVERAL = {"n_chips": 8, "n_chips_per_node": 8}


def point(chip="h100_sxm", scenario=None, **changes):
    document = study({"network": "llama-3.1-70b", "batching": {}, **(scenario or {})}, system=SEVERAL, **changes)
    return evaluate_document({"chip": chip, "study": document})["operating_point"]


@pytest.fixture(scope="module")
def chat():
    return point(scenario={"slo": {"tpot_p95": "25 ms"}})


def chips(plan):
    used = plan["tensor_parallel"] * plan["pipeline_parallel"] * plan["data_parallel"]
    return used * plan.get("attention_data_parallel", 1)


def test_every_plan_uses_all_chips_and_none_is_listed_twice(chat):
    plans = [chat["plan"], *(each["plan"] for each in chat["runners_up"])]
    assert all(chips(plan) == 8 for plan in plans)
    assert len({tuple(plan.items()) for plan in plans}) == len(plans) >= 4


def test_runners_up_come_in_the_order_of_their_value_those_beyond_a_limit_last(chat):
    listed = chat["runners_up"]
    possible = [each["values"]["sustainable_output_tokens_per_s"] for each in listed if each["feasible"]]
    assert possible == sorted(possible, reverse=True) and possible
    assert [each["feasible"] for each in listed] == sorted((each["feasible"] for each in listed), reverse=True)
    assert all(("excess_fraction" in each) != each["feasible"] for each in listed)


def test_a_latency_limit_binds_where_a_larger_batch_breaks_it(chat):
    assert chat["binds"] == "tpot_p95"
    free = point()
    assert free["binds"] in ("memory_capacity", "largest_batch", "compute")


def test_a_pipeline_competes_where_one_chip_holds_no_weights():
    # 140 GB in 16 bit on chips of 80 GB
    found = point(quality={"no_worse_than": "bf16"})
    depths = {each["plan"]["tensor_parallel"]: each["plan"]["pipeline_parallel"] for each in found["runners_up"]}
    assert depths.get(1, found["plan"]["pipeline_parallel"]) >= 2


def test_stated_inputs_are_echoed_and_change_the_figures():
    stated = {"prefix_hit_fraction": 0.25, "step_overhead": "9 ms"}
    asked = study({"network": "llama-3.1-70b", **stated}, system=SEVERAL | {"host_bandwidth": "15 GB/s"})
    found = evaluate_document({"chip": "l40s", "study": asked})
    assert found["operating_point"]["inputs"] == {
        "prefix_hit_fraction": pytest.approx(0.25), "routing_skew": 0.0, "step_overhead_s": pytest.approx(9e-3),
        "host_bytes_per_s": 15e9, "host_sharing_exponent": pytest.approx(1.25, rel=0.5),
    }  # fmt: skip
    faster = copy.deepcopy(asked)
    faster["system"]["host_bandwidth"] = "60 GB/s"
    assert evaluate_document({"chip": "l40s", "study": faster})["metrics"]["step_s"] < found["metrics"]["step_s"]
