"""Studies that go on, that are like others, and that are found among others."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.api.study_copies import merged
from tests.service.api.test_studies import expected_result, result_of, run_study, wait_until
from tests.service.test_http import problem_of


class TestAnExtendedStudy:
    def test_ends_as_one_that_asked_for_as_much_at_once(self, client: TestClient) -> None:
        study = run_study(client, trials=25, chunk_trials=10)
        answer = client.post(f"/v1/studies/{study['id']}:extend", json={"trials": 55})
        assert (answer.status_code, answer.json()["state"], answer.json()["attempt"]) == (202, "queued", 2)
        ended = wait_until(client, study["id"], "succeeded")
        assert ended["progress"]["trials_done"] == 55
        assert ended["result"]["evaluated"] == 55

    def test_must_ask_for_more_than_was_done(self, client: TestClient) -> None:
        study = run_study(client, trials=25)
        problem = problem_of(client.post(f"/v1/studies/{study['id']}:extend", json={"trials": 25}), 422)
        assert problem["errors"] == [{"pointer": "/trials", "detail": "trials must be more than the 25 done, got 25"}]
        assert client.get(f"/v1/studies/{study['id']}").json() == study

    def test_must_have_ended(self, client: TestClient) -> None:
        posted = client.post("/v1/studies", json={"name": "s", "trials": 500, "chunk_s": 0.2}).json()
        problem_of(client.post(f"/v1/studies/{posted['id']}:extend", json={"trials": 600}), 409)
        client.post(f"/v1/studies/{posted['id']}:cancel")


class TestAClone:
    def test_is_like_the_other_study_but_for_its_changes(self, client: TestClient) -> None:
        study = run_study(client, trials=20, seed=3)
        answer = client.post(f"/v1/studies/{study['id']}:clone", json={"changes": {"trials": 30, "name": "twin"}})
        assert answer.headers["Location"].endswith(answer.json()["id"])
        twin = wait_until(client, answer.json()["id"], "succeeded")
        assert twin["document"] == {**study["document"], "trials": 30, "name": "twin"}
        assert result_of(twin) == expected_result(trials=30, seed=3) | {"study": "twin"}

    def test_with_a_bad_change_names_the_field_and_queues_nothing(self, client: TestClient) -> None:
        study = run_study(client, trials=20)
        answer = client.post(f"/v1/studies/{study['id']}:clone", json={"changes": {"trials": 0}})
        assert problem_of(answer, 422)["errors"][0]["pointer"] == "/trials"

    def test_of_an_unknown_study_is_not_found(self, client: TestClient) -> None:
        problem_of(client.post("/v1/studies/none:clone", json={}), 404)


@pytest.mark.parametrize(
    ("document", "changes", "expected"),
    [
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}, {"a": {"b": 3, "c": 2}}),
        ({"a": {"b": 1}}, {"a": None}, {}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": 1}, {"a": {"b": {"c": None, "d": 1}}}, {"a": {"b": {"d": 1}}}),
    ],
    ids=["merge", "remove", "replace", "into a value"],
)
def test_changes_are_merged(document: Any, changes: Any, expected: Any) -> None:
    assert merged(document, changes) == expected


def test_studies_are_found_by_what_they_are(client: TestClient) -> None:
    run_study(client, name="Alpha 100%", work="code")
    beta = run_study(client, name="beta", work="code")
    run_study(client, name="gamma", work="chat")

    def names(**params: Any) -> list[str]:
        return [each["name"] for each in client.get("/v1/studies", params=params).json()["items"]]

    assert names(workload_hash="work-code") == ["beta", "Alpha 100%"]
    assert names(name_contains="100%") == ["Alpha 100%"]
    assert names(workload_hash="work-code", created_from=beta["created_at"]) == ["beta"]
    assert names(workload_hash="work-code", created_before=beta["created_at"]) == ["Alpha 100%"]
    assert names(workload_hash="work-code", model_version="other") == []
    assert names(workload_hash="work-code", state="failed", queue="studies") == []
