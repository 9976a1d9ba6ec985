"""What a study names is found beside it or among uploads, and is part of its hash."""

import json

import pytest

from explorer.document import StudyError
from explorer.inputs import InputFile, NamedConfig, Uploads, inputs_of, named_network, named_trace, names_in
from explorer.problem import prepare
from explorer.report import study_hash
from explorer.run import explore_study
from explorer.study import read_study
from models.tables import DATA
from tests.explorer.small_studies import CHAT, problem_of, study

TRACE = "arrival_s,input_tokens,output_tokens\n" + "".join(f"{i},{100 + i},{10 + i}\n" for i in range(20))
LINES = "\n".join(
    json.dumps({"timestamp": 1000 * i, "input_length": 100 + i, "output_length": 10 + i, "hash_ids": []})
    for i in range(20)
)
CONFIG = json.loads((DATA / "networks" / "llama-3.1-8b.json").read_text())
UPLOAD = "wl_" + "0" * 32


def uploaded(content, name="trace.csv", **options):
    return Uploads({UPLOAD: InputFile(name, content.encode(), **options)})


def hash_of(document, inputs):
    return study_hash(prepare(read_study(document), inputs))


def on_trace(name, **requests):
    return study(scenario={"requests": {"trace": name, **requests}})


def test_a_file_beside_the_study_comes_before_a_shipped_trace(tmp_path):
    (tmp_path / "azure2023_conv.csv").write_text("input_tokens,output_tokens\n1,2\n")
    assert named_trace("azure2023_conv.csv", tmp_path).n == 1
    assert named_trace("azure2023_code.csv", tmp_path).n == 8819
    assert named_trace("azure2023_conv.csv", None).n == 19366


def test_an_uploaded_trace_gives_the_hash_of_the_same_requests_in_another_format():
    document = on_trace(UPLOAD)
    assert hash_of(document, uploaded(TRACE)) == hash_of(document, uploaded(LINES, "trace.jsonl"))
    other = TRACE.replace("19,119,29", "19,119,30")
    assert hash_of(document, uploaded(TRACE)) != hash_of(document, uploaded(other))


def test_a_trace_beside_the_study_is_replayed_at_its_own_times(tmp_path):
    (tmp_path / "mine.csv").write_text(TRACE)
    document = on_trace("mine.csv")
    document["workload"]["scenarios"][0]["arrivals"] = {"load": 0.5, "from": "trace"}
    document["search"] |= {"trials": 6}
    result = explore_study(document, tmp_path, lambda done, total: None)
    assert result["recommended"]["percentiles"]["replayed_requests"] == 20
    assert result["inputs"][0]["n_requests"] == 20


def test_rows_without_tokens_are_left_out_where_asked_and_counted(tmp_path):
    content = TRACE + "20,0,0\n21,500,0\n"
    with pytest.raises(StudyError, match="line 22, column 'input_tokens'"):
        prepare(read_study(on_trace(UPLOAD)), uploaded(content))
    problem = prepare(read_study(on_trace(UPLOAD, zero_token_rows="drop")), uploaded(content))
    assert problem.inputs_read[0]["n_dropped_rows"] == 2
    kept = prepare(read_study(on_trace(UPLOAD)), uploaded(content, zero_token_rows="drop"))
    assert kept.inputs_read == problem.inputs_read
    assert (
        kept.inputs_read[0]["sha256"] == prepare(read_study(on_trace(UPLOAD)), uploaded(TRACE)).inputs_read[0]["sha256"]
    )


def test_a_network_is_found_by_the_name_it_was_uploaded_under(tmp_path):
    mine = CONFIG | {"num_hidden_layers": 16}
    assert named_network("mine", Uploads(networks={"mine": NamedConfig("mine", mine)})).n_layers == 16
    (tmp_path / "mine.json").write_text(json.dumps(mine))
    assert named_network("mine.json", tmp_path).name == "mine"
    assert named_network("llama-3.1-8b", Uploads(networks={"llama-3.1-8b": NamedConfig("x", mine)})).n_layers == 32


def test_the_configuration_of_an_uploaded_network_is_part_of_the_hash():
    document = study(scenario={"network": "mine"})
    networks = [NamedConfig("mine", CONFIG | {"num_hidden_layers": n_layers}) for n_layers in (8, 9)]
    one, other = (hash_of(document, Uploads(networks={"mine": each})) for each in networks)
    assert one != other


def test_an_unknown_name_is_refused_at_its_field():
    with pytest.raises(StudyError, match=r"workload\.scenarios\.0\.requests\.trace: unknown trace 'wl_"):
        problem_of(on_trace(UPLOAD))
    with pytest.raises(StudyError, match=r"network: unknown network 'mine'"):
        problem_of(study(scenario={"network": "mine"}))
    with pytest.raises(StudyError, match=r"workload: unknown workload 'wl_0+': neither uploaded nor a file"):
        read_study(study() | {"workload": UPLOAD})


def test_a_study_may_name_its_whole_workload(tmp_path):
    document = study(search={"trials": 6})
    (tmp_path / "work.json").write_text(json.dumps({"scenarios": [CHAT]}))
    named = explore_study(document | {"workload": "work.json"}, tmp_path, lambda done, total: None)
    written = explore_study(document, None, lambda done, total: None)
    assert named["study_hash"] == written["study_hash"]
    assert named["recommended"] == written["recommended"]


def test_a_named_workload_that_is_no_document_is_refused_at_the_workload(tmp_path):
    (tmp_path / "work.yaml").write_text("a: &x [*x]\n")
    with pytest.raises(StudyError, match=r"workload: work.yaml line 1: aliases are not allowed"):
        explore_study(study() | {"workload": "work.yaml"}, tmp_path, lambda done, total: None)


def test_only_fields_that_may_name_an_input_are_looked_at():
    document = on_trace("a.csv") | {"name": "b.csv"}
    assert [(each.key, each.name) for each in names_in(document)] == [("network", "llama-3.1-8b"), ("trace", "a.csv")]
    assert inputs_of(study(), None) == []


class TestConversations:
    def test_carry_what_was_said_and_find_it_in_the_prefix_cache(self):
        turns = {"histogram": [{"input": 100, "output": 50, "weight": 1}], "sessions": {"turns": 3, "hit_fraction": 1}}
        moments = problem_of(study(scenario={"requests": turns})).scenarios[0].scenario.requests
        assert moments.input_tokens == pytest.approx(250)
        assert moments.cached_prefix_tokens == pytest.approx(150)

    def test_sustain_fewer_requests_without_the_cache(self):
        def rate(hit_fraction):
            sessions = {"turns": 4, "hit_fraction": hit_fraction}
            document = study(scenario={"requests": {"preset": "llmperf-550-150", "sessions": sessions}})
            result = explore_study(document | {"search": {"trials": 8}}, None, lambda done, total: None)
            return result["recommended"]["metrics"]["sustainable_requests_per_s"]

        assert rate(1.0) > 1.1 * rate(0.0)

    @pytest.mark.parametrize(
        ("scenario", "message"),
        [
            ({"requests": {"trace": "azure2023_conv", "sessions": {"turns": 2}}}, "sessions needs lengths of single"),
            (
                {"requests": {"preset": "llmperf-550-150", "sessions": {"turns": 2}}, "prefix_hit_fraction": 0.5},
                "at most one of prefix_hit_fraction and requests.sessions",
            ),
            ({"requests": {"preset": "llmperf-550-150", "sessions": {"turns": 0}}}, "turns"),
            ({"requests": {"preset": "llmperf-550-150", "zero_token_rows": "drop"}}, "zero_token_rows needs a trace"),
            ({"arrivals": {"load": 0.5, "cv": 2.0, "dispersion_60_s": 3.0}}, "at least cv squared, 4"),
        ],
        ids=["trace", "hits said twice", "no turn", "rows of no trace", "drift below bursts"],
    )
    def test_that_contradict_are_refused(self, scenario, message):
        with pytest.raises(StudyError, match=message):
            read_study(study(scenario=scenario))


def test_a_spread_of_the_benchmark_preset_is_chosen_by_name():
    means = {}
    for name in ("llmperf-550-150", "llmperf-550-150-readme", "llmperf-550-150-helper"):
        moments = problem_of(study(scenario={"requests": {"preset": name}})).scenarios[0].scenario.requests
        means[name] = moments.input_tokens_squared - moments.input_tokens**2
    assert means["llmperf-550-150-helper"] > 2 * means["llmperf-550-150"]
