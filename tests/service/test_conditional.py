"""ETag, If-None-Match and If-Match."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from service.middleware.conditional import matches
from tests.service.api.test_studies import run_study, wait_until
from tests.service.test_http import problem_of

LONG = {"name": "s", "trials": 10_000, "chunk_s": 0.1}


@pytest.mark.parametrize(
    "path", ["/v1/chips", "/v1/networks/llama-3.1-8b", "/v1/studies", "/v1/designs", "/version", "/openapi.json"]
)
def test_an_unchanged_answer_is_not_sent_again(client: TestClient, path: str) -> None:
    first = client.get(path)
    again = client.get(path, headers={"If-None-Match": first.headers["ETag"]})
    assert again.status_code == 304
    assert again.content == b""
    assert again.headers["ETag"] == first.headers["ETag"]


def test_the_tag_of_a_study_changes_with_it(client: TestClient) -> None:
    study = run_study(client, trials=10)
    path = f"/v1/studies/{study['id']}"
    tag = client.get(path).headers["ETag"]
    assert client.get(path, headers={"If-None-Match": tag}).status_code == 304
    client.post("/v1/studies", json={"name": "other"})
    assert client.get(path, headers={"If-None-Match": tag}).status_code == 304


@pytest.mark.parametrize("verb", ["cancel", "resume", "delete"])
def test_a_call_that_means_an_older_version_is_refused_and_changes_nothing(client: TestClient, verb: str) -> None:
    study_id = client.post("/v1/studies", json=LONG).json()["id"]
    path = f"/v1/studies/{study_id}"
    wait_until(client, study_id, "running")
    if verb != "cancel":
        client.post(f"{path}:cancel")
    before = client.get(path)
    method, target = ("DELETE", path) if verb == "delete" else ("POST", f"{path}:{verb}")
    problem = problem_of(client.request(method, target, headers={"If-Match": '"v0"'}), 412)
    assert "has changed since it was read" in problem["detail"]
    if verb != "cancel":
        assert client.get(path).json() == before.json()
        current = {"If-Match": f'"x", {before.headers["ETag"]}'}
        assert client.request(method, target, headers=current).status_code < 300
    client.post(f"{path}:cancel")


@pytest.mark.parametrize(
    ("tag", "wanted", "expected"),
    [
        ('"a"', '"a"', True), ('"a"', 'W/"a"', True), ('"a"', '"b", "a"', True), ('"a"', "*", True),
        ('"a"', '"b"', False), ('"a"', "", False), ('"a"', "a", False),
    ],
)  # fmt: skip
def test_tags_match_as_the_standard_says(tag: str, wanted: str, expected: bool) -> None:
    assert matches(tag, wanted) is expected
