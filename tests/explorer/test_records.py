"""Trials as plain data."""

from explorer.problem import judge_designs
from explorer.records import operating_point
from models.hardware.catalog import chip_designs
from tests.explorer.small_studies import problem_of, study


def room(chip, network):
    document = study()
    document["workload"]["scenarios"][0] |= {"network": network}
    document["quality"] = {"no_worse_than": "bf16"}
    problem = problem_of(document)
    return operating_point(problem, judge_designs(problem, chip_designs([chip])), 0)


def test_a_plan_whose_weights_leave_little_memory_is_called_capacity_critical():
    # 16 GB of weights in 16 bit: most of an L4 with 24 GB, a fifth of an H100 with 80 GB
    tight, wide = room("l4", "llama-3.1-8b"), room("h100_sxm", "llama-3.1-8b")
    assert tight["free_memory_fraction"] < 0.35 < wide["free_memory_fraction"]
    assert not wide["capacity_critical"]
    assert room("t4", "llama-3.1-8b")["capacity_critical"]
