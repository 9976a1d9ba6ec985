"""Explanations of trials, chips and designs of one's own, and the parts that search again."""

import json

import numpy as np
import pytest

from explorer.document import StudyError
from explorer.explanation.asked import Asked, explain, explain_file
from explorer.explanation.next_budget import next_budget
from explorer.problem import judge_points
from explorer.records import records_of
from explorer.report import final_document
from tests.explorer.small_studies import all_points, problem_of, study, with_limits

STUDY = study(search={"target_gap": 0.0})
PROBLEM = problem_of(STUDY)
POINTS = all_points(PROBLEM.space)
RECORDS = records_of(PROBLEM, POINTS, judge_points(PROBLEM, POINTS), 0)


def enumerated_rate(problem):
    judgement = judge_points(problem, POINTS)
    return float(np.max(np.where(judgement.feasible, judgement.objectives[:, 0], 0.0)))


@pytest.fixture(scope="module")
def recommended():
    return explain(PROBLEM, RECORDS, Asked())


def test_the_recommended_trial_is_explained_where_none_is_named(recommended):
    best = max((r for r in RECORDS if r.feasible), key=lambda r: r.objectives[0])
    assert RECORDS[recommended["trial"]].objectives == best.objectives
    assert recommended["design"] == RECORDS[recommended["trial"]].design
    json.dumps(recommended, allow_nan=False)


def test_every_neighbour_is_the_trial_of_its_parameters(recommended):
    here = RECORDS[recommended["trial"]]
    rows = recommended["explanation"]["parameter_sensitivity"]
    assert {row["parameter"] for row in rows} == {p.name for p in PROBLEM.space.parameters if len(p.values) > 1}
    for row in rows:
        params = here.params | {row["parameter"]: row["to"]}
        there = next(r for r in RECORDS if r.params == params)
        assert row["feasible"] == there.feasible and row.get("breaks") == there.violated
        gain = there.objectives[0] / here.objectives[0] - 1.0
        assert row["gain_fraction"]["sustainable_output_tokens_per_s"] == pytest.approx(gain)


def test_chips_to_buy_come_best_first_with_the_design_against_them(recommended):
    chips = recommended["explanation"]["build_or_buy"]
    rates = [row["values"]["sustainable_output_tokens_per_s"] for row in chips]
    assert len(chips) > 20 and rates == sorted(rates, reverse=True)
    own = RECORDS[recommended["trial"]].objectives[0]
    better = chips[0]["design_better_fraction"]["sustainable_output_tokens_per_s"]
    assert better == pytest.approx(own / rates[0] - 1.0)


def test_returns_of_compute_and_of_the_cores_agree_in_sign(recommended):
    rows = {row["resource"]: row for row in recommended["explanation"]["resource_return"]}
    for row in rows.values():
        assert row["gain_per_percent"]["sustainable_output_tokens_per_s"] >= -1e-9
    assert rows["cores"]["area_mm2"] > rows["vector_lanes"]["area_mm2"] > 0
    assert rows["memory_stacks"]["gain_fraction_per_mm2"] is not None
    assert rows["power_cap"]["gain_fraction_per_mm2"] is None


def test_the_summary_states_the_numbers_of_the_explanation(recommended):
    explanation = recommended["explanation"]
    first = explanation["bottleneck_chain"][0]
    assert f"{first['factor']:.2g} times as much gains {100 * first['gain_fraction']:.1f} %" in explanation["summary"]
    assert explanation["build_or_buy"][0]["name"] in explanation["summary"]


def test_the_next_tenth_of_a_budget_buys_what_enumeration_finds():
    found = next_budget(PROBLEM, 20.0)
    assert found["now"]["complete"] and found["area"]["complete"] and found["power"]["complete"]
    assert found["now"]["best"] == pytest.approx(enumerated_rate(PROBLEM))
    larger = with_limits(PROBLEM, area_mm2=1.1 * PROBLEM.document.budget.area)
    assert found["area"]["best"] == pytest.approx(enumerated_rate(larger))
    low, high = found["area"]["gain_between_fraction"]
    gain = enumerated_rate(larger) / enumerated_rate(PROBLEM) - 1.0
    assert low - 1e-9 <= gain <= high + 1e-9
    assert found["area"]["gain_fraction"] == pytest.approx(gain)


def test_a_search_that_had_no_time_says_how_wide_its_gap_is():
    found = next_budget(PROBLEM, 0.0)
    assert not found["now"]["complete"]
    json.dumps(found, allow_nan=False)


def test_a_result_file_explains_what_the_study_did():
    result = json.loads(json.dumps(final_document(PROBLEM, RECORDS)))
    explained = explain_file(result, None, None, Asked())
    assert explained["trial"] == result["recommended"]["trial"]
    chain, stored = explained["explanation"]["bottleneck_chain"], result["explanation"]["bottleneck_chain"]
    assert [step["resource"] for step in chain] == [step["resource"] for step in stored]
    assert explained["explanation"]["slack_fractions"] == pytest.approx(result["explanation"]["slack_fractions"])


def test_a_chip_is_explained_on_the_work_of_a_study():
    explained = explain_file(STUDY, None, None, Asked(chip="h100_sxm"))
    assert explained["chip"] == "h100_sxm"
    assert "parameter_sensitivity" not in explained["explanation"]
    assert len(explained["explanation"]["bottleneck_chain"]) >= 4


def test_nothing_is_explained_where_nothing_is_feasible_and_nothing_named():
    assert explain(PROBLEM, [r for r in RECORDS if not r.feasible], Asked()) == {}


@pytest.mark.parametrize(
    ("document", "asked", "words"),
    [
        (STUDY, Asked(), "name a chip or a design file"),
        (STUDY, Asked(chip="h10"), "unknown chip"),
        ([], Asked(), "must be a study or the result of one"),
    ],
    ids=["a study alone", "unknown chip", "neither"],
)
def test_what_cannot_be_explained_is_said(document, asked, words):
    with pytest.raises(StudyError, match=words):
        explain_file(document, None, None, asked)


def test_an_unknown_trial_is_said():
    with pytest.raises(StudyError, match="must be a trial of the study"):
        explain(PROBLEM, RECORDS, Asked(trial=10**6))
