"""Networks sent over HTTP: counted, found by name and id, refused by field."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from models.tables import DATA
from service.catalogues import network_documents
from tests.service.test_http import problem_of


def config_of(name: str) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((DATA / "networks" / f"{name}.json").read_text())
    return config


def sent(client: TestClient, config: Any, **query: str) -> httpx.Response:
    return client.post("/v1/networks", json=config, params=query)


@pytest.mark.parametrize("name", ["deepseek-v3", "gpt-oss-20b", "llama-4-scout", "bert-base"])
def test_a_configuration_is_counted_as_that_of_the_catalogue(client: TestClient, name: str) -> None:
    answer = sent(client, config_of(name), name=f"my-{name}")
    assert answer.status_code == 201, answer.text
    figures = network_documents()[name]
    for key in ("n_parameters", "n_active_parameters", "kv_bytes_per_token_bf16", "max_context_tokens"):
        assert answer.json()[key] == figures[key]
    assert client.get(answer.headers["Location"]).json() == answer.json()
    assert client.get(f"/v1/networks/my-{name}").json()["config"] == config_of(name)
    assert client.delete(f"/v1/networks/my-{name}").status_code == 204
    problem_of(client.get(f"/v1/networks/my-{name}"), 404)


def test_the_same_sent_twice_is_stored_once(client: TestClient) -> None:
    config = config_of("llama-3.1-8b")
    first, second = sent(client, config), sent(client, dict(reversed(config.items())))
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["id"] == second.json()["id"]
    listed = client.get("/v1/networks").json()["items"]
    assert [each["source"] for each in listed if each["id"] == first.json()["id"]] == ["uploaded"]
    assert {each["name"] for each in listed} >= {"llama-3.1-8b", first.json()["name"]}


def test_a_name_stands_for_one_configuration(client: TestClient) -> None:
    config = config_of("llama-3.1-8b")
    assert sent(client, config, name="mine").status_code == 201
    problem_of(sent(client, config | {"num_hidden_layers": 16}, name="mine"), 409)
    assert "one of the catalogue" in problem_of(sent(client, config, name="llama-3.1-70b"), 409)["detail"]
    assert problem_of(sent(client, config, name="net_1"), 422)["errors"][0]["pointer"] == "query.name"
    assert problem_of(sent(client, config, name="a/b"), 422)["errors"][0]["pointer"] == "query.name"


@pytest.mark.parametrize(
    ("changes", "pointer", "message"),
    [
        ({"hidden_size": 10**15}, "/hidden_size", "must be between 1 and 16777216"),
        ({"hidden_size": -4096}, "/hidden_size", "must be between 1 and 16777216, got -4096"),
        ({"num_hidden_layers": 10**6}, "/num_hidden_layers", "must be between"),
        ({"num_attention_heads": "many"}, "/num_attention_heads", "must be a whole number"),
        ({"layer_skip": 4}, "/layer_skip", "is not understood and may change the shape"),
        ({"model_type": "magic"}, "/model_type", "unknown network.model_type 'magic'"),
        ({"text_config": [1]}, "/text_config", "must be a JSON object"),
    ],
    ids=["huge", "negative", "too deep", "text", "not understood", "unknown type", "no object"],
)
def test_a_bad_field_is_named_and_nothing_is_stored(
    client: TestClient, changes: dict[str, Any], pointer: str, message: str
) -> None:
    before = client.get("/v1/networks").json()
    problem = problem_of(sent(client, config_of("llama-3.1-8b") | changes), 422)
    assert message in problem["detail"]
    assert problem["errors"][0]["pointer"] == pointer
    assert client.get("/v1/networks").json() == before
