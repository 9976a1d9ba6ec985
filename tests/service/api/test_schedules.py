from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.service.test_http import problem_of
from tests.service.waiting import wait_for


def request(**changes: Any) -> dict[str, Any]:
    return {
        "name": "weekly", "cron": "30 2 * * 1", "time_zone": "Europe/Berlin", "study": {"name": "s", "trials": 20},
        **changes,
    }  # fmt: skip


def posted(client: TestClient, **changes: Any) -> dict[str, Any]:
    answer = client.post("/v1/schedules", json=request(**changes))
    assert answer.status_code == 201, answer.text
    schedule: dict[str, Any] = answer.json()
    return schedule


def runs(client: TestClient, schedule_id: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = client.get(f"/v1/schedules/{schedule_id}/runs").json()["items"]
    return items


class TestASchedule:
    def test_shows_its_next_times_and_is_found_again(self, client: TestClient) -> None:
        schedule = posted(client)
        fires = [datetime.fromisoformat(each) for each in schedule["next_fires"]]
        assert len(fires) == 5
        assert all(each.weekday() == 0 and each > datetime.now(UTC) for each in fires)
        assert client.get(f"/v1/schedules/{schedule['id']}").json() == schedule
        assert schedule["id"] in [each["id"] for each in client.get("/v1/schedules").json()["items"]]

    def test_is_paused_resumed_and_deleted(self, client: TestClient) -> None:
        path = f"/v1/schedules/{posted(client)['id']}"
        paused = client.post(f"{path}:pause").json()
        assert (paused["state"], paused["next_fires"], paused["version"]) == ("paused", [], 2)
        resumed = client.post(f"{path}:resume").json()
        assert (resumed["state"], len(resumed["next_fires"])) == ("active", 5)
        assert client.post(f"{path}:pause", headers={"If-Match": '"v1"'}).status_code == 412
        assert client.delete(path).status_code == 204
        problem_of(client.get(path), 404)

    def test_runs_now_and_compares_with_the_run_before(self, client: TestClient) -> None:
        schedule_id = posted(client)["id"]
        for count in (1, 2):
            assert client.post(f"/v1/schedules/{schedule_id}:run").status_code == 202
            wait_for(lambda n=count: [r["state"] for r in runs(client, schedule_id)] == ["succeeded"] * n)  # type: ignore[misc]
        latest = wait_for(lambda: (r := runs(client, schedule_id)[0])["drift"] and r)
        assert latest["drift"]["previous_study_id"] == runs(client, schedule_id)[1]["study_id"]
        assert latest["kind"] == "manual"

    def test_backfilled_twice_runs_once(self, client: TestClient) -> None:
        schedule_id = posted(client, cron="0 12 * * *")["id"]
        today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        span = {"from": (today - timedelta(days=4)).isoformat(), "to": today.isoformat()}
        first, again = (client.post(f"/v1/schedules/{schedule_id}:backfill", json=span).json() for _ in range(2))
        assert (len(first["added"]), first["known"]) == (4, 0)
        assert again == {"added": [], "known": 4}
        wait_for(lambda: [r["state"] for r in runs(client, schedule_id)] == ["succeeded"] * 4)
        assert len({r["study_id"] for r in runs(client, schedule_id)}) == 4

    @pytest.mark.parametrize(
        ("changes", "pointer"),
        [
            ({"cron": "0 0 31 2 *"}, "/cron"),
            ({"cron": "* * * *"}, "/cron"),
            ({"time_zone": "Mars/Olympus"}, "/time_zone"),
            ({"study": {"name": "s", "trials": 0}}, "/study/trials"),
            ({"study": {"name": "s", "trace": "latest:none"}}, "/study/trace"),
            ({"overlap": "maybe"}, "/overlap"),
        ],
        ids=["never", "fields", "zone", "study", "upload", "overlap"],
    )
    def test_that_is_bad_is_refused_and_nothing_is_kept(
        self, client: TestClient, changes: dict[str, Any], pointer: str
    ) -> None:
        before = client.get("/v1/schedules").json()
        problem = problem_of(client.post("/v1/schedules", json=request(**changes)), 422)
        assert problem["errors"][0]["pointer"] == pointer
        assert client.get("/v1/schedules").json()["items"] == before["items"]

    def test_backfill_of_a_bad_span_is_refused(self, client: TestClient) -> None:
        schedule_id = posted(client, cron="* * * * *")["id"]
        for span, pointer in (
            ({"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"}, "/from"),
            ({"from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"}, "/to"),
            ({"from": "2026-01-02T00:00:00Z", "to": "2999-01-01T00:00:00Z"}, "/to"),
        ):
            problem = problem_of(client.post(f"/v1/schedules/{schedule_id}:backfill", json=span), 422)
            assert problem["errors"][0]["pointer"] == pointer
        assert runs(client, schedule_id) == []
        client.delete(f"/v1/schedules/{schedule_id}")
