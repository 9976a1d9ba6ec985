"""Replayed percentiles of designs: of a result, of an evaluation, of a named trace."""

import copy

import numpy as np
import pytest

from explorer.document import StudyError
from explorer.evaluation import evaluate_document
from explorer.percentiles import design_percentiles
from explorer.report import front_of, percentiles_of, result_document
from explorer.study import run_chunk
from models.hardware.catalog import chip_designs
from tests.explorer.small_studies import problem_of, study

SLO = {"ttft_p95": "2 s", "tpot_p95": "100 ms"}


def asked(arrivals, **changes):
    document = copy.deepcopy(study())
    document["workload"]["scenarios"][0] |= {"arrivals": arrivals, "slo": SLO} | changes
    return document


def chip_point(document, chip="a100_sxm"):
    return evaluate_document({"chip": chip, "study": document})["operating_point"]


def replayed(document, chip="a100_sxm", **asks):
    return evaluate_document({"chip": chip, "study": document, "replay": True} | asks)["percentiles"]


def test_every_design_on_the_front_has_percentiles_load_and_goodput():
    problem = problem_of(asked({"load": 0.7}))
    records = run_chunk(problem, [], 0)
    document = result_document(problem, records)
    assert len(document["pareto"]) == len(front_of(problem, records))
    for point in document["pareto"]:
        values = point["percentiles"]
        assert values["ttft_p50_s"] <= values["ttft_p95_s"] <= values["ttft_p99_s"]
        assert values["load"] == pytest.approx(0.7, rel=0.05)
        assert values["goodput_output_tokens_per_s"] > 0
    assert document["recommended"]["percentiles"] in [point["percentiles"] for point in document["pareto"]]


def test_closed_form_latencies_of_the_search_are_lower_bounds_of_the_replayed_ones():
    problem = problem_of(asked({"load": 0.7}))
    front = front_of(problem, run_chunk(problem, [], 0))
    for record, values in zip(front, percentiles_of(problem, front), strict=True):
        assert values["ttft_p95_s"] >= record.metrics["ttft_p95_s"] * 0.98


def test_a_design_alone_is_replayed_as_in_company():
    problem = problem_of(asked({"load": 0.5}))
    chips = chip_designs(["a100_sxm", "h100_sxm"])
    point = chip_point(asked({"load": 0.5})) | {"precision_mix": problem.scenarios[0].scenario.mixes[0].name}
    together = design_percentiles(problem, chips, [point, point])
    alone = design_percentiles(problem, chip_designs(["h100_sxm"]), [point])
    assert alone[0] == together[1]
    assert together[0]["sustainable_requests_per_s"] < together[1]["sustainable_requests_per_s"]


def test_nothing_is_replayed_where_a_study_says_nothing_of_arrivals():
    problem = problem_of(asked({}))
    records = run_chunk(problem, [], 0)
    assert "percentiles" not in result_document(problem, records)["recommended"]


def test_more_load_means_longer_waits():
    waits = [replayed(asked({"load": load}))["ttft_p95_s"] for load in (0.3, 0.9)]
    assert waits[0] < waits[1]


def test_a_rate_above_what_is_sustainable_is_a_result():
    low = replayed(asked({"load": 0.5}))
    values = replayed(asked({"rate": f"{4 * low['sustainable_requests_per_s']:.3f} / s"}))
    assert values["saturated"]
    assert values["load"] > 1
    assert np.isfinite(values["ttft_p95_s"])


def test_limits_that_no_rate_keeps_say_which_and_by_how_much():
    document = asked({"load": 0.5}, slo={"tpot_p95": "1 us"})
    values = replayed(document)
    assert not values["slo_feasible"]
    assert values["goodput_binding"] == "tpot_p95_s"
    assert values["slo_excess_fraction"] > 10


def test_a_named_trace_is_replayed_at_its_own_times():
    values = replayed(asked({}), replay="azure2023_code", chip="h100_sxm")
    assert values["replayed_requests"] == 8819
    assert values["load"] == pytest.approx(values["requests_per_s"] / values["sustainable_requests_per_s"], rel=1e-6)


@pytest.mark.parametrize(
    ("arrivals", "asks", "detail"),
    [
        ({}, True, "needs arrivals in the study"),
        ({"load": 0.5}, 3, "must be true or the name of a trace, got 3"),
        ({"load": 0.5}, "azure2023_cod", "did you mean 'azure2023_code'"),
    ],
)
def test_a_replay_that_cannot_be_is_refused_at_its_field(arrivals, asks, detail):
    with pytest.raises(StudyError) as raised:
        replayed(asked(arrivals), replay=asks)
    assert raised.value.errors[0]["pointer"] == "/replay"
    assert detail in raised.value.errors[0]["detail"]
