"""The result of a study as one document."""

import dataclasses
import json

import pytest

from explorer.problem import judge_points
from explorer.records import records_of
from explorer.report import binding_limit, certificate_of, front_of, recommended_of, result_document, study_hash
from tests.explorer.small_studies import COST, RATE, all_points, problem_of, study, with_limits

BASE = problem_of(study(quality={"no_worse_than": "bf16"}))
TWO = with_limits(BASE, objectives=(RATE, COST))


def all_records(problem):
    points = all_points(problem.space)
    return records_of(problem, points, judge_points(problem, points), 0)


RECORDS = all_records(TWO)


def test_the_front_holds_what_nothing_beats_best_of_the_first_objective_first():
    front = front_of(TWO, RECORDS)
    assert len(front) > 1 and all(r.feasible for r in front)
    rates, costs = zip(*[r.objectives for r in front], strict=True)
    assert list(rates) == sorted(rates, reverse=True) and list(costs) == sorted(costs, reverse=True)
    for record in (r for r in RECORDS if r.feasible):
        assert any(f.objectives[0] >= record.objectives[0] and f.objectives[1] <= record.objectives[1] for f in front)


def test_one_objective_recommends_its_best_feasible_trial():
    records = all_records(BASE)
    front = front_of(BASE, records)
    assert len(front) == 1
    assert recommended_of(BASE, front).objectives[0] == max(r.objectives[0] for r in records if r.feasible)


def test_infeasible_trials_never_reach_the_front_however_good():
    better = dataclasses.replace(RECORDS[0], feasible=False, objectives=[1e9, 1e-9])
    assert better not in front_of(TWO, [better, *RECORDS])
    assert front_of(TWO, [better]) == [] and recommended_of(TWO, []) is None


def test_what_binds_is_the_largest_excess_of_the_nearest_trial():
    first = dataclasses.replace(RECORDS[0], number=0, excess={"area": 3.0, "tdp": 0.5})
    second = dataclasses.replace(RECORDS[0], number=1, excess={"area": 0.1, "tdp": 0.7})
    assert binding_limit([first, second]) == {"limit": "tdp", "excess_fraction": 0.7, "trial": 1}
    assert binding_limit([]) is None


def test_the_certificate_is_the_last_one_stated():
    entry = {"metric": "x", "complete": True}
    stated = dataclasses.replace(RECORDS[0], certificate=[entry])
    assert certificate_of([stated, RECORDS[1]]) == [entry]
    assert certificate_of(RECORDS[:2]) == []


def test_the_document_is_json_with_the_keys_of_the_interface():
    document = result_document(TWO, RECORDS)
    json.dumps(document, allow_nan=False)
    assert {"study", "feasible", "recommended", "pareto", "certificate", "explanation", "evaluated"} <= set(document)
    assert document["evaluated"] == len(RECORDS) == document["space_designs"]
    assert document["feasible_designs"] == sum(r.feasible for r in RECORDS)
    assert document["recommended"]["trial"] in [point["trial"] for point in document["pareto"]]
    assert {"design", "operating_point", "metrics"} <= set(document["recommended"])


@pytest.mark.parametrize("change", [{"name": "other"}, {"budget": {"area": "501 mm2", "tdp": "400 W"}}])
def test_the_hash_follows_the_document(change):
    changed = problem_of(study(quality={"no_worse_than": "bf16"}, **change))
    assert study_hash(problem_of(study(quality={"no_worse_than": "bf16"}))) == study_hash(BASE) != study_hash(changed)
