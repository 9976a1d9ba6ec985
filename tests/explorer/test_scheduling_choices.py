"""Pools, guesses and token budgets in a study, and limits that nothing keeps."""

import pytest

from explorer.document import StudyError
from explorer.evaluation import evaluate_document
from tests.explorer.small_studies import study

LOADED = {"arrivals": {"load": 0.7}, "batching": {"max_batch": 64}}
LIMITS = {"slo": {"ttft_p95": "1 s", "tpot_p95": "30 ms"}}


def judged(scenario, chip="h100_sxm", replay=True, **changes):
    document = study(LOADED | scenario, system={"n_chips": 4}, **changes)
    return evaluate_document({"chip": chip, "study": document, "replay": replay})


@pytest.fixture(scope="module")
def chunked():
    return judged(LIMITS)


def test_the_token_budget_is_one_of_those_that_nothing_beats(chunked):
    percentiles = chunked["percentiles"]
    tried = percentiles["token_budgets"]
    assert percentiles["token_budget"] in [each["token_budget"] for each in tried]
    for one in tried:
        others = [each for each in tried if each is not one]
        assert not any(
            all(other[k] <= one[k] for k in ("ttft_p95_s", "tpot_p95_s"))
            and other["sustainable_requests_per_s"] >= one["sustainable_requests_per_s"]
            for other in others
        )


def test_every_percentile_has_load_rate_and_jitter_beside_it_and_the_run_its_timeline(chunked):
    percentiles = chunked["percentiles"]
    for name in ("ttft", "tpot", "end_to_end"):
        p50, p95, p99 = (percentiles[f"{name}_p{at}_s"] for at in (50, 95, 99))
        assert 0 < p50 <= p95 <= p99
        assert percentiles[f"{name}_jitter_ratio"] == pytest.approx(p99 / p50)
    assert percentiles["load"] == pytest.approx(0.7, rel=0.1)
    assert percentiles["requests_per_s"] < percentiles["sustainable_requests_per_s"]
    timeline = percentiles["timeline"]
    assert timeline["time_s"] == sorted(timeline["time_s"]) and len(timeline["time_s"]) > 10
    assert max(timeline["decodes"]) <= chunked["operating_point"]["batch"]


def test_pools_share_the_chips_and_are_replayed():
    found = judged(LIMITS | {"scheduling": "disaggregated"})
    plan, percentiles = found["operating_point"]["plan"], found["percentiles"]
    engines = plan["prefill_engines"] + plan["decode_engines"]
    assert engines * plan["tensor_parallel"] * plan["pipeline_parallel"] == 4
    assert percentiles["ttft_p50_s"] > 0 and not percentiles["saturated"]
    # the closed form counts every prompt alone, the replay puts waiting ones together
    rate = found["metrics"]["sustainable_requests_per_s"]
    assert 0.7 * rate < percentiles["sustainable_requests_per_s"] < 2 * rate


def test_guesses_are_echoed_and_their_replay_agrees_with_the_closed_form():
    asked = {"speculation": {"draft_tokens": 3, "acceptance": 0.8, "draft_network": "llama-3.1-8b"}}
    found = judged(LIMITS | asked | {"network": "llama-3.1-70b"})
    assert found["operating_point"]["inputs"]["tokens_per_step"] == pytest.approx(2.952)
    closed, replayed = found["metrics"], found["percentiles"]
    assert replayed["sustainable_requests_per_s"] == pytest.approx(closed["sustainable_requests_per_s"], rel=0.15)


@pytest.mark.parametrize(("limit", "name"), [({"tpot_p95": "1 ms"}, "tpot_p95"), ({"ttft_p95": "1 ms"}, "ttft_p95")])
def test_a_limit_that_no_batch_keeps_names_the_term_and_by_how_much(limit, name):
    found = judged({"slo": limit}, replay=False)
    impossible = found["operating_point"]["impossible"]
    assert impossible["limit"] == name and not found["serves"]
    assert impossible["excess_fraction"] == pytest.approx(found["excess_fractions"][name])
    assert 0 < impossible["term_share_fraction"] <= 1
    assert impossible["resource"] in ("compute", "memory", "links", "overhead")
    assert found["operating_point"]["batch"] <= 2 * found["operating_point"]["plan"]["pipeline_parallel"]


BAD = {
    "one chip in two pools": ({"scheduling": "disaggregated"}, {"n_chips": 1}, "an engine of either pool"),
    "sure guesses": ({"speculation": {"draft_tokens": 2, "acceptance": 1.0}}, {"n_chips": 4}, "less than 1"),
    "unknown draft": (
        {"speculation": {"draft_tokens": 2, "acceptance": 0.5, "draft_network": "llama-9"}}, {"n_chips": 4},
        "speculation/draft_network",
    ),
    "an encoder that guesses": (
        {"speculation": {"draft_tokens": 2, "acceptance": 0.5, "draft_network": "bert-base"}}, {"n_chips": 4},
        "llm_serving needs a decoder",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("scenario", "system", "message"), BAD.values(), ids=BAD)
def test_what_cannot_be_scheduled_is_refused_at_its_field(scenario, system, message):
    with pytest.raises(StudyError) as caught:
        evaluate_document({"chip": "h100_sxm", "study": study(scenario, system=system)})
    fault = caught.value.errors[0]
    assert message in fault["detail"] or message in fault["pointer"]
