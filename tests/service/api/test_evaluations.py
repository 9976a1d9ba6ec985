"""What-if evaluations over HTTP: their schema, their explanation, and many designs at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from fastapi.testclient import TestClient

from explorer.explanation.asked import Asked, explain_file
from service.app import create_app
from service.openapi import STUDY_EXAMPLE
from service.real_engine import real_engine
from service.settings import Settings

OWN_DESIGN = {
    "array_m": 128, "array_n": 128, "array_k": 1, "arrays_per_core": 1, "n_cores": 32, "clock_hz": 1.4e9,
    "vector_lanes_per_core": 128, "scratchpad_bytes_per_core": 512 * 1024, "l2_bytes": 64 * 2**20,
    "noc_bytes_per_cycle_per_core": 128, "memory_kind": "hbm3", "memory_stacks": 4, "scale_up_bytes_per_s": 3e11,
    "node_nm": 5, "tdp_w": 400, "bf16_rate_ratio": 1, "fp8_rate_ratio": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    url = f"sqlite:///{tmp_path_factory.mktemp('evaluations') / 'chipfit.sqlite'}"
    with TestClient(create_app(Settings(database_url=url), real_engine())) as client:
        yield client


def asked(client: TestClient, **document: Any) -> dict[str, Any]:
    answer = client.post("/v1/evaluations", json={"study": STUDY_EXAMPLE, **document})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


@pytest.mark.parametrize(
    "document",
    [
        {"chip": "h100_sxm", "explanation": True, "sizes": True, "scaling": {"chips": [1, 2]}},
        {"design": OWN_DESIGN},
        {"designs": [OWN_DESIGN, OWN_DESIGN | {"n_cores": 64}]},
    ],
    ids=["chip", "design", "designs"],
)
def test_an_answer_is_what_the_specification_says(client: TestClient, document: dict[str, Any]) -> None:
    specification = client.get("/openapi.json").json()
    name = "EvaluationBatch" if "designs" in document else "EvaluationRead"
    schema = {"$ref": f"#/components/schemas/{name}", "components": specification["components"]}
    answer = asked(client, **document)
    assert [str(error) for error in jsonschema_rs.validator_for(schema).iter_errors(answer)] == []
    assert set(answer) <= set(specification["components"]["schemas"][name]["properties"])


def test_a_design_of_ones_own_is_explained_as_the_command_explains_it(client: TestClient) -> None:
    answer = asked(client, design=OWN_DESIGN, explanation=True)
    expected = explain_file(STUDY_EXAMPLE, None, OWN_DESIGN, Asked())["explanation"]
    assert answer["explanation"]["summary"] == expected["summary"]
    assert answer["explanation"]["bottleneck_chain"][0]["resource"] == expected["bottleneck_chain"][0]["resource"]
    assert not answer["from_history"]
    assert "explanation" not in asked(client, design=OWN_DESIGN)
    assert asked(client, design=OWN_DESIGN, explanation=True)["from_history"]


def test_sizes_and_cost_of_moving_come_where_they_are_asked_for(client: TestClient) -> None:
    plain, whole = asked(client, chip="h100_sxm"), asked(client, chip="h100_sxm", sizes=True)
    assert not {"sizes", "reshape_cost"} & set(plain)
    assert whole["metrics"]["size_hit_rate"] > 0 and whole["reshape_cost"]["items"]
    assert {name: whole["metrics"][name] for name in plain["metrics"]} == plain["metrics"]
    assert "reshape_cost" in asked(client, chip="h100_sxm", against={"chip": "a100_sxm"})


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        ({"chip": "h100_sxm", "explanation": 1}, "/explanation"),
        ({"chip": "h100_sxm", "sizes": "all"}, "/sizes"),
        ({"chip": "h100"}, "/chip"),
        ({"chip": "h100_sxm", "designs": [OWN_DESIGN]}, "/chip"),
        ({"designs": [OWN_DESIGN], "explanation": True}, "/explanation"),
        ({"designs": [OWN_DESIGN, OWN_DESIGN | {"n_cores": "many"}]}, "/designs/1/n_cores"),
        ({"designs": [OWN_DESIGN] * 10_001}, "/designs"),
        ({"design": OWN_DESIGN | {"clock": 1}}, "/design/clock"),
        ({}, "/chip"),
    ],
    ids=["explanation", "sizes", "chip", "both", "batch-explained", "design-of-many", "too-many", "field", "nothing"],
)
def test_what_is_no_evaluation_is_refused_with_a_pointer(
    client: TestClient, document: dict[str, Any], pointer: str
) -> None:
    answer = client.post("/v1/evaluations", json={"study": STUDY_EXAMPLE, **document})
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["errors"][0]["pointer"] == pointer


TRACE = "input_tokens,output_tokens\n550,150\n"
CHAT = STUDY_EXAMPLE["workload"]["scenarios"][0]


def with_scenario(scenario: dict[str, Any]) -> dict[str, Any]:
    return {"study": STUDY_EXAMPLE | {"workload": {"scenarios": [scenario]}}}


@pytest.mark.parametrize("form", ["{path}", "{name}", "file://{path}", "http://127.0.0.1:9/{name}"])
@pytest.mark.parametrize(
    "naming",
    [
        lambda named: with_scenario(CHAT | {"requests": {"trace": named}}),
        lambda named: with_scenario(CHAT | {"network": named}),
        lambda named: with_scenario({"name": "x", "kind": "gemm_list", "file": named}),
        lambda named: with_scenario({"name": "x", "kind": "convnet", "network": named}),
        lambda named: {"study": STUDY_EXAMPLE | {"workload": named}},
        lambda named: {"study": STUDY_EXAMPLE | {"technology": {"overlay": named}}},
        lambda named: {"profile": named},
        lambda named: {"replay": named},
    ],
    ids=["trace", "network", "products", "layers", "workload", "technology", "profile", "replay"],
)
def test_no_file_and_no_address_of_a_request_is_opened(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, naming: Any, form: str
) -> None:
    """The file is there and would do, beside the server and by its full path."""
    (tmp_path / "mine.csv").write_text(TRACE)
    monkeypatch.chdir(tmp_path)
    named = form.format(path=tmp_path / "mine.csv", name="mine.csv")
    answer = client.post("/v1/evaluations", json={"chip": "h100_sxm", "study": STUDY_EXAMPLE} | naming(named))
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"].startswith(("/study/", "/profile", "/replay"))
    assert TRACE.splitlines()[1] not in answer.text
