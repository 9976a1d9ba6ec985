"""A proof in shards: the same optimum, front and certificate as in one piece, whoever works the shards out."""

import dataclasses
import json

import numpy as np
import pytest

from explorer.document import StudyError
from explorer.problem import judge_points
from explorer.report import result_document
from explorer.run import explore_study
from explorer.samplers import EXACT
from explorer.shards import MergedProof, merged_proof, run_shard, shards_of, with_outcomes
from explorer.study import is_finished, n_chunks, n_shards, run_chunk, timeout_s
from tests.explorer.small_studies import all_points, enumerated, problem_of, study

RATE = {"metric": "sustainable_output_tokens_per_s", "direction": "maximize"}
COST = {"metric": "usd_per_million_output_tokens", "direction": "minimize"}
TIGHT = {"area": "500 mm2", "tdp": "400 W", "unit_cost": "2500 USD"}


@pytest.fixture(autouse=True)
def any_space_is_large(monkeypatch):
    monkeypatch.setattr("explorer.shards.LEAST_SHARDED", 1)


def sharded(shards=3, **changes):
    search = {"sampler": EXACT, "shards": shards, "trials": 24, "target_gap": 0.0} | changes.pop("search", {})
    few = {"l2": [64], "memory_stacks": [1, 4]}
    return study(search=search, space=few, **({"quality": {"no_worse_than": "bf16"}, "budget": TIGHT} | changes))


def outcomes_elsewhere(document, order):
    """Outcomes of shards that other processes work out in some order, as they are stored."""
    found = {index: json.dumps(run_shard(problem_of(document), index)) for index in order}
    return [json.loads(found[index]) for index in sorted(found)]


def run(problem):
    records = []
    for chunk in range(n_chunks(problem)):
        records += run_chunk(problem, records, chunk)
    return records


def timeless(records):
    return [
        dataclasses.replace(r, certificate=r.certificate and [{**e, "wall_s": 0.0} for e in r.certificate])
        for r in records
    ]


@pytest.mark.parametrize("objectives", [[RATE], [RATE, COST]], ids=["one objective", "two objectives"])
class TestAnyNumberOfWorkers:
    def test_gives_the_same_records_and_result_as_this_process_alone(self, objectives):
        document = sharded(objectives=objectives)
        alone = problem_of(document)
        expected = run(alone)
        n = n_shards(alone)
        order = np.random.default_rng(1).permutation(n)
        shared = with_outcomes(problem_of(document), outcomes_elsewhere(document, [int(i) for i in order]))
        records = run(shared)
        assert timeless(records) == timeless(expected)
        first, second = (result_document(p, timeless(r)) for p, r in ((alone, expected), (shared, records)))
        assert first == second and is_finished(shared, records)

    def test_proves_the_optimum_of_enumeration(self, objectives):
        problem = problem_of(sharded(objectives=objectives))
        certificate = run(problem)[-1].certificate
        assert all(entry["complete"] for entry in certificate)
        best = -enumerated(dataclasses.replace(problem, objectives=problem.objectives[:1]))
        assert certificate[0]["best"] == pytest.approx(best, rel=1e-9)
        assert certificate[0]["bound"] == pytest.approx(best, rel=1e-8) and certificate[0]["gap"] < 1e-8

    def test_shards_hold_every_part_of_the_proof(self, objectives):
        shards = shards_of(problem_of(sharded(objectives=objectives)))
        names = [RATE["metric"]] if len(objectives) == 1 else [RATE["metric"], COST["metric"], "front"]
        assert [(s.metric, s.share) for s in shards] == [(name, i) for name in names for i in range(3)]


def test_the_merged_front_covers_every_design_within_its_gap():
    problem = problem_of(sharded(objectives=[RATE, COST]))
    records = [r for r in run(problem) if r.feasible]
    found = np.array([r.objectives for r in records]) * [-1.0, 1.0]
    judged = judge_points(problem, all_points(problem.space))
    costs = judged.objectives[judged.feasible] * [-1.0, 1.0]
    reach = found - 0.011 * np.abs(found)
    assert (reach[:, None, :] <= costs[None]).all(axis=2).any(axis=0).all()


def test_nothing_is_proven_before_every_shard_has_reported():
    problem = problem_of(sharded())
    (entry,) = merged_proof(problem, 2).certificate()
    assert entry["bound"] is None and entry["gap"] is None and not entry["complete"] and entry["best"] > 0


def test_a_shard_that_ran_out_of_time_leaves_an_honest_gap():
    problem = problem_of(sharded())
    outcomes = [dict(run_shard(problem, index)) for index in range(3)]
    best = min(each["members"][0]["cost"][0] for each in outcomes if each["members"])
    outcomes[1] |= {"complete": False, "bound": 1.5 * best, "open_boxes": 7}
    (entry,) = MergedProof(problem, outcomes).certificate()
    assert entry["gap"] == pytest.approx(0.5) and entry["open_boxes"] == 7 and not entry["complete"]
    outcomes[1] |= {"bound": None}
    (entry,) = MergedProof(problem, outcomes).certificate()
    assert entry["gap"] is None and entry["bound"] is None


def test_where_nothing_is_feasible_that_is_proven():
    result = explore_study(sharded(budget=TIGHT | {"unit_cost": "1 USD"}), None, lambda *_: None)
    assert not result["feasible"] and result["binding_limit"]["limit"] == "unit_cost"
    assert result["certificate"][0]["complete"] and result["certificate"][0]["gap"] == 0.0


def test_a_shard_that_may_not_go_on_is_given_up():
    assert run_shard(problem_of(sharded()), 0, lambda: False) is None


def test_a_small_space_or_one_shard_is_not_sharded(monkeypatch):
    assert n_shards(problem_of(sharded(shards=1))) == 0
    assert n_shards(problem_of(sharded(search={"sampler": "random"}))) == 0
    assert timeout_s(problem_of(sharded())) == 3 * 60.0
    monkeypatch.setattr("explorer.shards.LEAST_SHARDED", 33)
    assert n_shards(problem_of(sharded())) == 0


def test_fewer_trials_than_shards_are_refused():
    message = "search.trials: must be at least 9, one for each shard of each objective and of their front, got 8"
    with pytest.raises(StudyError, match=message):
        problem_of(sharded(objectives=[RATE, COST], search={"trials": 8}))
