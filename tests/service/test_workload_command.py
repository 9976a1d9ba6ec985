"""`chipfit workload` and `chipfit explore` on files of every kind: the same answers and refusals as over HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from service.cli import app
from tests.explorer.small_studies import study
from tests.service.api.test_networks import config_of
from tests.service.api.test_workloads import BAD_FILES, LAYERS, LIST, ROWS


def ran(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


def written(folder: Path, name: str, content: str | bytes) -> str:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


@pytest.mark.parametrize(("content", "name", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_file_ends_with_code_2_and_one_line(
    tmp_path: Path, content: str | bytes, name: str, message: str
) -> None:
    done = ran("workload", written(tmp_path, name, content), "--json")
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(("content", "name"), [(LIST, "list.csv"), (LAYERS, "layers.csv")])
def test_tables_become_operators(tmp_path: Path, content: str, name: str) -> None:
    done = ran("workload", written(tmp_path, name, content), "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["scenarios"][0]["operators"]["totals"]["flop"] > 0
    assert "One step on one a100_sxm" in ran("workload", str(tmp_path / name)).stdout


def test_rows_without_tokens_are_left_out_where_asked_and_counted(tmp_path: Path) -> None:
    file = written(tmp_path, "trace.csv", ROWS + "60,0,0\n")
    assert "line 52, column 'input_tokens'" in ran("workload", file).stderr
    done = ran("workload", file, "--zero-token-rows", "drop", "--json")
    assert json.loads(done.stdout)["requests"]["n_dropped_rows"] == 1
    assert "left out" in ran("workload", file, "--zero-token-rows", "drop").stdout
    assert "must be 'refuse' or 'drop'" in ran("workload", file, "--zero-token-rows", "keep").stderr


def test_a_study_reads_what_lies_beside_it(tmp_path: Path) -> None:
    written(tmp_path, "trace.csv", ROWS)
    written(tmp_path, "mine.json", json.dumps(config_of("llama-3.1-8b") | {"num_hidden_layers": 4}))
    document = study(scenario={"network": "mine.json", "requests": {"trace": "trace.csv"}}, search={"trials": 4})
    done = ran("explore", written(tmp_path, "study.yaml", json.dumps(document)), "--json")
    assert done.exit_code == 0, done.stderr
    assert [each["name"] for each in json.loads(done.stdout)["inputs"]] == ["mine.json", "trace.csv"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 10**15}, "network.hidden_size must be between 1 and 16777216"),
        ({"hidden_size": -1}, "network.hidden_size must be between 1 and"),
        ({"layer_skip": 4}, "network.layer_skip is not understood"),
    ],
    ids=["huge", "negative", "not understood"],
)
def test_a_bad_network_is_refused_at_its_field(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    document = study(scenario={"network": config_of("llama-3.1-8b") | changes})
    done = ran("explore", written(tmp_path, "study.yaml", json.dumps(document)), "--json")
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr


def test_a_study_is_printed_as_tables() -> None:
    done = ran("workload", str(Path(__file__).parents[2] / "examples" / "training.yaml"))
    assert done.exit_code == 0, done.stderr
    assert "One step on one a100_sxm" in done.stdout


def test_a_missing_file_ends_with_code_2_and_one_line(tmp_path: Path) -> None:
    done = ran("workload", str(tmp_path / "none.csv"))
    assert (done.exit_code, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
