"""Uploaded workloads and networks in studies: found, hashed, kept while a study reads them, there after a restart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from explorer.run import explore_study
from service.app import create_app
from service.real_engine import real_engine
from tests.explorer.small_studies import study
from tests.service.api.test_networks import config_of
from tests.service.api.test_studies import wait_until
from tests.service.api.test_workloads import LAYERS, LIST, ROWS
from tests.service.api.test_workloads import sent as send_workload
from tests.service.conftest import quick_settings
from tests.service.test_http import problem_of

TRIALS = 8


def small(**scenario: Any) -> dict[str, Any]:
    """A study of one scenario and few designs."""
    document = study(search={"trials": TRIALS}, budget={"area": "800 mm2", "tdp": "600 W"})
    kind = scenario.get("kind", "llm_serving")
    if kind != "llm_serving":
        document["workload"]["scenarios"] = [{"name": "work", **scenario}]
        document["objectives"] = [{"metric": "units_per_s", "direction": "maximize"}]
    else:
        document["workload"]["scenarios"][0] |= scenario
    return document


def finished(client: TestClient, document: dict[str, Any]) -> dict[str, Any]:
    posted = client.post("/v1/studies", json=document)
    assert posted.status_code == 202, posted.text
    ended = wait_until(client, posted.json()["id"], "succeeded", "failed")
    assert ended["error"] is None
    return ended


@pytest.fixture(scope="module")
def real_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    database_file = tmp_path_factory.mktemp("uploads") / "chipfit.sqlite"
    with TestClient(create_app(quick_settings(f"sqlite:///{database_file}"), real_engine())) as client:
        yield client


def test_every_kind_of_upload_is_used_and_kept_while_a_study_reads_it(real_client: TestClient, tmp_path: Path) -> None:
    client = real_client
    trace, table, layers = (
        send_workload(client, content, name).json()["id"]
        for content, name in ((ROWS, "t.csv"), (LIST, "l.csv"), (LAYERS, "c.csv"))
    )
    config = config_of("llama-3.1-8b") | {"num_hidden_layers": 16}
    network = client.post("/v1/networks", params={"name": "half-llama"}, json=config).json()
    serving = finished(client, small(network="half-llama", requests={"trace": trace}))
    (tmp_path / "t.csv").write_text(ROWS)
    (tmp_path / "half-llama.json").write_text(json.dumps(config))
    beside = small(network="half-llama.json", requests={"trace": "t.csv"})
    alone = explore_study(beside, tmp_path, lambda done, total: None)
    assert serving["result"]["recommended"] == alone["recommended"]
    assert [each["kind"] for each in serving["result"]["inputs"]] == ["network", "trace"]
    for kind, field, upload in (("gemm_list", "file", table), ("convnet", "network", layers)):
        assert finished(client, small(kind=kind, **{field: upload}))["result"]["evaluated"] == TRIALS
    for path in (f"/v1/workloads/{trace}", f"/v1/networks/{network['id']}"):
        assert "a study reads it" in problem_of(client.delete(path), 409)["detail"]
    assert client.delete(f"/v1/studies/{serving['id']}").status_code == 204
    assert client.delete(f"/v1/workloads/{trace}").status_code == 204
    assert client.delete("/v1/networks/half-llama").status_code == 204


def test_a_whole_workload_is_named_and_written_out_in_the_result(real_client: TestClient) -> None:
    written = small(kind="gemm_list", rows=[{"m": 256, "n": 256, "k": 256}])
    content = json.dumps(written["workload"])
    workload = send_workload(real_client, content, "work.json").json()["id"]
    named = finished(real_client, written | {"workload": workload})
    assert named["document"]["workload"] == workload
    assert named["result"]["study"]["workload"]["scenarios"][0]["rows"][0]["m"] == 256
    assert named["result"]["study_hash"] == finished(real_client, written)["result"]["study_hash"]


def test_an_evaluation_takes_uploads_and_is_not_answered_from_another_network(real_client: TestClient) -> None:
    trace = send_workload(real_client, ROWS).json()["id"]
    rates = []
    for n_layers in (8, 16):
        config = config_of("llama-3.1-8b") | {"num_hidden_layers": n_layers}
        assert real_client.post("/v1/networks", params={"name": "mine"}, json=config).status_code == 201
        asked = {"chip": "h100_sxm", "study": small(network="mine", requests={"trace": trace})}
        answer = real_client.post("/v1/evaluations", json=asked)
        assert answer.status_code == 200, answer.text
        rates.append(answer.json()["metrics"]["sustainable_requests_per_s"])
        assert real_client.delete("/v1/networks/mine").status_code == 204
    assert rates[0] > 1.2 * rates[1]


def test_what_is_not_there_is_named_at_its_field(real_client: TestClient) -> None:
    gone = "wl_" + "0" * 32
    for document, pointer in (
        (small(requests={"trace": gone}), "/workload/scenarios/0/requests/trace"),
        (small(network="mine"), "/workload/scenarios/0/network"),
        (small(kind="gemm_list", file=gone), "/workload/scenarios/0/file"),
        (small(kind="convnet", network=gone), "/workload/scenarios/0/network"),
        (small() | {"workload": gone}, "/workload"),
    ):
        problem = problem_of(real_client.post("/v1/studies", json=document), 422)
        assert problem["errors"][0]["pointer"] == pointer


def test_a_trace_longer_than_the_context_is_refused(real_client: TestClient) -> None:
    trace = send_workload(real_client, "input_tokens,output_tokens\n5000,100\n").json()["id"]
    answer = real_client.post("/v1/studies", json=small(network="llama-2-7b", requests={"trace": trace}))
    assert "at most 4096, the context of llama-2-7b, got 5100" in problem_of(answer, 422)["detail"]
