from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from fastapi.testclient import TestClient

from service.db.session import Database
from tests.service.fake_engine import fake_engine
from tests.service.waiting import wait_for


def run_study(client: TestClient, **document: Any) -> dict[str, Any]:
    """Post a study and return it when it has ended."""
    posted = client.post("/v1/studies", json={"name": "s", **document})
    assert posted.status_code == 202, posted.text
    return wait_until(client, posted.json()["id"], "succeeded", "failed", "cancelled")


def wait_until(client: TestClient, study_id: str, *states: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        study: dict[str, Any] = client.get(f"/v1/studies/{study_id}").json()
        return study if study["state"] in states else None

    found = wait_for(look)
    assert found is not None
    return found


def result_of(study: dict[str, Any]) -> dict[str, Any]:
    """The result without the time it took."""
    return {name: value for name, value in study["result"].items() if name != "wall_s"}


def events_of(client: TestClient, study_id: str, last_event_id: str = "") -> list[tuple[str, str, dict[str, Any]]]:
    """Return (id, kind, data) of every event of a finished stream."""
    headers = {"Last-Event-ID": last_event_id} if last_event_id else {}
    answer = client.get(f"/v1/studies/{study_id}/events", headers=headers)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = []
    for block in answer.text.replace("\r\n", "\n").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and not line.startswith(":"))
        if fields:
            events.append((fields["id"], fields["event"], json.loads(fields["data"])))
    return events


class TestAPostedStudy:
    def test_is_accepted_at_once_and_found_at_its_location(self, client: TestClient) -> None:
        posted = client.post("/v1/studies", json={"name": "chat"})
        assert posted.status_code == 202
        found = client.get(posted.headers["Location"])
        assert found.json()["name"] == "chat"
        assert found.json()["id"] == posted.json()["id"]

    def test_succeeds_with_the_result_of_the_engine(self, client: TestClient) -> None:
        study = run_study(client, trials=35, chunk_trials=10)
        assert study["state"] == "succeeded"
        assert result_of(study) == expected_result(trials=35, chunk_trials=10)
        assert study["progress"]["trials_done"] == 35
        assert study["progress"]["chunks_done"] == study["progress"]["chunks_planned"] == 4

    def test_that_raises_fails_with_the_reason_and_keeps_what_it_found(self, client: TestClient) -> None:
        study = run_study(client, trials=30, fails_at_chunk=1)
        assert study["state"] == "failed"
        assert study["error"] == "ZeroDivisionError: asked to fail"
        assert study["progress"]["trials_done"] == 10
        assert client.get("/livez").status_code == 200

    def test_ends_when_its_search_time_is_over(self, client: TestClient) -> None:
        study = run_study(client, trials=1000, chunk_s=0.1, timeout_s=0.15)
        assert study["state"] == "succeeded"
        assert study["progress"]["trials_done"] == 20

    def test_is_deleted_only_when_it_has_ended(self, client: TestClient) -> None:
        posted = client.post("/v1/studies", json={"name": "s", "trials": 1000, "chunk_s": 0.2}).json()
        assert client.delete(f"/v1/studies/{posted['id']}").status_code == 409
        client.post(f"/v1/studies/{posted['id']}:cancel")
        assert client.delete(f"/v1/studies/{posted['id']}").status_code == 204
        assert client.get(f"/v1/studies/{posted['id']}").status_code == 404


class TestCancelAndResume:
    def test_cancel_takes_effect_within_a_second_and_stops_the_work(self, client: TestClient) -> None:
        study_id = client.post("/v1/studies", json={"name": "s", "trials": 10_000, "chunk_s": 0.1}).json()["id"]
        wait_until(client, study_id, "running")
        began_s = time.monotonic()
        assert client.post(f"/v1/studies/{study_id}:cancel").json()["state"] == "cancelled"
        assert time.monotonic() - began_s < 1.0
        done = client.get(f"/v1/studies/{study_id}").json()["progress"]["trials_done"]
        time.sleep(0.5)
        assert client.get(f"/v1/studies/{study_id}").json()["progress"]["trials_done"] == done

    def test_a_resumed_study_ends_as_an_undisturbed_one(self, client: TestClient) -> None:
        document = {"trials": 100, "chunk_trials": 5, "chunk_s": 0.05}
        study_id = client.post("/v1/studies", json={"name": "s", **document}).json()["id"]
        wait_for(lambda: client.get(f"/v1/studies/{study_id}").json()["progress"]["chunks_done"] >= 3)
        client.post(f"/v1/studies/{study_id}:cancel")
        assert client.post(f"/v1/studies/{study_id}:resume").status_code == 202
        study = wait_until(client, study_id, "succeeded", "failed")
        assert result_of(study) == expected_result(**document)
        numbers = [row["number"] for row in client.get(f"/v1/studies/{study_id}/designs?page_size=500").json()["items"]]
        assert numbers == list(range(100))

    def test_a_failed_study_may_be_resumed(self, client: TestClient) -> None:
        study = run_study(client, trials=30, fails_at_chunk=1)
        client.post(f"/v1/studies/{study['id']}:resume")
        again = wait_for(
            lambda: (s := client.get(f"/v1/studies/{study['id']}").json()) and s["state"] == "failed" and s
        )
        assert again["attempt"] == 2

    def test_a_finished_study_is_neither_cancelled_nor_resumed(self, client: TestClient) -> None:
        study = run_study(client, trials=10)
        for verb in ("cancel", "resume"):
            answer = client.post(f"/v1/studies/{study['id']}:{verb}")
            assert answer.status_code == 409
            assert answer.headers["content-type"] == "application/problem+json"

    def test_the_next_study_runs_after_a_cancelled_one(self, client: TestClient) -> None:
        first = client.post("/v1/studies", json={"name": "s", "trials": 10_000, "chunk_s": 0.1}).json()["id"]
        wait_until(client, first, "running")
        client.post(f"/v1/studies/{first}:cancel")
        assert run_study(client, trials=10)["state"] == "succeeded"


class TestEvents:
    def test_tell_every_state_and_chunk_with_an_eta(self, client: TestClient) -> None:
        study = run_study(client, trials=30, chunk_trials=10, chunk_s=0.02)
        events = events_of(client, study["id"])
        assert [kind for _, kind, _ in events] == ["state", "state", "progress", "progress", "progress", "state"]
        assert [data["state"] for _, _, data in events] == ["queued", *["running"] * 4, "succeeded"]
        assert [data["trials_done"] for _, _, data in events] == [0, 0, 10, 20, 30, 30]
        assert events[2][2]["eta_s"] > events[3][2]["eta_s"] > events[4][2]["eta_s"] == 0

    def test_are_replayed_after_the_last_one_seen(self, client: TestClient) -> None:
        study = run_study(client, trials=30)
        events = events_of(client, study["id"])
        assert events_of(client, study["id"], events[2][0]) == events[3:]

    def test_follow_a_running_study_to_its_end(self, client: TestClient) -> None:
        posted = client.post("/v1/studies", json={"name": "s", "trials": 50, "chunk_s": 0.05}).json()
        assert events_of(client, posted["id"])[-1][2]["state"] == "succeeded"


class TestResults:
    def test_designs_come_in_pages_of_trial_order(self, client: TestClient) -> None:
        study = run_study(client, trials=25)
        first = client.get(f"/v1/studies/{study['id']}/designs?page_size=20").json()
        second = client.get(
            f"/v1/studies/{study['id']}/designs", params={"page_size": 20, "page_token": first["next_page_token"]}
        ).json()
        assert [row["number"] for row in first["items"] + second["items"]] == list(range(25))
        assert second["next_page_token"] is None

    def test_pareto_and_recommendation_are_those_of_the_result(self, client: TestClient) -> None:
        study = run_study(client, trials=25)
        assert client.get(f"/v1/studies/{study['id']}/pareto").json()["pareto"] == study["result"]["pareto"]
        recommendation = client.get(f"/v1/studies/{study['id']}/recommendation").json()
        assert recommendation["feasible"]
        assert recommendation["recommended"] == study["result"]["recommended"]

    def test_the_front_of_a_cancelled_study_is_the_one_so_far(self, client: TestClient) -> None:
        posted = client.post("/v1/studies", json={"name": "s", "trials": 10_000, "chunk_s": 0.1}).json()
        wait_for(lambda: client.get(f"/v1/studies/{posted['id']}").json()["progress"]["chunks_done"] >= 1)
        client.post(f"/v1/studies/{posted['id']}:cancel")
        front = client.get(f"/v1/studies/{posted['id']}/pareto").json()
        assert front["state"] == "cancelled"
        assert len(front["pareto"]) == 1


def test_studies_are_listed_newest_first_in_pages(client: TestClient) -> None:
    ids = [client.post("/v1/studies", json={"name": f"s{i}", "trials": 1}).json()["id"] for i in range(5)]
    first = client.get("/v1/studies?page_size=3").json()
    second = client.get("/v1/studies", params={"page_token": first["next_page_token"], "page_size": 2}).json()
    assert [row["id"] for row in first["items"] + second["items"]] == ids[::-1]


def expected_result(**document: Any) -> dict[str, Any]:
    """What the engine finds when nothing disturbs it."""
    engine = fake_engine()
    problem = engine.prepare(engine.read_study({"name": "s", **document}))
    records: list[Any] = []
    for chunk in range(engine.n_chunks(problem)):
        records += engine.run_chunk(problem, records, chunk)
    return engine.result_document(problem, records)


def test_what_is_stored_of_a_workflow_is_plain_json(client: TestClient) -> None:
    """No pickle in the database: whoever writes to it must not run code in the server."""
    workflow_id = f"{run_study(client, trials=10)['id']}.1"
    output = wait_for(lambda: rows_of(client, "workflow_output", "output", workflow_id))
    assert [json.loads(row.output) for row in output] == ["succeeded"]
    given = rows_of(client, "workflow_input", "inputs", workflow_id)
    assert [json.loads(row.inputs)["positionalArgs"] for row in given] == [[workflow_id.removesuffix(".1"), 1]]
    steps = rows_of(client, "operation_outputs", "output, function_id", workflow_id)
    assert [json.loads(row.output) for row in sorted(steps, key=lambda row: row.function_id)] == [
        {"state": "running", "chunk": 0, "shards": 0},
        {"state": "finished", "n_trials": 10},
        {"state": "succeeded"},
    ]


def rows_of(client: TestClient, table: str, columns: str, workflow_id: str) -> Sequence[Any]:
    """Rows that the workflow engine keeps of one workflow."""
    database: Database = client.app.state.database  # type: ignore[attr-defined]
    schema = "" if database.is_sqlite else "dbos."
    query = sa.text(f"SELECT {columns} FROM {schema}{table} WHERE workflow_uuid = :id")
    with database.pool.connect() as connection:
        return connection.execute(query, {"id": workflow_id}).all()
