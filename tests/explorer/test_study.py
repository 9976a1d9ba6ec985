"""Studies: pure chunks, no design twice, the answer within budget, and what binds where there is none."""

import dataclasses

import numpy as np
import pytest

from explorer.bounds import alternative_costs, is_boundable
from explorer.problem import judge_points
from explorer.run import explore_study
from explorer.samplers import AUTO, EXACT, SAMPLERS
from explorer.space import point_of
from explorer.study import is_finished, n_chunks, n_trials, record_from_json, run_chunk, sampler_of
from tests.explorer.small_studies import SPACE, all_points, enumerated, problem_of, study

ONE_MIX = {"no_worse_than": "bf16"}
RATE = {"metric": "sustainable_output_tokens_per_s", "direction": "maximize"}
COST = {"metric": "usd_per_million_output_tokens", "direction": "minimize"}
EVERY = [*SAMPLERS, EXACT]


FEW = {"l2": [64], "memory_stacks": [1, 4]}
"""Leaves 32 designs."""


def of(sampler, **changes):
    search = {"sampler": sampler, "trials": 24} | changes.pop("search", {})
    return study(search=search, space=FEW | changes.pop("space", {}), **({"quality": ONE_MIX} | changes))


def run(problem):
    """All records of a study, chunk by chunk."""
    chunks = []
    for chunk in range(n_chunks(problem)):
        past = [record for part in chunks for record in part]
        if is_finished(problem, past):
            break
        chunks.append(run_chunk(problem, past, chunk))
    return chunks


def timeless(records):
    """Records without the wall time of their certificates."""
    return [
        dataclasses.replace(r, certificate=r.certificate and [{**e, "wall_s": 0.0} for e in r.certificate])
        for r in records
    ]


def flat(chunks):
    return [record for chunk in chunks for record in chunk]


@pytest.mark.parametrize("objectives", [[RATE], [RATE, COST]], ids=["one objective", "two objectives"])
@pytest.mark.parametrize("sampler", EVERY)
class TestEverySampler:
    def test_same_seed_gives_the_same_trials_from_a_fresh_problem_at_any_chunk(self, sampler, objectives):
        document = of(sampler, objectives=objectives, search={"seed": 3})
        chunks = run(problem_of(document))
        last = len(chunks) - 1
        past = flat(chunks[:last])
        again = run_chunk(problem_of(document), past, last)
        assert timeless(again) == timeless(chunks[last])
        kept = problem_of(document)
        for chunk in (0, last):
            before = flat(chunks[:chunk])
            assert timeless(run_chunk(kept, before, chunk)) == timeless(chunks[chunk])

    def test_no_design_is_looked_at_twice_and_none_lies_outside(self, sampler, objectives):
        problem = problem_of(of(sampler, objectives=objectives, search={"trials": 500}))
        records = flat(run(problem))
        points = [tuple(point_of(problem.space, record.params)) for record in records]
        assert len(set(points)) == len(points) <= n_trials(problem) == problem.space.n_designs
        assert [record.number for record in records] == list(range(len(records)))

    def test_no_more_trials_than_asked_for(self, sampler, objectives):
        records = flat(run(problem_of(of(sampler, objectives=objectives, search={"trials": 7}))))
        assert 1 <= len(records) <= 7
        assert sampler == EXACT or len(records) == 7


@pytest.mark.parametrize("sampler", EVERY)
def test_the_recommended_design_meets_the_budget(sampler):
    budget = {"area": "600 mm2", "tdp": "300 W", "unit_cost": "2200 USD"}
    result = explore_study(of(sampler, budget=budget, scenario={"slo": {"tpot_p95": "30 ms"}}), None, lambda *_: None)
    assert result["feasible"] and "binding_limit" not in result
    for point in result["pareto"]:
        metrics = point["metrics"]
        assert metrics["area_mm2"] <= 600 and metrics["unit_cost_usd"] <= 2200 and metrics["tpot_p95_s"] <= 0.03
        assert metrics["tdp_w"] <= 300


class TestExact:
    def test_the_recommended_design_is_the_optimum_of_enumeration_and_its_certificate_says_so(self):
        document = of(EXACT, search={"target_gap": 0.0, "trials": 90})
        problem = problem_of(document)
        result = explore_study(document, None, lambda *_: None)
        best = -enumerated(problem)
        entry = result["certificate"][0]
        assert result["recommended"]["metrics"][RATE["metric"]] == pytest.approx(best, rel=1e-9)
        assert entry["complete"] and entry["best"] == pytest.approx(best, rel=1e-9) and entry["gap"] <= 1e-8

    def test_every_trial_of_one_objective_shows_its_design_at_its_best(self):
        problem = problem_of(of(EXACT, quality=None))
        records = flat(run(problem))
        points = np.array([point_of(problem.space, record.params) for record in records])
        free = judge_points(problem, points)
        np.testing.assert_allclose([r.objectives[0] for r in records], free.objectives[:, 0], rtol=1e-12)

    def test_the_last_trial_of_every_chunk_carries_the_certificate(self):
        for chunk in run(problem_of(of(EXACT, objectives=[RATE, COST]))):
            assert [r.certificate is not None for r in chunk] == [False] * (len(chunk) - 1) + [True]

    def test_a_proof_of_two_objectives_names_both_and_their_front(self):
        result = explore_study(of(EXACT, objectives=[RATE, COST], search={"trials": 90}), None, lambda *_: None)
        assert [entry["metric"] for entry in result["certificate"]] == [RATE["metric"], COST["metric"], "front"]
        assert all(entry["complete"] for entry in result["certificate"])

    def test_the_trials_cover_every_feasible_design_of_two_objectives_within_the_gap_of_the_front(self):
        document = of(EXACT, objectives=[RATE, COST], search={"trials": 90})
        problem = problem_of(document)
        records = [r for r in flat(run(problem)) if r.feasible]
        found = np.array([r.objectives for r in records]) * [-1.0, 1.0]
        judged = judge_points(problem, all_points(problem.space))
        costs = judged.objectives[judged.feasible] * [-1.0, 1.0]
        reach = found - 0.011 * np.abs(found)
        assert (reach[:, None, :] <= costs[None]).all(axis=2).any(axis=0).all()

    def test_auto_is_exact_where_all_objectives_are_bounded_and_tpe_where_not(self):
        unbounded = {"metric": "usd_per_hour", "direction": "minimize"}
        assert sampler_of(problem_of(of(AUTO))) == EXACT
        problem = problem_of(of(AUTO, objectives=[RATE, unbounded]))
        assert sampler_of(problem) == "tpe" and not is_boundable(problem.objectives[1])
        assert len(flat(run(problem))) == 24


IMPOSSIBLE = {
    "area": ({"budget": {"area": "1 mm2", "tdp": "400 W"}}, "area"),
    "power": ({"budget": {"area": "500 mm2", "tdp": "1 W"}}, "tdp"),
    "price": ({"budget": {"area": "500 mm2", "tdp": "400 W", "unit_cost": "1 USD"}}, "unit_cost"),
    "latency": ({"scenario": {"slo": {"tpot_p95": "1 us"}}}, "tpot_p95"),
    "first token": ({"scenario": {"slo": {"ttft_p99": "1 us"}}}, "ttft_p95"),
    "quality": ({"quality": {"max_kl_nats": 1e-9}}, "quality"),
    "network": ({"scenario": {"network": "llama-3.1-405b"}}, "memory_capacity"),
}


@pytest.mark.parametrize("sampler", ["random", EXACT])
@pytest.mark.parametrize(("changes", "limit"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_where_nothing_fits_the_answer_is_the_limit_that_binds_and_by_how_much(sampler, changes, limit):
    result = explore_study(of(sampler, **changes), None, lambda *_: None)
    assert result["feasible"] is False and result["recommended"] is None and result["pareto"] == []
    assert result["binding_limit"]["limit"] == limit
    assert 0 < result["binding_limit"]["excess_fraction"] < 1e7
    if sampler == EXACT:
        assert result["certificate"][0]["complete"] and result["certificate"][0]["best"] is None


def test_the_exact_search_tells_of_a_nearer_design_than_random_ones():
    # 200 mm2 are less than the smallest of these designs needs
    changes = {"budget": {"area": "5 mm2", "tdp": "400 W"}, "space": {"n_cores": [96, 160, 256]}}
    near, random = (explore_study(of(s, **changes), None, lambda *_: None)["binding_limit"] for s in (EXACT, "random"))
    problem = problem_of(of(EXACT, **changes))
    least = min(np.max(np.stack(list(judge_points(problem, all_points(problem.space)).excess.values())), axis=0))
    assert near["excess_fraction"] == pytest.approx(least)
    assert near["excess_fraction"] <= random["excess_fraction"]


@pytest.mark.parametrize("sampler", EVERY)
def test_a_space_of_one_design_is_a_study_of_one_trial(sampler):
    one = {name: values[:1] for name, values in SPACE.items()}
    records = flat(run(problem_of(of(sampler, space=one))))
    assert len(records) == 1


def test_another_seed_gives_other_trials():
    first, second = (flat(run(problem_of(of("random", search={"seed": seed})))) for seed in (1, 2))
    assert [r.params for r in first] != [r.params for r in second]


def test_a_finished_study_proposes_nothing_more():
    problem = problem_of(of("random"))
    records = flat(run(problem))
    assert is_finished(problem, records) and run_chunk(problem, records, 99) == []


def test_records_come_back_equal_from_json():
    import json

    for record in flat(run(problem_of(of(EXACT, objectives=[RATE, COST])))):
        assert record_from_json(json.loads(json.dumps(record.as_json()))) == record


def test_a_timeout_lets_the_first_chunk_end():
    result = explore_study(of("random", search={"timeout": "1 us"}), None, lambda *_: None)
    assert result["evaluated"] == 20


def test_a_proven_front_covers_every_design_at_every_operating_point():
    """Rate against TPOT: a design is on this front at several batches, and each must be among the trials."""
    objectives = [
        {"metric": "sustainable_output_tokens_per_s", "direction": "maximize"},
        {"metric": "tpot_p95_s", "direction": "minimize"},
    ]
    search = {"sampler": "exact", "trials": 2000, "target_gap": 0.01}
    problem = problem_of(study(objectives=objectives, search=search))
    records, chunk = [], 0
    while not is_finished(problem, records):
        records += run_chunk(problem, records, chunk)
        chunk += 1
    reported = np.array([r.objectives for r in records if r.feasible]) * [-1.0, 1.0]
    windows = problem.scenarios[0].windows
    points = all_points(problem.space)
    for first, last in windows:
        ends = [np.full(len(points), end) for end in (first, last)]
        costs, _ = alternative_costs(problem, points, *ends, problem.objectives)
        flat = costs.reshape(-1, 2)[np.isfinite(costs).all(axis=2).ravel()]
        within = reported[None] - 0.0101 * np.abs(reported[None]) <= flat[:, None]
        assert within.all(axis=2).any(axis=1).all()
