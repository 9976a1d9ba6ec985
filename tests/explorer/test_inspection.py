"""Shape of the work of traces and studies."""

import pytest

from explorer.document import StudyError
from explorer.inspection import inspect_study
from explorer.workload_file import inspect_file
from tests.explorer.small_studies import study
from tests.explorer.test_workload import LIST, TRAINING, VISION, mixture, of_kind

ROWS = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6,100,10\n2023-11-16 18:15:50.9,300,30\n"


def test_a_trace_of_any_known_format_has_statistics_classes_and_their_error(tmp_path):
    (tmp_path / "azure.csv").write_text(ROWS)
    document = inspect_file(tmp_path / "azure.csv")
    assert document["kind"] == "trace"
    assert document["requests"]["input_tokens"]["mean"] == 200
    assert document["requests"]["output_tokens"]["p50"] == 20
    assert document["requests"]["count"] == 2
    assert document["classes"]["prefill_error_fraction"] <= document["classes"]["error_fraction"]


def test_a_study_of_one_serving_scenario_has_its_requests_at_the_top():
    document = inspect_study(study(), None)
    assert document["requests"] == document["scenarios"][0]["requests"]
    assert document["requests"]["input_tokens"]["mean"] == pytest.approx(600, rel=0.01)


@pytest.mark.parametrize("scenario", [VISION, LIST, TRAINING], ids=lambda s: s["kind"])
def test_every_kind_becomes_operators_whose_shares_add_to_one(scenario):
    document = inspect_study(of_kind(scenario, system={"n_chips": 16, "n_chips_per_node": 8}), None)
    operators = document["scenarios"][0]["operators"]
    for name in ("flop_fraction", "bytes_fraction", "roofline_fraction"):
        assert sum(kind[name] for kind in operators["by_kind"].values()) == pytest.approx(1)
    assert operators["totals"]["arithmetic_intensity_flop_per_byte"] > 0
    times = [row["roofline_s"] for row in operators["largest"]]
    assert times == sorted(times, reverse=True)


def test_work_and_bytes_of_a_list_are_those_of_its_matrices():
    document = of_kind(LIST)
    document["quality"] = {"no_worse_than": "bf16"}
    operators = inspect_study(document, None)["scenarios"][0]["operators"]
    assert operators["totals"]["flop"] == 2 * 2 * 512**3
    assert operators["totals"]["bytes"] == 2 * 3 * 512**2 * 2
    assert operators["gemm_sizes"]["flop"]["m"] == {"p10": 512, "p50": 512, "p90": 512}


def test_a_convnet_has_the_published_work():
    operators = inspect_study(of_kind(VISION), None)["scenarios"][0]["operators"]
    assert operators["totals"]["flop"] == pytest.approx(2 * 4 * 4.089e9, rel=1e-3)


def test_a_mixture_is_inspected_scenario_by_scenario_without_searching():
    document = inspect_study(mixture(), None)
    assert [each["name"] for each in document["scenarios"]] == ["vision", "chat"]
    assert "requests" in document
    assert "requests" not in document["scenarios"][0]


def test_a_malformed_trace_is_refused_with_its_line(tmp_path):
    (tmp_path / "bad.csv").write_text("arrival_s,input_tokens,output_tokens\n0,10,5\n1,ten,5\n")
    with pytest.raises(StudyError, match=r"bad\.csv line 3"):
        inspect_file(tmp_path / "bad.csv")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &x [*x]\n", "line 1: aliases are not allowed"),
        ("a: !!python/object/apply:os.system [ls]\n", "line 1: could not determine a constructor"),
        ("name: x\n", "workload: Field required"),
    ],
    ids=["cyclic", "tag", "no study"],
)
def test_yaml_that_is_no_plain_study_is_refused(tmp_path, text, message):
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(StudyError, match=message):
        inspect_file(tmp_path / "bad.yaml")


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(StudyError, match="no trace file"):
        inspect_file(tmp_path / "none.csv")
