"""The same Idempotency-Key twice makes one study and gives one answer."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from service.db import idempotency, queries
from service.db.session import Database, open_database, writing
from tests.service.fake_engine import fake_engine
from tests.service.test_durability import Processes
from tests.service.test_http import problem_of

STUDY = {"name": "s", "trials": 10}


def post(client: TestClient, key: str, document: dict[str, Any] = STUDY) -> httpx.Response:
    return client.post("/v1/studies", json=document, headers={"Idempotency-Key": key})


def count(client: TestClient) -> int:
    return len(client.get("/v1/studies?page_size=500").json()["items"])


def database_of(client: TestClient) -> Database:
    return client.app.state.database  # type: ignore[attr-defined, no-any-return]


def test_twice_makes_one_study_and_the_same_answer(client: TestClient) -> None:
    before = count(client)
    first, second = post(client, "twice"), post(client, "twice")
    assert count(client) == before + 1
    assert first.status_code == second.status_code == 202
    assert second.content == first.content
    assert second.headers["Location"] == first.headers["Location"]
    assert "Idempotency-Replayed" not in first.headers
    assert second.headers["Idempotency-Replayed"] == "true"


def test_another_body_under_the_key_is_refused(client: TestClient) -> None:
    post(client, "body")
    before = count(client)
    problem = problem_of(post(client, "body", {"name": "other"}), 422)
    assert problem["errors"][0]["pointer"] == "header.Idempotency-Key"
    assert count(client) == before


def test_another_path_under_the_key_is_refused(client: TestClient) -> None:
    post(client, "path")
    answer = client.post("/v1/evaluations", json=STUDY, headers={"Idempotency-Key": "path"})
    problem_of(answer, 422)


def test_a_refusal_is_replayed_too_and_a_new_key_is_needed(client: TestClient) -> None:
    first, second = post(client, "bad", {}), post(client, "bad", {})
    assert first.json() == second.json()
    assert problem_of(second, 422)["errors"][0]["pointer"] == "/name"
    assert second.headers["Idempotency-Replayed"] == "true"


@pytest.mark.parametrize("key", ["", "x" * 201])
def test_a_key_of_a_wrong_length_is_refused(client: TestClient, key: str) -> None:
    problem_of(post(client, key), 422)


def test_a_call_in_flight_is_a_conflict(client: TestClient) -> None:
    done, digests = threading.Event(), []
    original = fake_engine().read_study

    def slow(document: dict[str, Any]) -> Any:
        digests.append(document)
        done.wait(10.0)
        return original(document)

    engine = client.app.state.engine  # type: ignore[attr-defined]
    client.app.state.engine = engine.__class__(**{**vars(engine), "read_study": slow})  # type: ignore[attr-defined]
    try:
        with ThreadPoolExecutor() as pool:
            running = pool.submit(post, client, "flight")
            while not digests:
                time.sleep(0.01)
            problem_of(post(client, "flight"), 409)
            done.set()
            assert running.result().status_code == 202
    finally:
        client.app.state.engine = engine  # type: ignore[attr-defined]
    assert post(client, "flight").json() == running.result().json()


def test_many_at_once_make_one_study(client: TestClient) -> None:
    before = count(client)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: post(client, "many"), range(8)))
    assert {answer.status_code for answer in answers} <= {202, 409}
    assert len({answer.json()["id"] for answer in answers if answer.status_code == 202}) == 1
    assert count(client) == before + 1


def test_a_secret_is_not_kept(client: TestClient) -> None:
    headers = {"Idempotency-Key": "secret"}
    first = client.post("/v1/keys", json={"name": "k"}, headers=headers)
    assert first.status_code == 201
    problem_of(client.post("/v1/keys", json={"name": "k"}, headers=headers), 409)
    with database_of(client).pool.connect() as connection:
        stored = str(connection.exec_driver_sql("SELECT * FROM idempotent_calls").all())
    assert first.json()["key"].split("_")[2] not in stored


def test_a_key_is_forgotten_after_its_time(database: Database) -> None:
    def claim() -> idempotency.Claim:
        with writing(database) as session:
            return idempotency.claim(session, "", "old", "digest", "mine", 0.2)

    first = claim()
    assert claim().known is not None
    time.sleep(0.3)
    again = claim()
    assert again.known is None
    assert again.began_at_s != first.began_at_s


def test_what_a_killed_server_had_made_is_found_under_its_key(processes: Processes) -> None:
    """The server dies after the study is committed and before its answer is kept: the hardest moment."""
    server = processes.serve()
    headers = {"Idempotency-Key": "killed"}
    first = httpx.post(f"{server.url}/v1/studies", json=STUDY, headers=headers).json()
    server.kill()
    forget_answer(processes.database_url)
    server = processes.serve()
    second = httpx.post(f"{server.url}/v1/studies", json=STUDY, headers=headers)
    assert second.status_code == 202
    assert second.json()["id"] == first["id"]
    assert len(httpx.get(f"{server.url}/v1/studies").json()["items"]) == 1


def forget_answer(url: str) -> None:
    """Put the calls back in flight, as they are before their answers are kept."""
    database = open_database(url)
    with database.pool.begin() as connection:
        connection.exec_driver_sql("UPDATE idempotent_calls SET status = NULL, headers = NULL, body = NULL")
    database.close()


def test_the_key_of_another_process_that_lives_is_respected(database: Database) -> None:
    with writing(database) as session:
        assert idempotency.claim(session, "", "k", "digest", "other", 60.0).began_at_s is not None
    with writing(database) as session:
        known = idempotency.claim(session, "", "k", "digest", "mine", 60.0).known
        assert known is not None and known.executor_id == "other"
        assert idempotency.take_over(session, known, "mine").began_at_s == known.began_at_s


def test_a_study_that_exists_is_not_made_again(database: Database) -> None:
    for name in ("first", "second"):
        with writing(database) as session:
            assert queries.create_study(session, "id", name, {}, "1").name == "first"


@pytest.fixture
def processes(database_url: str, tmp_path: Path) -> Any:
    started = Processes(database_url, tmp_path)
    yield started
    started.end()
