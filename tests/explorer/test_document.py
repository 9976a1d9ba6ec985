"""Study documents: every fault is refused with a pointer to its field and the rule."""

import copy
from pathlib import Path

import pytest
import yaml

from explorer.document import StudyError, read_document
from explorer.files import read_yaml
from explorer.study import prepare, read_study
from tests.explorer.small_studies import CHAT, study

EXAMPLES = Path(__file__).parents[2] / "examples"
HERE = "/workload/scenarios/0"


def faults(document):
    with pytest.raises(StudyError) as caught:
        prepare(read_study(document))
    return {each["pointer"]: each["detail"] for each in caught.value.errors}


def scenarios(*changes):
    return {**study(), "workload": {"scenarios": [CHAT | each for each in changes]}}


BAD = {
    "unknown field": (study(bugdet=1), "/bugdet", "is no known field"),
    "unknown nested field": (study({"batching": {"max": 2}}), f"{HERE}/batching/max", "is no known field"),
    "field with a slash": (study(**{"a/b~c": 1}), "/a~1b~0c", "is no known field"),
    "missing field": (study(budget={"area": "5 mm2"}), "/budget/tdp", "Field required"),
    "negative budget": (study(budget={"area": "-5 mm2", "tdp": "9 W"}), "/budget/area", "greater than 0"),
    "zero budget": (study(budget={"area": "5 mm2", "tdp": "0 W"}), "/budget/tdp", "greater than 0"),
    "unitless budget": (study(budget={"area": 500, "tdp": "9 W"}), "/budget/area", "must carry a unit"),
    "wrong dimension": (study(budget={"area": "5 W", "tdp": "9 W"}), "/budget/area", "must have the dimension"),
    "NaN budget": (study(budget={"area": "nan mm2", "tdp": "9 W"}), "/budget/area", "must be finite"),
    "NaN size": (study({"requests": {"input": {"mean": float("nan")}, "output": {"mean": 9}}}),
                 f"{HERE}/requests/input/mean", "finite number"),
    "infinite weight": (study({"weight": float("inf")}), f"{HERE}/weight", "finite number"),
    "half a stack": (study(budget={"area": "5 mm2", "tdp": "9 W", "memory_stacks": 1.5}), "/budget/memory_stacks",
                     "valid integer"),
    "unknown network": (study({"network": "llama-3.1-8bb"}), f"{HERE}/network",
                        "unknown network 'llama-3.1-8bb', did you mean 'llama-3.1-8b'? known: "),
    "uploaded network without type": (study({"network": {}}), f"{HERE}/network", "model_type is missing"),
    "encoder": (study({"network": "bert-base"}), f"{HERE}/network", "llm_serving needs a decoder"),
    "unknown kind": (study({"kind": "llm"}), HERE, "does not match any of the expected tags"),
    "no source of requests": (study({"requests": {}}), f"{HERE}/requests", "must hold exactly one of preset"),
    "two sources of requests": (study({"requests": {"preset": "a", "trace": "b"}}), f"{HERE}/requests",
                                "must hold exactly one of"),
    "half a formula": (study({"requests": {"input": {"mean": 5}}}), f"{HERE}/requests", "input with output"),
    "unknown preset": (study({"requests": {"preset": "llmperf-550-15"}}), f"{HERE}/requests/preset",
                       "did you mean 'llmperf-550-150'"),
    "unknown trace": (study({"requests": {"trace": "azure2023_con"}}), f"{HERE}/requests/trace",
                      "did you mean 'azure2023_conv'"),
    "trace outside": (study({"requests": {"trace": "../../etc/passwd"}}), f"{HERE}/requests/trace", "unknown trace"),
    "size below one": (study({"requests": {"histogram": [{"input": 0.5, "output": 5, "weight": 1}]}}),
                       f"{HERE}/requests/histogram", "must be at least 1"),
    "beyond the context": (study({"requests": {"input": {"mean": 1e6}, "output": {"mean": 5}}}), f"{HERE}/requests",
                           "must be at most 131072, the context of llama-3.1-8b"),
    "prefix of all": (study({"prefix_hit_fraction": 1}), f"{HERE}/prefix_hit_fraction", "less than 1"),
    "unknown chip": (study({"reference_chip": "h10"}), f"{HERE}/reference_chip", "unknown chip 'h10', did you mean"),
    "reference too small": (scenarios({}, {"name": "b", "network": "llama-3.1-405b"})
                            | {"objectives": [{"metric": "combined_relative_rate", "direction": "maximize"}]},
                            "/workload/scenarios/1/reference_chip", "must hold the scenario in its memory"),
    "scenarios of one name": (scenarios({}, {}), "/workload", "names of their own, got 'chat' more than once"),
    "no scenario": ({**study(), "workload": {"scenarios": []}}, "/workload/scenarios", "at least 1 item"),
    "a plan that does not divide the chips": (
        study({"plan": {"tensor_parallel": 2, "pipeline_parallel": 2}}, system={"n_chips": 6}), HERE,
        "tensor_parallel x attention_data_parallel x pipeline_parallel must divide 6 chips, got 2 x 1 x 2 = 4"),
    "a group that straddles nodes": (
        study({"plan": {"tensor_parallel": 6}}, system={"n_chips": 12, "n_chips_per_node": 4}), HERE,
        "tensor_parallel must divide a node of 4 chips or fill whole nodes, got 6"),
    "more shares than heads": (
        study({"plan": {"tensor_parallel": 64}}, system={"n_chips": 64, "n_chips_per_node": 8}), HERE,
        "tensor_parallel must be at most 32, the heads of llama-3.1-8b, got 64"),
    "groups without experts": (
        study({"plan": {"attention_data_parallel": 2}}, system={"n_chips": 2}), HERE,
        "tensor_parallel x attention_data_parallel must be at most 0, the routed experts of llama-3.1-8b, where "
        "attention_data_parallel is above 1, got 2"),
    "more stages than layers": (
        study({"plan": {"pipeline_parallel": 64}}, system={"n_chips": 64}), HERE,
        "pipeline_parallel must be at most 32, the number of layers, got 64"),
    "pools without room": (
        study({"plan": {"tensor_parallel": 2}, "scheduling": "disaggregated"}, system={"n_chips": 2}), HERE,
        "disaggregated scheduling needs chips for an engine of either pool, 4, got 2"),
    "a torus of another size": (
        study(system={"n_chips": 8, "scale_up": {"topology": "torus", "dimensions": [2, 2]}}), "/system",
        "the product of scale_up.dimensions must be 8, the chips of a node, got 4"),
    "a torus without sides": (study(system={"n_chips": 8, "scale_up": {"topology": "torus"}}), "/system/scale_up",
                              "topology 'torus' needs dimensions"),
    "a switch with sides": (study(system={"n_chips": 4, "scale_up": {"dimensions": [2, 2]}}), "/system/scale_up",
                            "topology 'switched' has no dimensions"),
    "sides of one chip": (
        study(system={"n_chips": 2, "scale_up": {"topology": "mesh", "dimensions": [1, 2]}}), "/system/scale_up",
        "dimensions must be at least 2 each, got 1"),
    "a negative network": (study(system={"scale_out": {"bandwidth": "-25 GB/s"}}), "/system/scale_out/bandwidth",
                           "Input should be greater than 0, got '-25 GB/s'"),
    "a network without links": (study(system={"scale_out": {"bandwidth": "0 GB/s"}}), "/system/scale_out/bandwidth",
                                "Input should be greater than 0, got '0 GB/s'"),
    "undersubscription": (study(system={"scale_out": {"oversubscription": 0.5}}), "/system/scale_out/oversubscription",
                          "Input should be greater than or equal to 1, got 0.5"),
    "oversubscription of nothing": (study(system={"scale_out": {"oversubscription": 2}}), "/system/scale_out",
                                    "oversubscription needs nodes_per_leaf, got 2 without"),
    "more overlap than there is": (study(system={"overlap_fraction": 1.5}), "/system/overlap_fraction",
                                   "Input should be less than or equal to 1, got 1.5"),
    "a ring of chips without links": (
        study(system={"n_chips": 4, "scale_up": {"topology": "ring"}}), "/space/scale_up_link",
        "needs scale-up links above 0 B/s, since the chips of a node form a ring"),
    "links below zero": (study(space={"scale_up_link": [-1]}), "/space/scale_up_link/0",
                         "must lie between 0 and 100000, got -1"),
    "partly filled nodes": (study(system={"n_chips": 3, "n_chips_per_node": 2}), "/system",
                            "n_chips must be a multiple of n_chips_per_node, got 3 and 2"),
    "two quality limits": (study(quality={"max_kl_nats": 1, "no_worse_than": "bf16"}), "/quality", "exactly one of"),
    "unknown recipe": (study(quality={"no_worse_than": "w8a9"}), "/quality", "did you mean 'w8a16'"),
    "unknown metric": (study(objectives=[{"metric": "ttft_p95", "direction": "minimize"}]), "/objectives/0/metric",
                       "unknown metric 'ttft_p95', did you mean 'ttft_p95_s'"),
    "metric of another kind": (study(objectives=[{"metric": "images_per_s", "direction": "maximize"}]),
                               "/objectives/0/metric", "unknown metric of llm_serving 'images_per_s'"),
    "no direction": (study(objectives=[{"metric": "tdp_w"}]), "/objectives/0/direction", "Field required"),
    "no objective": (study(objectives=[]), "/objectives", "at least 1 item"),
    "repeated metric": (study(objectives=[{"metric": "tdp_w", "direction": "minimize"}] * 2), "/objectives",
                        "must not repeat a metric"),
    "unknown sampler": (study(search={"sampler": "exat"}), "/search/sampler",
                        "unknown sampler 'exat', did you mean 'exact'"),
    "negative gap": (study(search={"target_gap": -0.1}), "/search/target_gap", "greater than or equal to 0"),
    "no trials": (study(search={"trials": 0}), "/search/trials", "greater than or equal to 1"),
    "timeout without unit": (study(search={"timeout": 60}), "/search/timeout", "must carry a unit"),
    "unbounded and exact": (study(search={"sampler": "exact"},
                                  objectives=[{"metric": "usd_per_hour", "direction": "minimize"}]),
                            "/objectives/0/metric", "usd_per_hour cannot be certified"),
    "worse and exact": (study(search={"sampler": "exact"}, objectives=[{"metric": "tdp_w", "direction": "maximize"}]),
                        "/objectives/0/metric", "tdp_w cannot be certified in this direction"),
    "space by name": ({**study(), "space": "small"}, "/space", "valid dictionary"),
    "a list": ([1], "", "valid dictionary"),
    "nothing": (None, "", "valid dictionary"),
}  # fmt: skip


@pytest.mark.parametrize(("document", "pointer", "detail"), BAD.values(), ids=BAD)
def test_a_fault_is_refused_with_pointer_and_rule(document, pointer, detail):
    found = faults(document)
    assert pointer in found
    assert detail in found[pointer]


def test_all_faults_of_a_document_are_told_at_once():
    document = study(budget={"area": 5, "tdp": "9"}, objectives=[{"metric": "tdp_w"}], extra=1)
    assert set(faults(document)) == {"/budget/area", "/budget/tdp", "/objectives/0/direction", "/extra"}


def test_the_message_names_each_field_by_its_path():
    with pytest.raises(StudyError, match=r"^budget\.area: must carry a unit.*; budget\.tdp: must carry"):
        read_study(study(budget={"area": 5, "tdp": 9}))


@pytest.mark.parametrize("file", sorted(p.name for p in EXAMPLES.glob("*.yaml") if "objectives" in read_yaml(p)))
def test_reference_studies_are_read(file):
    read = read_document(read_yaml(EXAMPLES / file))
    assert read.budget.area > 50 and read.budget.tdp > 10
    assert read.objectives and read.workload.scenarios


def test_reading_leaves_the_document_as_it_was():
    document = study()
    before = copy.deepcopy(document)
    prepare(read_study(document))
    assert document == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "trace"),
        ("arrival_s,input_tokens,output_tokens\n", "trace"),
        ("arrival_s,input_tokens,output_tokens\n0,5,5\n1,five,5\n", "line 3"),
        ("arrival_s,input_tokens,output_tokens\n0,5,5\n1,nan,5\n", "line 3"),
        ("arrival_s,input_tokens,output_tokens\n0,5\n", "line 2"),
        ("arrival_s,input_tokens,output_tokens\n0,-5,5\n", "line 2"),
        ("when,how,what\n0,5,5\n", "line 1|column"),
    ],
    ids=["empty", "header alone", "word", "NaN", "short row", "negative", "other columns"],
)
def test_a_malformed_trace_beside_the_study_is_refused_with_its_line(tmp_path, text, message):
    (tmp_path / "mine.csv").write_text(text)
    with pytest.raises(StudyError, match=message) as caught:
        prepare(read_study(study({"requests": {"trace": "mine.csv"}})), tmp_path)
    assert caught.value.errors[0]["pointer"] == f"{HERE}/requests/trace"


def test_yaml_of_a_study_is_plain():
    text = yaml.safe_dump(study())
    assert read_study(yaml.safe_load(text)) == read_study(study())


@pytest.mark.parametrize("file", sorted(p.name for p in EXAMPLES.glob("*.yaml") if "objectives" in read_yaml(p)))
def test_a_document_that_was_written_is_read_back_the_same(file):
    document = read_document(read_yaml(EXAMPLES / file))
    assert read_document(document.model_dump(mode="json", by_alias=True, exclude_none=True)) == document
