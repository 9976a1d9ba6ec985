"""Studies judged elsewhere: proposals, records, results."""

import numpy as np
import pytest

from explorer.document import StudyError
from explorer.outside import is_outside, outside_record, outside_result, prepare_outside, propose_outside
from tests.explorer.small_studies import SPACE

DOCUMENT = {
    "name": "rtl",
    "evaluator": "outside",
    "budget": {"tdp": "400 W"},
    "space": SPACE,
    "objectives": [{"metric": "latency_s", "direction": "minimize"}],
    "constraints": ["area"],
    "search": {"trials": 60, "seed": 3},
}


def latency_s(params):
    """A formula of the evaluator's own: best at the largest design of the space."""
    return 1.0 / (params["n_cores"] * params["arrays_per_core"] * params["clock"] * params["memory_stacks"])


def searched(document, count, at_once=4):
    """Records of a search with the formula above."""
    problem, records = prepare_outside(document), []
    for _ in range(0, count, at_once):
        for each in propose_outside(problem, list(records), [], at_once):
            metrics, excess = {"latency_s": latency_s(each.params)}, {"area": each.params["l2"] / 40 - 1}
            records.append(outside_record(problem, len(records), each, metrics, excess, ""))
    return problem, records


def test_tpe_finds_the_best_design_without_looking_at_all():
    problem, records = searched(DOCUMENT, 60)
    result = outside_result(problem, records)
    best = result["recommended"]["params"]
    assert problem.space.n_designs == 96
    wanted = {"n_cores": 96, "arrays_per_core": 4, "clock": 1.6, "memory_stacks": 4, "l2": 16}
    assert {name: best[name] for name in wanted} == wanted


def test_no_design_is_proposed_twice_until_the_space_is_exhausted():
    document = DOCUMENT | {"search": {"trials": 500, "sampler": "random"}}
    problem, records = searched(document, 96, at_once=48)
    assert len({str(record.params) for record in records}) == 96
    assert propose_outside(problem, records, [], 5) == []


def test_trials_that_are_away_are_not_proposed_again_and_count():
    problem = prepare_outside(DOCUMENT)
    away = [each.params for each in propose_outside(problem, [], [], 50)]
    rest = propose_outside(problem, [], away, 50)
    assert len(rest) == 10
    assert not any(each.params in away for each in rest)


def test_proposals_are_a_function_of_what_is_known():
    problem, records = searched(DOCUMENT, 30)
    assert propose_outside(problem, records, [], 3) == propose_outside(problem, records, [], 3)


def test_a_design_is_handed_out_with_its_units():
    (first,) = propose_outside(prepare_outside(DOCUMENT), [], [], 1)
    assert first.design["tdp_w"] == 400.0
    assert first.design["clock_hz"] == first.params["clock"] * 1e9
    assert first.design["memory_kind"] == "hbm3"


def test_the_result_has_the_form_of_every_other_and_is_read_back():
    problem, records = searched(DOCUMENT, 20)
    result = outside_result(problem, records)
    assert prepare_outside(result["study"]).document == problem.document
    assert result["evaluated"] == 20
    assert [point["trial"] for point in result["pareto"]] == [result["recommended"]["trial"]]
    assert all(record.feasible == (record.excess["area"] <= 0) for record in records)
    none = outside_result(problem, [record for record in records if not record.feasible])
    assert none["recommended"] is None
    assert none["binding_limit"]["limit"] == "area"


def test_an_outside_study_is_known_by_its_evaluator():
    assert is_outside(DOCUMENT)
    assert not is_outside({"name": "x"}) and not is_outside([])


@pytest.mark.parametrize(
    ("changes", "pointer", "detail"),
    [
        ({"search": {"sampler": "exact"}}, "/search/sampler", "must not be 'exact'"),
        ({"search": {"sampler": "magic"}}, "/search/sampler", "unknown sampler 'magic'"),
        ({"search": {"lease": 5}}, "/search/lease", "must carry a unit"),
        ({"objectives": []}, "/objectives", "at least 1 item"),
        ({"objectives": [{"metric": "a b", "direction": "minimize"}]}, "/objectives/0/metric", "got 'a b'"),
        ({"constraints": ["area", "area"]}, "/constraints", "must not repeat a name"),
        ({"workload": {}}, "/workload", "is no known field"),
        ({"space": {"colour": [1]}}, "/space/colour", "unknown space parameter"),
        ({"evaluator": "mine"}, "/evaluator", "got 'mine'"),
    ],
)
def test_a_bad_document_is_refused_at_its_field(changes, pointer, detail):
    with pytest.raises(StudyError, match=r".") as caught:
        prepare_outside(DOCUMENT | changes)
    assert [each["pointer"] for each in caught.value.errors] == [pointer]
    assert detail in caught.value.errors[0]["detail"]


@pytest.mark.parametrize(
    ("metrics", "excess", "pointer"),
    [
        ({}, {"area": 0.0}, "/t/metrics/latency_s"),
        ({"latency_s": 1.0}, {}, "/t/constraints/area"),
        ({"latency_s": np.nan}, {"area": 0.0}, "/t/metrics/latency_s"),
        ({"latency_s": 1.0}, {"area": 0.0, "power": 1.0}, "/t/constraints/power"),
    ],
)
def test_a_bad_result_is_refused_at_its_field(metrics, excess, pointer):
    problem = prepare_outside(DOCUMENT)
    (proposal,) = propose_outside(problem, [], [], 1)
    with pytest.raises(StudyError, match=r".") as caught:
        outside_record(problem, 0, proposal, metrics, excess, "/t")
    assert [each["pointer"] for each in caught.value.errors] == [pointer]
