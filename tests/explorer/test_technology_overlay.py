"""Private technology in a study: through search and what-if, echoed and hashed; bad rows by number."""

import json

import pytest

from explorer.document import StudyError
from explorer.evaluation import evaluate_document
from explorer.identity import workload_hash
from explorer.inputs import with_named_workload
from explorer.run import explore_study
from explorer.study import read_study
from models.technology import default_technology
from tests.explorer.small_studies import STUDY
from tests.explorer.test_evaluation import DESIGN

ROW = {"quantity": "price_usd_per_byte", "variant": "hbm3", "value": 4.5e-8, "unit": "USD/B", "source": "contract"}
FILE = "quantity,node_nm,variant,value,unit,source\nwafer_price_used,5,,30000,USD,foundry\nutilization,,,0.9,1,fleet\n"


def with_overlay(overlay, **changes):
    return STUDY | {"technology": {"node_nm": 5, "overlay": overlay}} | changes


def test_a_what_if_uses_private_rows_and_says_so():
    plain, ours = (evaluate_document({"chip": "h100_sxm", "study": s}) for s in (STUDY, with_overlay([ROW])))
    assert ours["metrics"]["unit_cost_usd"] > 1.5 * plain["metrics"]["unit_cost_usd"]
    assert ours["metrics"]["usd_per_unit"] > plain["metrics"]["usd_per_unit"]
    assert ours["metrics"]["area_mm2"] == plain["metrics"]["area_mm2"]
    assert ours["technology"]["overlay"][0]["source"] == "contract"
    assert plain["technology"] == {"digest": default_technology().digest, "overlay": []}
    assert ours["technology"]["digest"] != plain["technology"]["digest"]


def test_a_file_beside_the_study_is_written_out_searched_with_and_hashed(tmp_path):
    (tmp_path / "ours.csv").write_text(FILE)
    objective = {"metric": "usd_per_million_output_tokens", "direction": "minimize"}
    study = with_overlay("ours.csv", objectives=[objective], search={"sampler": "random", "trials": 8})
    ours = explore_study(study, tmp_path, lambda done, total: None)
    plain = explore_study(study | {"technology": {"node_nm": 5}}, tmp_path, lambda done, total: None)
    assert [row["quantity"] for row in ours["study"]["technology"]["overlay"]] == ["wafer_price_used", "utilization"]
    assert ours["technology"]["digest"] != plain["technology"]["digest"]
    assert ours["study_hash"] != plain["study_hash"]
    cost = [each["recommended"]["metrics"]["usd_per_million_output_tokens"] for each in (ours, plain)]
    assert cost[0] < 0.8 * cost[1]  # nine tenths of the time in work instead of six


def test_equal_rows_from_a_file_and_in_the_document_are_the_same_work(tmp_path):
    (tmp_path / "ours.csv").write_text(FILE)
    named = read_study(with_named_workload(with_overlay("ours.csv"), tmp_path))
    rows = json.loads(json.dumps(named.technology.model_dump(mode="json")["overlay"]))
    assert workload_hash(named, tmp_path) == workload_hash(read_study(with_overlay(rows)), None)
    assert workload_hash(named, tmp_path) != workload_hash(read_study(STUDY), None)


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("utilization,,,0.5,%,fleet", "ours.csv row 4: unit must be 1, got '%'"),
        ("utilization,,,0.5,1,", "ours.csv row 4: source must not be empty"),
        ("utilisation,,,0.5,1,fleet", "ours.csv row 4: unknown technology constant 'utilisation', did you mean"),
    ],
)
def test_a_bad_row_of_a_file_is_refused_by_file_and_row(tmp_path, line, rule):
    (tmp_path / "ours.csv").write_text(FILE + line + "\n")
    with pytest.raises(StudyError) as caught:
        with_named_workload(with_overlay("ours.csv"), tmp_path)
    assert caught.value.errors[0]["pointer"] == "/technology/overlay"
    assert caught.value.errors[0]["detail"].startswith(rule)


def test_a_bad_inline_row_and_a_missing_file_are_refused_at_their_field():
    with pytest.raises(StudyError, match=r"technology.overlay: overlay row 2: unit must be USD/B, got 'USD'"):
        read_study(with_overlay([ROW | {"unit": "USD"}]))
    with pytest.raises(StudyError, match=r"technology.overlay: unknown file 'none.csv'"):
        with_named_workload(with_overlay("none.csv"), None)


@pytest.mark.parametrize("node_nm", [2, 65])
def test_a_node_outside_the_tables_is_refused_with_the_range(node_nm):
    with pytest.raises(StudyError, match=rf"technology: node_nm must be between 3 and 28 nm .* got {node_nm}"):
        read_study(STUDY | {"technology": {"node_nm": node_nm}})


def test_a_node_between_rows_is_interpolated_and_flagged():
    study = STUDY | {"technology": {"node_nm": 5.5}, "search": {"sampler": "random", "trials": 4, "seed": 3}}
    result = explore_study(study, None, lambda done, total: None)
    assert result["feasible"]
    assert "node_interpolated" in {each["code"] for each in result["warnings"]}
    flagged = evaluate_document({"design": DESIGN | {"node_nm": 5.5}, "study": STUDY})
    quantities = [each["quantities"] for each in flagged["warnings"] if each["code"] == "node_interpolated"]
    assert "energy_scale_used" in quantities[0]
