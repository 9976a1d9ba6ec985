"""Regret over the alternatives of a study: as an objective equal to enumeration, as a report of one design."""

import numpy as np
import pytest

from explorer.document import StudyError
from explorer.exact import ExactSearch
from explorer.problem import judge_points
from explorer.records import records_of
from explorer.regret import alone
from explorer.robustness import robustness_report, with_alternatives
from explorer.study import prepare, read_study
from tests.explorer.small_studies import all_points, study

ALTERNATIVES = [
    {"name": "long", "requests": {"input": {"mean": 4000, "std": 1000}, "output": {"mean": 300, "std": 50}}},
    {"name": "small", "network": "qwen2.5-7b"},
]
REGRET = [{"metric": "regret", "direction": "minimize"}]


def document(**changes):
    return read_study(study(robustness=ALTERNATIVES, **changes))


def test_an_alternative_is_the_scenario_with_what_it_states_exchanged():
    own, long, small = with_alternatives(document()).workload.scenarios
    assert (long.name, long.network, long.weight) == ("long", own.network, 0.0)
    assert long.requests != own.requests and long.batching == own.batching
    assert small.network == "qwen2.5-7b" and small.requests == own.requests


def test_the_certified_minimax_regret_is_that_of_enumeration():
    problem = prepare(document(objectives=REGRET))
    points = all_points(problem.space)
    rates = []
    for i in range(3):
        judged = judge_points(alone(problem, i), points)
        rates.append(np.where(judged.feasible, judged.objectives[:, 0], 0.0))
    # against the bound on the best rate, which the search for it leaves at most 1 % above
    best = problem.mixture.best_units_per_s()
    np.testing.assert_allclose(best, np.max(rates, axis=1), rtol=0.011)
    least = np.min(np.max(1.0 - np.array(rates) / best[:, None], axis=0))
    search = ExactSearch(problem, problem.objectives[0], 0.0)
    search.advance(10_000)
    assert search.complete
    assert search.objective.value(search.incumbent.cost) == pytest.approx(least, abs=1e-9)
    assert search.objective.value(search.bound) == pytest.approx(least, abs=1e-6)


def test_a_report_says_what_a_design_keeps_of_the_best_of_each_scenario():
    problem = prepare(document())
    points = all_points(problem.space)
    judged = judge_points(problem, points)
    best = int(np.argmax(np.where(judged.feasible, judged.objectives[:, 0], -np.inf)))
    record = records_of(problem, points[[best]], judge_points(problem, points[[best]]), 0)[0]
    report = robustness_report(problem, record)
    own, *others = report["scenarios"]
    assert [row["name"] for row in report["scenarios"]] == ["chat", "long", "small"]
    assert own["regret"] == pytest.approx(0.0, abs=1e-9)
    for row in others:
        assert 0.0 <= row["regret"] <= row["regret_at_most"] <= 1.0
        assert row["rate_per_s"] <= row["best_per_s"] <= row["bound_per_s"]
    assert report["largest_regret"] == max(row["regret"] for row in report["scenarios"])


def test_alternatives_of_anything_but_served_requests_are_refused_by_name():
    convnet = {"name": "vision", "kind": "convnet", "network": "resnet-50"}
    changed = study(robustness=ALTERNATIVES)
    changed["workload"]["scenarios"] = [convnet]
    with pytest.raises(StudyError, match="needs a first scenario of kind llm_serving, got convnet"):
        with_alternatives(read_study(changed))
