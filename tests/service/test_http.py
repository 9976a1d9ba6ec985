"""Errors, health, catalogues, evaluations, history: what needs no running study of its own."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

JSON = {"content-type": "application/json"}


def problem_of(answer: Any, status: int) -> dict[str, Any]:
    """Return the problem document of an answer, checked for its form."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert set(problem) == {"type", "title", "status", "detail", "errors"}
    assert problem["status"] == status
    return problem


class TestProblems:
    @pytest.mark.parametrize(
        ("document", "pointer"),
        [
            ({}, "/name"),
            ({"name": "s", "trials": -1}, "/trials"),
            ({"name": "s", "colour": "red"}, "/colour"),
            ({"name": "s", "trials": "many"}, "/trials"),
        ],
        ids=["missing", "negative", "unknown", "wrong type"],
    )
    def test_a_bad_field_is_named_by_its_pointer(self, client: TestClient, document: Any, pointer: str) -> None:
        before = len(client.get("/v1/studies?page_size=500").json()["items"])
        problem = problem_of(client.post("/v1/studies", json=document), 422)
        assert [error["pointer"] for error in problem["errors"]] == [pointer]
        assert len(client.get("/v1/studies?page_size=500").json()["items"]) == before

    def test_nan_is_refused_with_its_place(self, client: TestClient) -> None:
        answer = client.post("/v1/studies", content='{"name": "s", "budget": [1, NaN]}', headers=JSON)
        problem = problem_of(answer, 422)
        assert problem["errors"] == [{"pointer": "/budget/1", "detail": "/budget/1 must be a finite number, got nan"}]

    @pytest.mark.parametrize("body", ["", "{", "[]", '"text"', "\x00", "[" * 100_000])
    def test_a_body_that_is_no_object_is_refused(self, client: TestClient, body: str) -> None:
        answer = client.post("/v1/studies", content=body, headers=JSON)
        assert answer.status_code in (400, 422)
        problem_of(answer, answer.status_code)
        assert client.get("/livez").status_code == 200

    def test_a_large_body_is_refused_before_it_is_read(self, client: TestClient) -> None:
        problem_of(client.post("/v1/studies", content=b"x" * (17 * 1024**2)), 413)

    def test_a_large_body_without_a_length_is_refused_as_it_comes(self, client: TestClient) -> None:
        chunks = (b"x" * 1024**2 for _ in range(20))
        problem_of(client.post("/v1/studies", content=chunks), 413)

    def test_unknown_paths_studies_and_methods_are_problems(self, client: TestClient) -> None:
        problem_of(client.get("/v1/nothing"), 404)
        problem_of(client.get("/v1/studies/none"), 404)
        assert client.put("/v1/studies").headers["allow"] == "GET, POST"
        problem_of(client.put("/v1/studies"), 405)

    @pytest.mark.parametrize("token", ["x", "!!", "W10", "WzEsMiwzXQ"])
    def test_a_foreign_page_token_is_refused(self, client: TestClient, token: str) -> None:
        problem = problem_of(client.get("/v1/studies", params={"page_token": token}), 422)
        assert problem["errors"][0]["pointer"] == "query.page_token"

    def test_a_huge_page_is_refused(self, client: TestClient) -> None:
        problem_of(client.get("/v1/studies?page_size=501"), 422)


class TestHealth:
    def test_all_three_answer(self, client: TestClient) -> None:
        assert client.get("/livez").json() == {"status": "alive"}
        assert client.get("/readyz").json()["status"] == "ready"
        assert client.get("/version").json()["model_version"] == "fake-1"


class TestCatalogues:
    def test_networks_of_the_catalogue_are_listed(self, client: TestClient) -> None:
        assert "llama-3.1-8b" in {each["id"] for each in client.get("/v1/networks").json()["items"]}

    def test_an_unknown_chip_is_not_found_with_a_suggestion(self, client: TestClient) -> None:
        assert "did you mean 'a100_sxm'" in problem_of(client.get("/v1/chips/a100_sx"), 404)["detail"]


def test_a_value_that_one_database_cannot_hold_is_a_broken_rule_of_the_whole_request(client: TestClient) -> None:
    answer = client.get("/v1/designs", params={"filter": 'study_name = "\\u0000"'})
    if answer.status_code != 200:  # PostgreSQL holds no text with a zero in it
        (error,) = problem_of(answer, 422)["errors"]
        assert error["pointer"] == "" and "cannot be stored" in error["detail"]


class TestEvaluations:
    def test_answer_at_once_and_the_second_time_from_the_history(self, client: TestClient) -> None:
        answers = [client.post("/v1/evaluations", json={"chip": "a100_sxm"}) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 200]
        first, second = (answer.json() for answer in answers)
        assert (first.pop("from_history"), second.pop("from_history")) == (False, True)
        assert first == second

    def test_a_bad_request_names_the_field(self, client: TestClient) -> None:
        problem = problem_of(client.post("/v1/evaluations", json={}), 422)
        assert problem["errors"] == [{"pointer": "/chip", "detail": "chip is missing"}]
