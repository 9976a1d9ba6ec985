"""Studies whose chips may put into a second tier what their main memory has no room for."""

import numpy as np
import pytest

from explorer.boxes import idle_parameters
from explorer.document import StudyError
from explorer.evaluation import evaluate_document
from explorer.problem import judge_points
from tests.explorer.small_studies import all_points, enumerated, problem_of, proven, study

SPACE = {
    "array_shape": [[16, 16, 16]], "arrays_per_core": [1], "memory_stacks": [1, 2, 3],
    "second_tier": ["none", "lpddr5x_256gb", "cxl_512gb"],
}  # fmt: skip
MIXTRAL = {"network": "mixtral-8x7b"}


def offloading(**changes):
    return study(
        MIXTRAL, SPACE, quality={"no_worse_than": "bf16"}, budget={"area": "700 mm2", "tdp": "600 W"},
        **({"system": {"n_chips": 1, "offload": True}} | changes),
    )  # fmt: skip


def test_the_proof_finds_the_best_design_with_a_second_tier():
    problem = problem_of(offloading())
    expected = enumerated(problem)
    assert np.isfinite(expected)
    assert proven(problem).incumbent.cost == pytest.approx(expected, rel=1e-9)
    judgement = judge_points(problem, all_points(problem.space))
    best = int(np.argmax(np.where(judgement.feasible, judgement.objectives[:, 0], -np.inf)))
    # 94 GB of weights in 16 bit, and 72 GiB of main memory at most
    assert judgement.designs.second_tier[best] > 0


def test_a_tier_is_idle_where_no_scenario_puts_anything_into_it():
    assert "second_tier" in idle_parameters(problem_of(offloading(system={"n_chips": 1})))
    assert "second_tier" not in idle_parameters(problem_of(offloading()))


def test_an_operating_point_says_what_lies_in_the_tier():
    document = offloading()
    design = evaluate_document({"chip": "h100_sxm", "study": document})["design"] | {"second_tier": "lpddr5x_256gb"}
    found = evaluate_document({"design": design, "study": document})
    held = found["operating_point"]["second_tier"]["held_bytes"]
    assert found["serves"] and sum(held.values()) > 10e9
    assert found["sizes"]["data"]["bytes_per_result"]["second_tier"] > 0
    assert any(row["item"] == "second_tier_fetch" for row in found["reshape_cost"]["items"])


def test_engines_for_prompts_of_their_own_are_refused_by_name():
    document = offloading(system={"n_chips": 2, "offload": True})
    document["workload"]["scenarios"][0]["scheduling"] = "disaggregated"
    with pytest.raises(StudyError, match="offload needs engines that do prompts and answers alike"):
        problem_of(document)
