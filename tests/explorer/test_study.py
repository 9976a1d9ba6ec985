"""Studies: pure chunks, no design twice, the answer within budget, and what binds where there is none."""

import dataclasses
import json

import numpy as np
import pytest

from explorer.bounds import alternative_costs, is_boundable
from explorer.boxes import alternative_windows
from explorer.document import StudyError
from explorer.problem import judge_points
from explorer.run import explore_study
from explorer.samplers import AUTO, EXACT, EXHAUSTIVE, ONE_OBJECTIVE, SAMPLERS
from explorer.space import point_of
from explorer.study import catch_up, is_finished, n_chunks, n_trials, record_from_json, run_chunk, sampler_of
from explorer.work_limits import require_few_roots
from tests.explorer.small_studies import SPACE, all_points, enumerated, problem_of, study

ONE_MIX = {"no_worse_than": "bf16"}
RATE = {"metric": "sustainable_output_tokens_per_s", "direction": "maximize"}
COST = {"metric": "usd_per_million_output_tokens", "direction": "minimize"}
EVERY = [*SAMPLERS, EXACT]


FEW = {"l2": [64], "memory_stacks": [1, 4]}
"""Leaves 32 designs."""


def of(sampler, **changes):
    search = {"sampler": sampler, "trials": 96 if sampler == EXHAUSTIVE else 24} | changes.pop("search", {})
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


CASES = [(name, [RATE]) for name in EVERY] + [(name, [RATE, COST]) for name in EVERY if name not in ONE_OBJECTIVE]


@pytest.mark.parametrize(("sampler", "objectives"), CASES, ids=[f"{name} of {len(o)}" for name, o in CASES])
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

    def test_a_study_killed_after_any_chunk_goes_on_to_the_same_trials(self, sampler, objectives):
        search = {"seed": 5, "trials": 96 if sampler == EXHAUSTIVE else 70}
        document = study(search={"sampler": sampler} | search, objectives=objectives, quality=ONE_MIX)
        whole = run(problem_of(document))
        for chunk in {0, 1, len(whole) // 2, len(whole) - 1} & set(range(len(whole))):
            stored = [json.dumps(record.as_json()) for record in flat(whole[:chunk])]
            resumed = problem_of(document)  # as a new process has it: nothing but the document and what was stored
            records = run_chunk(resumed, [record_from_json(json.loads(each)) for each in stored], chunk)
            assert timeless(records) == timeless(whole[chunk])

    def test_no_design_is_looked_at_twice_and_none_lies_outside(self, sampler, objectives):
        problem = problem_of(of(sampler, objectives=objectives, search={"trials": 500}))
        records = flat(run(problem))
        points = [tuple(point_of(problem.space, record.params)) for record in records]
        assert len(set(points)) == len(points) <= n_trials(problem) == problem.space.n_designs
        assert [record.number for record in records] == list(range(len(records)))

    def test_no_more_trials_than_asked_for(self, sampler, objectives):
        if sampler == EXHAUSTIVE:
            pytest.skip("asks for the whole space, which preparing a study says")
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


class TestExhaustive:
    def test_it_judges_every_design_and_proves_the_optimum(self):
        problem = problem_of(of(EXHAUSTIVE, quality=None))
        records = flat(run(problem))
        assert len(records) == problem.space.n_designs
        (entry,) = records[-1].certificate
        assert entry["complete"] and entry["gap"] == 0.0 and entry["boxes"] == len(records)
        assert entry["best"] == entry["bound"] == pytest.approx(-enumerated(problem), rel=1e-12)

    def test_of_several_objectives_it_proves_none_since_a_design_is_judged_at_one_operating_point(self):
        assert flat(run(problem_of(of(EXHAUSTIVE, objectives=[RATE, COST]))))[-1].certificate is None

    def test_fewer_trials_than_designs_are_refused_with_the_number_needed(self):
        message = r"search\.trials: must be at least 32 for the sampler 'exhaustive', one for each design, got 24"
        with pytest.raises(StudyError, match=message):
            problem_of(of(EXHAUSTIVE, search={"trials": 24}))

    def test_a_space_too_large_to_judge_is_refused_with_the_bound_on_work(self):
        document = study(search={"sampler": EXHAUSTIVE}) | {"space": "full"}
        with pytest.raises(StudyError, match=r"space: must hold at most 100000 designs .* got 9\.4e\+12: narrow it"):
            problem_of(document)


class TestRefused:
    def test_cma_es_with_two_objectives(self):
        with pytest.raises(StudyError, match="must not be 'cmaes' with 2 objectives: it follows one"):
            problem_of(of("cmaes", objectives=[RATE, COST]))

    @pytest.mark.parametrize("sampler", [AUTO, *EVERY])
    def test_a_space_of_more_than_1e30_designs_before_work_starts(self, sampler):
        many = list(range(1, 251))
        names = ("n_cores", "vector_lanes_per_core", "scratchpad_per_core", "l2", "noc_per_core", "scale_up_link")
        space = dict.fromkeys((*names, "scale_out_link"), many) | {
            "clock": [0.5 + i / 100 for i in range(250)], "arrays_per_core": list(range(1, 65)),
            "memory_stacks": list(range(1, 65)), "array_shape": [[m, n, 1] for m in range(1, 17) for n in range(1, 17)],
            "memory_kind": ["hbm2e", "hbm3", "hbm3e", "gddr6", "lpddr5x"], "array_groups": [1, 2, 4, 8],
            "stationarity": ["output", "weight"], "second_tier": ["none", "cxl_512gb"],
        }  # fmt: skip
        with pytest.raises(StudyError, match=r"space: must hold at most 1e\+24 designs, got 1\.\de\+27: narrow"):
            problem_of(study(space=space, search={"sampler": sampler}))

    def test_a_proof_that_would_start_from_too_many_boxes(self, monkeypatch):
        problem = problem_of(study(quality=None))
        n_roots = 2 * len(alternative_windows(problem))
        monkeypatch.setattr("explorer.work_limits.MOST_ROOTS", n_roots)
        require_few_roots(problem)
        monkeypatch.setattr("explorer.work_limits.MOST_ROOTS", n_roots - 1)
        with pytest.raises(StudyError, match=rf"got {n_roots}, one for each of .* and each combination of array_shape"):
            require_few_roots(problem)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"space": {"n_cores": []}}, "space.n_cores: must hold at least one value"),
            ({"space": {"l2": list(range(257))}}, "space.l2: must hold at most 256 values, got 257"),
            ({"space": {"n_cores": [5000]}}, "must lie between 1 and 4096, got 5000"),
            ({"objectives": []}, "objectives: List should have at least 1 item"),
            ({"objectives": [{"metric": "speed", "direction": "maximize"}]}, "unknown metric 'speed'"),
            ({"objectives": [{"metric": "tdp_w"}]}, "objectives.0.direction: Field required"),
            ({"search": {"target_gap": -0.1}}, "search.target_gap: .* greater than or equal to 0, got -0.1"),
            ({"search": {"stall_trials": 0}}, "search.stall_trials: .* greater than or equal to 1, got 0"),
        ],
    )  # fmt: skip
    def test_what_breaks_a_rule_with_its_field(self, changes, message):
        with pytest.raises(StudyError, match=message):
            problem_of(study(**changes))


class TestStall:
    def test_a_sampler_ends_once_nothing_better_comes(self):
        search = {"trials": 96, "stall_trials": 20, "seed": 1}
        document = study(search=search, quality=ONE_MIX)
        problem = problem_of(document)
        records = flat(run(problem))
        assert 20 < len(records) < 96
        best = max(r.objectives[0] for r in records[:-20] if r.feasible)
        assert max(r.objectives[0] for r in records if r.feasible) < best * 1.001
        assert is_finished(problem, records)

    def test_a_proof_goes_on_to_its_gap(self):
        records = flat(run(problem_of(of(EXACT, search={"stall_trials": 1, "trials": 90}))))
        assert records[-1].certificate[0]["complete"]


def test_a_proof_that_was_caught_up_with_goes_on_as_if_it_had_never_stopped():
    document = of(EXACT, objectives=[RATE, COST], search={"trials": 90})
    whole, fresh = problem_of(document), problem_of(document)
    chunks = run(whole)
    last = len(chunks) - 1
    catch_up(fresh, last)
    (proof,) = fresh.proofs
    assert proof.chunks_done == last > 0
    assert timeless(run_chunk(fresh, flat(chunks[:last]), last)) == timeless(chunks[last])
    assert fresh.proofs[0] is proof


def test_a_sampled_study_has_nothing_to_catch_up_with():
    problem = problem_of(of("random"))
    catch_up(problem, 2)
    assert problem.proofs == []
