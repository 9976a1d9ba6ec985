"""`chipfit scale` and scaling over HTTP."""

import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from explorer.files import read_yaml
from service.app import create_app
from service.cli import app
from service.real_engine import real_engine
from service.settings import Settings

EDGE = Path(__file__).parents[2] / "examples" / "edge.yaml"


def run(*arguments):
    return CliRunner().invoke(app, ["scale", *arguments], env={"COLUMNS": "200"})


def test_json_holds_the_steps_of_every_scenario():
    printed = run("a100_sxm", str(EDGE), "--chips", "1", "--chips", "4", "--json")
    assert printed.exit_code == 0, printed.output
    document = json.loads(printed.stdout)
    (scenario,) = document["scaling"]["scenarios"]
    assert [each["n_chips"] for each in scenario["steps"]] == [1, 4]
    assert scenario["steps"][1]["efficiency_ratio"] == pytest.approx(1.0)
    assert document["chip"]["id"] == "a100_sxm"


def test_the_table_shows_sizes_plans_and_what_binds():
    printed = run("a100_sxm", str(EDGE), "--max-chips", "2")
    assert printed.exit_code == 0, printed.output
    assert "copies 2" in printed.stdout
    assert "tensor 2 would span nodes and reach 0." in printed.stdout


def test_bad_sizes_end_with_code_2_and_one_line():
    printed = run("a100_sxm", str(EDGE), "--chips", "0")
    assert printed.exit_code == 2
    assert printed.stderr == "chipfit: scaling.chips.0: must be a whole number, 1 to 65536, got 0\n"


def test_the_api_answers_scaling_and_refuses_bad_sizes(tmp_path):
    settings = Settings(data_dir=tmp_path, database_url=f"sqlite:///{tmp_path / 'scaling.db'}")
    document = {"chip": "a100_sxm", "study": read_yaml(EDGE), "scaling": {"chips": [1, 2]}}
    with TestClient(create_app(settings, real_engine())) as client:
        first, again = (client.post("/v1/evaluations", json=document).json() for _ in range(2))
        bad = client.post("/v1/evaluations", json=document | {"scaling": {"chips": [-1]}})
    assert [each["n_chips"] for each in first["scaling"]["scenarios"][0]["steps"]] == [1, 2]
    assert again["from_history"] and again["scaling"] == first["scaling"]
    assert bad.status_code == 422
    assert bad.json()["errors"] == [
        {"pointer": "/scaling/chips/0", "detail": "must be a whole number, 1 to 65536, got -1"}
    ]
