"""Where the time of a design goes."""

import numpy as np
import pytest

from explorer.bottleneck import alternative_of, bottleneck
from explorer.report import result_document
from explorer.study import run_chunk
from tests.explorer.small_studies import problem_of, study

PROBLEM = problem_of(study())
RECORD = next(record for record in run_chunk(PROBLEM, [], 0) if record.feasible)


def test_shares_of_operators_and_of_resources_add_up_to_the_step():
    report = bottleneck(PROBLEM, RECORD)["chat"]
    assert sum(term["share_fraction"] for term in report["terms"]) == pytest.approx(1.0)
    names = [term["name"] for term in report["terms"]]
    assert len(set(names)) == len(names)
    assert sum(report["resources"].values()) == pytest.approx(1.0)
    assert 0 < report["memory_utilization_fraction"] <= 1


def test_the_step_is_the_one_the_design_was_judged_at():
    report = bottleneck(PROBLEM, RECORD)["chat"]
    assert report["step_s"] <= RECORD.metrics["step_s"] * (1 + 1e-9)


def test_an_operating_point_is_found_again_among_the_alternatives():
    compiled = PROBLEM.scenarios[0]
    place = alternative_of(compiled, RECORD.operating_point)
    assert compiled.choices.batch[place] == RECORD.operating_point["micro_batch"]
    assert compiled.choices.tensor_parallel[place] == RECORD.operating_point["plan"]["tensor_parallel"]


def test_a_result_explains_time_formats_and_slack():
    document = result_document(PROBLEM, [RECORD])
    assert set(document["explanation"]) == {"bottleneck", "precision", "slack_fractions"}
    assert np.all(np.array(list(document["explanation"]["slack_fractions"].values())) >= 0)
