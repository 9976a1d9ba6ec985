"""What moved between two runs, on the two halves of the Azure conversation trace and on made-up changes."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explorer.drift import Outcome, drift_report
from explorer.files import read_yaml
from explorer.inputs import InputFile, Uploads
from explorer.report import result_document
from explorer.study import prepare, read_study, run_chunk

EXAMPLES = Path(__file__).parents[2] / "examples"


def week(rows: list[str], **changes: Any) -> Outcome:
    """A short study of the conversation trace, as a schedule runs it, on these rows of it."""
    document = copy.deepcopy(read_yaml(EXAMPLES / "azure-conversation.yaml"))
    scenario = document["workload"]["scenarios"][0]
    scenario.pop("arrivals")
    scenario["requests"] = {"trace": "week.csv"}
    document |= {"budget": {"area": "700 mm2", "tdp": "600 W"}, "space": SPACE}
    document["search"] = {"sampler": "random", "trials": 10, "seed": 0}
    document |= changes
    uploads = Uploads({"week.csv": InputFile("week.csv", "\n".join([HEADER, *rows]).encode())})
    problem = prepare(read_study(document), uploads)
    return Outcome(problem, result_document(problem, run_chunk(problem, [], 0)))


HEADER, *ROWS = (EXAMPLES / "azure2023_conv.csv").read_text().splitlines()
SPACE = {
    "n_cores": [32, 48, 64], "array_shape": [[16, 16, 16], [32, 32, 8]], "memory_stacks": [4, 5, 6],
    "native_formats": [["bf16", "fp8"]], "memory_kind": ["hbm3e"], "arrays_per_core": [1, 2], "clock": [1.4],
    "scratchpad_per_core": [256], "l2": [48, 96], "scale_up_link": [50], "scale_out_link": [50],
}  # fmt: skip


@pytest.fixture(scope="module")
def halves() -> tuple[Outcome, Outcome]:
    middle = len(ROWS) // 2
    return week(ROWS[:middle]), week(ROWS[middle:])


@pytest.fixture(scope="module")
def report(halves: tuple[Outcome, Outcome]) -> dict[str, Any]:
    return drift_report(*halves)


def columns(rows: list[str]) -> np.ndarray:
    """Input and output tokens of rows of the trace."""
    return np.array([[float(value) for value in row.split(",")[1:3]] for row in rows])


class TestTheWeeklyReport:
    def test_says_that_the_trace_was_replaced_and_nothing_else(self, report: dict[str, Any]) -> None:
        assert [each["pointer"] for each in report["inputs_changed"]] == ["week.csv"]

    def test_holds_the_statistics_of_both_halves(self, report: dict[str, Any]) -> None:
        middle = len(ROWS) // 2
        for column, side in enumerate(("input_tokens", "output_tokens")):
            old, new = (columns(rows)[:, column] for rows in (ROWS[:middle], ROWS[middle:]))
            moved = report["distribution"]["conversation"][side]
            assert moved["mean"]["before"] == pytest.approx(old.mean())
            assert moved["mean"]["after"] == pytest.approx(new.mean())
            grid = np.union1d(old, new)
            cumulative = [np.searchsorted(np.sort(values), grid, side="right") / len(values) for values in (old, new)]
            assert moved["largest_difference_fraction"] == pytest.approx(np.abs(cumulative[0] - cumulative[1]).max())
            assert moved["moved"]

    def test_judges_the_old_recommendation_on_the_new_week(
        self, report: dict[str, Any], halves: tuple[Outcome, Outcome]
    ) -> None:
        metric = "sustainable_output_tokens_per_s"
        staying = report["recommended"]["staying"]
        best = halves[1].result["recommended"]["metrics"][metric]
        assert staying["loss_fractions"][metric] == pytest.approx(1.0 - staying["metrics"][metric] / best)
        assert staying["loss_fractions"][metric] >= -1e-9
        assert report["recommended"]["same_design"] == (
            halves[0].result["recommended"]["params"] == halves[1].result["recommended"]["params"]
        )

    def test_explains_the_change_by_terms_that_add_up(
        self, report: dict[str, Any], halves: tuple[Outcome, Outcome]
    ) -> None:
        why, metric = report["why"], "sustainable_output_tokens_per_s"
        rates = [each[metric] for each in (halves[0].result["recommended"]["metrics"],
                                           report["recommended"]["staying"]["metrics"])]  # fmt: skip
        for terms in (why["time_terms"], why["resources"]):
            for when, rate in zip(("before", "after"), rates, strict=True):
                assert sum(each[when] for each in terms) == pytest.approx(1.0 / rate, rel=1e-12)
            # the change is a fortieth of the time, so rounding shows in it forty times as large
            assert sum(each["change"] for each in terms) == pytest.approx(1.0 / rates[1] - 1.0 / rates[0], rel=1e-9)
            assert sum(each["share_of_change_ratio"] for each in terms) == pytest.approx(1.0, rel=1e-9)
        assert why["largest"] == max(why["time_terms"], key=lambda each: abs(each["change"]))["term"]
        cost = why["usd_per_million_output_tokens"]
        assert sum(each["change"] for each in why["cost_terms"]) == pytest.approx(cost["after"] - cost["before"])

    def test_says_it_in_one_sentence(self, report: dict[str, Any]) -> None:
        assert "inputs are 13% shorter" in report["summary"]
        assert report["why"]["largest"] in report["summary"]


def test_equal_runs_have_moved_nothing(halves: tuple[Outcome, Outcome]) -> None:
    report = drift_report(halves[0], halves[0])
    assert report["inputs_changed"] == []
    assert report["recommended"]["same_design"]
    assert report["why"]["s_per_output_token"]["change_fraction"] == 0.0
    assert report["front"]["moved"] is False
    assert report["distribution"]["conversation"]["input_tokens"]["largest_difference_fraction"] == 0.0


def test_longer_answers_show_in_the_distribution_alone() -> None:
    rows = ROWS[:2000]
    longer = [",".join([a, i, str(2 * int(o))]) for a, i, o in (row.split(",") for row in rows)]
    moved = drift_report(week(rows), week(longer))["distribution"]["conversation"]
    assert moved["output_tokens"]["mean"]["change_fraction"] == pytest.approx(1.0)
    assert not moved["input_tokens"]["moved"]


def test_a_changed_limit_is_an_input_that_changed() -> None:
    rows = ROWS[:2000]
    report = drift_report(week(rows), week(rows, budget={"area": "710 mm2", "tdp": "600 W"}))
    (changed,) = report["inputs_changed"]
    assert (changed["pointer"], changed["before"], changed["after"]) == ("/budget/area", "700 mm2", "710 mm2")


def test_runs_in_which_nothing_fits_are_compared_too() -> None:
    rows = ROWS[:500]
    tight = week(rows, budget={"area": "100 mm2", "tdp": "600 W"})
    report = drift_report(tight, tight)
    assert report["recommended"]["same_design"]
    assert report["why"] is None
    assert report["front"]["designs_after"] == 0
