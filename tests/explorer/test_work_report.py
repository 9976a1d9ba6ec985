"""Sizes and cost of movement in evaluations and explanations."""

import json

import pytest

from explorer.document import StudyError
from explorer.evaluation import evaluate_document
from explorer.study import read_study
from models.metrics.reported import REPORTED
from tests.explorer.small_studies import CHAT, study

VISION = {"name": "vision", "kind": "convnet", "network": "resnet-50", "batch": 4, "weight": 1.0}


@pytest.fixture(scope="module")
def answer():
    wide = study(quality={"no_worse_than": "bf16"})
    return evaluate_document({"chip": "h100_sxm", "against": {"chip": "a100_sxm"}, "study": wide})


def test_an_evaluation_states_every_reported_metric(answer):
    assert set(REPORTED) <= set(answer["metrics"])
    assert answer["metrics"]["reshape_cost"] == answer["reshape_cost"]["time_fraction"]
    json.dumps(answer, allow_nan=False)


def test_the_three_sizes_stand_side_by_side(answer):
    sizes = answer["sizes"]
    assert sizes["task"]["unit"] == "request" and sizes["task"]["results_per_unit"] == sizes["task"]["output_tokens"]
    curve = sizes["compute"]["curve"]
    assert len({len(curve[name]) for name in ("side", "compute_utilization", "work_fraction")}) == 1
    assert sum(curve["work_fraction"]) == pytest.approx(1.0)
    assert sum(row["work_fraction"] for row in sizes["compute"]["products"]) == pytest.approx(1.0)
    # a step of four sequences reads 15 GB of weights (7.5 billion in the layers and the head) for four tokens
    assert 3.7e9 < sizes["data"]["bytes_per_result"]["main_memory"] < 5e9


def test_items_of_movement_add_up_by_layer_and_by_when_they_are_paid(answer):
    moved = answer["reshape_cost"]
    for name in ("seconds_per_unit", "energy_per_unit_j"):
        whole = sum(row[name] for row in moved["items"])
        assert sum(each[name] for each in moved["by_layer"].values()) == pytest.approx(whole)
        assert sum(each[name] for each in moved["by_paid"].values()) == pytest.approx(whole)
        assert moved[name] == pytest.approx(whole)


def test_weights_are_loaded_once_over_the_link_to_the_host(answer):
    (load,) = [row for row in answer["reshape_cost"]["paid_once"] if row["paid"] == "load"]
    # 8.03 billion parameters of two bytes
    assert load["bytes"] == pytest.approx(2 * 8.03e9, rel=0.01)
    assert load["seconds"] == pytest.approx(load["bytes"] / answer["design"]["host_bytes_per_s"])


def test_a_comparison_shows_where_the_cost_of_movement_went(answer):
    against = answer["against"]
    assert against["chip"]["id"] == "a100_sxm"
    changes = against["moved_cost"]
    total = sum(row["seconds_per_unit_change"] for row in changes)
    assert sum(row["seconds_per_unit_after"] for row in changes) == pytest.approx(
        answer["reshape_cost"]["seconds_per_unit"]
    )
    assert total == pytest.approx(sum(r["seconds_per_unit_after"] - r["seconds_per_unit_before"] for r in changes))
    sizes = [abs(row["seconds_per_unit_change"]) for row in changes]
    assert sizes == sorted(sizes, reverse=True)


def test_a_mixture_has_sizes_and_movement_of_each_scenario():
    scenarios = [CHAT | {"weight": 1.0}, VISION]
    document = study(quality={"no_worse_than": "w8a8_kv8"}) | {"workload": {"scenarios": scenarios}}
    document["objectives"] = [{"metric": "combined_relative_rate", "direction": "maximize"}]
    found = evaluate_document({"chip": "h100_sxm", "against": {"chip": "l40s"}, "study": document})
    assert set(found["sizes"]) == set(found["reshape_cost"]) == {"chat", "vision"}
    assert found["sizes"]["vision"]["task"]["unit"] == "image"
    assert set(REPORTED) <= set(found["metrics"]["scenarios"]["vision"])
    assert {row["scenario"] for row in found["against"]["moved_cost"]} == {"chat", "vision"}


@pytest.mark.parametrize(
    ("against", "pointer", "detail"),
    [
        ({"chip": "h10"}, "/against/chip", "unknown chip 'h10', did you mean"),
        ({"chip": "h100_sxm", "design": {}}, "/against", "exactly one of chip and design"),
        ("h100_sxm", "/against", "exactly one of chip and design"),
    ],
)
def test_a_design_to_compare_with_that_is_none_is_named(against, pointer, detail):
    with pytest.raises(StudyError, match=detail) as caught:
        evaluate_document({"chip": "h100_sxm", "against": against, "study": study(quality=None)})
    assert caught.value.errors[0]["pointer"] == pointer


def test_a_reported_metric_is_no_objective():
    document = study(quality=None) | {"objectives": [{"metric": "size_hit_rate", "direction": "maximize"}]}
    with pytest.raises(StudyError, match="reported of a design at its operating point and cannot be searched for"):
        from explorer.problem import prepare

        prepare(read_study(document))


def test_a_chip_without_links_between_its_chips_still_gets_an_answer():
    document = study(quality=None) | {"system": {"n_chips": 8}}
    document["workload"]["scenarios"][0]["network"] = "llama-3.1-70b"
    design = evaluate_document({"chip": "h100_sxm", "study": document})["design"] | {"scale_up_bytes_per_s": 0.0}
    found = evaluate_document({"design": design, "study": document})
    json.dumps(found, allow_nan=False)


def test_the_recommended_design_of_a_study_states_the_reported_metrics():
    from explorer.run import explore_study

    result = explore_study(study(quality=None), None, lambda done, total: None)
    explained = result["explanation"]
    assert set(REPORTED) <= set(result["recommended"]["metrics"])
    assert explained["reshape_cost"]["time_fraction"] == result["recommended"]["metrics"]["reshape_cost"]
    assert "sizes" in explained
