"""What-if: chips and designs on a workload."""

import copy
from pathlib import Path

import pytest

from explorer.document import StudyError
from explorer.evaluation import chip_or_design, evaluate_document, read_design
from explorer.files import read_yaml
from models.hardware.catalog import chip
from tests.explorer.small_studies import study

CHAT = read_yaml(Path(__file__).parents[2] / "examples" / "chat-550-150.yaml")
DESIGN = {
    "node_nm": 5, "array_m": 16, "array_n": 16, "array_k": 16, "arrays_per_core": 1, "n_cores": 64, "clock_hz": 1.6e9,
    "vector_lanes_per_core": 128, "scratchpad_bytes_per_core": 262144, "l2_bytes": 50331648,
    "noc_bytes_per_cycle_per_core": 128, "memory_kind": "hbm3", "memory_stacks": 4, "scale_up_bytes_per_s": 3e11,
    "tdp_w": 500,
}  # fmt: skip


@pytest.fixture(scope="module")
def judged():
    return {name: evaluate_document({"chip": name, "study": CHAT}) for name in ("a100_sxm", "h100_sxm")}


def ahead(study_document):
    """Output rate of the H100 over that of the A100."""
    found = [evaluate_document({"chip": name, "study": study_document}) for name in ("a100_sxm", "h100_sxm")]
    return found[1]["metrics"]["output_tokens_per_s"] / found[0]["metrics"]["output_tokens_per_s"]


def test_chips_without_links_form_no_ring():
    ring = {"n_chips": 8, "scale_up": {"topology": "ring"}}
    with pytest.raises(
        StudyError, match=r"^chip: needs scale-up links above 0 B/s, since the chips of a node form a r"
    ):
        evaluate_document({"chip": "l40s", "study": CHAT | {"system": ring}})
    without = DESIGN | {"scale_up_bytes_per_s": 0.0}
    with pytest.raises(StudyError, match=r"^design\.scale_up_bytes_per_s: needs scale-up links above 0 B/s"):
        evaluate_document({"design": without, "study": CHAT | {"system": ring}})


@pytest.mark.parametrize("quality", ["deepseek_v3", "bf16"])
def test_the_h100_is_ahead_of_the_a100_by_its_rates_where_no_latency_is_asked(quality):
    # published rates: 989 against 312 TFLOP/s in bf16, 1979 in fp8 against 624 in int8, 3.35 against 2.04 TB/s
    document = copy.deepcopy(CHAT) | {"quality": {"no_worse_than": quality}}
    document["workload"]["scenarios"][0]["slo"] = {}
    assert 1.2 < ahead(document) < 4.0


def test_a_latency_limit_never_narrows_the_lead_of_the_h100_below_its_bandwidth(judged):
    rates = [judged[name]["metrics"]["output_tokens_per_s"] for name in ("a100_sxm", "h100_sxm")]
    assert rates[1] / rates[0] > 3.35 / 2.04


ROOFLINES = [("a100_sxm", 624e12, 2.04e12), ("h100_sxm", 1979e12, 3.35e12)]


@pytest.mark.parametrize(("name", "flop_per_s", "bytes_per_s"), ROOFLINES)
def test_neither_chip_beats_the_roofline(judged, name, flop_per_s, bytes_per_s):
    found = judged[name]
    assert found["serves"]
    metrics, point = found["metrics"], found["operating_point"]
    # every request computes 550 + 150 tokens with 69.5e9 parameters in the layers, at the 8-bit rate at best
    assert metrics["requests_per_s"] * 2 * 69.5e9 * 700 <= 8 * flop_per_s
    # every step of a group reads all weights of the layers
    weight_bytes = 68.4e9 * point["weight_bits"]["ffn_down"] / 8
    assert metrics["step_s"] >= weight_bytes / (point["plan"]["tensor_parallel"] * bytes_per_s)
    assert metrics["step_s"] < 20 * weight_bytes / (point["plan"]["tensor_parallel"] * bytes_per_s)


def test_a_chip_says_how_sure_its_figures_are(judged):
    stated = judged["h100_sxm"]["chip"]
    assert stated["id"] == "h100_sxm" and stated["confidence"] == chip("h100_sxm").confidence


def test_a_design_is_judged_with_memory_rates_of_its_kind_and_stacks():
    found = evaluate_document({"design": DESIGN, "study": study(quality=None)})
    assert found["design"]["memory_bandwidth_bytes_per_s"] == pytest.approx(4 * 819.2e9)
    assert found["serves"] and found["feasible"] == (max(found["excess_fractions"].values()) <= 0)
    assert "chip" not in found


def test_a_chip_over_budget_still_serves():
    found = evaluate_document({"chip": "h100_sxm", "study": study(quality=None)})
    assert found["serves"] and not found["feasible"] and found["excess_fractions"]["area"] > 0


def test_a_chip_that_cannot_hold_the_network_says_by_how_much():
    found = evaluate_document({"chip": "h100_sxm", "study": study({"network": "llama-3.1-405b"}, quality=None)})
    assert not found["serves"] and 1 < found["excess_fractions"]["memory_capacity"] < 10


BAD = {
    "neither": ({"study": study()}, "/chip", "exactly one of chip and design"),
    "both": ({"chip": "h100_sxm", "design": {}, "study": study()}, "/chip", "exactly one of chip and design"),
    "no study": ({"chip": "h100_sxm"}, "/study", "must be a study document"),
    "unknown field": ({"chip": "h100_sxm", "study": study(), "x": 1}, "/x", "is no known field"),
    "unknown chip": ({"chip": "h10", "study": study()}, "/chip", "unknown chip 'h10', did you mean"),
    "fault in the study": ({"chip": "h100_sxm", "study": study(budget={"area": 5, "tdp": "9 W"})}, "/study/budget/area",
                           "must carry a unit"),
    "design as a list": ({"design": [], "study": study()}, "/design", "must be a mapping"),
    "unknown parameter": ({"design": DESIGN | {"n_core": 1}, "study": study()}, "/design/n_core",
                          "did you mean 'n_cores'"),
    "missing parameter": ({"design": {"n_cores": 1}, "study": study()}, "/design", "is missing"),
    "text for a number": ({"design": DESIGN | {"n_cores": "64"}, "study": study()}, "/design/n_cores",
                          "must be a number [1], got '64'"),
    "unknown code": ({"design": DESIGN | {"memory_kind": "hbm9"}, "study": study()}, "/design/memory_kind",
                     "unknown memory kind 'hbm9'"),
    "code out of range": ({"design": DESIGN | {"memory_kind": 99}, "study": study()}, "/design/memory_kind",
                          "must be a name or code of MemoryKind, got 99"),
    "half a code": ({"design": DESIGN | {"stationarity": 0.5}, "study": study()}, "/design/stationarity",
                    "must be a name or code of Stationarity, got 0.5"),
    "huge": ({"design": DESIGN | {"l2_bytes": 10**400}, "study": study()}, "/design/l2_bytes", "must be at most 1e+30"),
    "NaN": ({"design": DESIGN | {"clock_hz": float("nan")}, "study": study()}, "/design", "clock_hz"),
    "negative": ({"design": DESIGN | {"l2_bytes": -1}, "study": study()}, "/design",
                 "l2_bytes must be zero or positive"),
    "many": ({"design": DESIGN | {"n_cores": [1, 2]}, "study": study()}, "/design/n_cores", "must be a number"),
}  # fmt: skip


@pytest.mark.parametrize(("document", "pointer", "detail"), BAD.values(), ids=BAD)
def test_a_fault_is_refused_with_pointer_and_rule(document, pointer, detail):
    with pytest.raises(StudyError) as caught:
        evaluate_document(document)
    assert caught.value.errors[0]["pointer"] == pointer
    assert detail in caught.value.errors[0]["detail"]


def test_a_name_is_a_design_file_where_one_exists_and_a_chip_otherwise(tmp_path):
    (tmp_path / "mine.yaml").write_text("n_cores: 3\n")
    assert chip_or_design("mine.yaml", tmp_path) == {"design": {"n_cores": 3}}
    assert chip_or_design("a100_sxm", tmp_path) == {"chip": "a100_sxm"}
    with pytest.raises(StudyError, match="did you mean 'a100_sxm'"):
        chip_or_design("a100_sx", tmp_path)


def test_a_design_read_twice_is_the_same():
    first, second = read_design(DESIGN), read_design(dict(reversed(DESIGN.items())))
    assert all(getattr(first, name) == getattr(second, name) for name in DESIGN if name != "memory_kind")
