from __future__ import annotations

from typing import Any

from fastapi.testclient import TestClient

from tests.service.test_http import problem_of
from tests.service.waiting import wait_for

AXES = [
    {"name": "trials", "pointer": "/trials", "values": [20, 30]},
    {"name": "seed", "pointer": "/seed", "values": [1, 2, 3]},
]


def posted(client: TestClient, **changes: Any) -> dict[str, Any]:
    answer = client.post("/v1/sweeps", json={"name": "grid", "study": {"name": "s"}, "axes": AXES, **changes})
    assert answer.status_code == 202, answer.text
    assert answer.headers["Location"] == f"/v1/sweeps/{answer.json()['id']}"
    sweep: dict[str, Any] = answer.json()
    return sweep


def ended(client: TestClient, sweep_id: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        sweep: dict[str, Any] = client.get(f"/v1/sweeps/{sweep_id}").json()
        return sweep if sweep["done"] else None

    found = wait_for(look, 60.0)
    assert found is not None
    return found


class TestASweep:
    def test_runs_a_study_for_each_cell_and_shows_what_they_recommend(self, client: TestClient) -> None:
        queued = posted(client)
        assert queued["n_cells"] == 6
        sweep = ended(client, queued["id"])
        assert sweep["cells_by_state"] == {"succeeded": 6}
        assert [cell["coordinates"] for cell in sweep["cells"]][:4] == [[0, 0], [0, 1], [0, 2], [1, 0]]
        for cell in sweep["cells"]:
            study = client.get(f"/v1/studies/{cell['study_id']}").json()
            assert study["queue"] == "sweeps"
            assert study["document"]["seed"] == AXES[1]["values"][cell["coordinates"][1]]  # type: ignore[index]
            assert study["result"]["recommended"]["metrics"] == cell["metrics"]

    def test_is_drawn_over_two_axes(self, client: TestClient) -> None:
        sweep = ended(client, posted(client)["id"])
        drawn = client.get(f"/v1/sweeps/{sweep['id']}/heatmap", params={"metric": "ttft_p95_s"}).json()
        expected = [cell["metrics"]["ttft_p95_s"] for cell in sweep["cells"]]
        assert drawn["values"] == [expected[:3], expected[3:]]
        assert drawn["y"]["labels"] == ["20", "30"]
        sliced = client.get(f"/v1/sweeps/{sweep['id']}/heatmap", params={"x": "trials", "metric": "ttft_p95_s"}).json()
        assert sliced["values"][2] == [expected[2], expected[5]]
        problem = problem_of(client.get(f"/v1/sweeps/{sweep['id']}/heatmap", params={"x": "tria"}), 422)
        assert problem["errors"][0]["pointer"] == "query.x"

    def test_shows_partial_results_is_cancelled_and_deleted(self, client: TestClient) -> None:
        slow = [{"name": "speed", "pointer": "/chunk_s", "values": [0.0, 5.0]}]
        queued = posted(client, axes=slow, study={"name": "s", "trials": 200, "chunk_trials": 100})
        path = f"/v1/sweeps/{queued['id']}"
        partial = wait_for(lambda: (s := client.get(path).json())["cells"][0]["state"] == "succeeded" and s)
        assert partial["done"] is False
        assert partial["cells"][0]["metrics"] is not None
        problem_of(client.delete(path), 409)
        assert client.post(f"{path}:cancel").json()["cells_by_state"] == {"succeeded": 1, "cancelled": 1}
        assert client.delete(path).status_code == 204
        problem_of(client.get(path), 404)
        problem_of(client.get(f"/v1/studies/{queued['cells'][0]['study_id']}"), 404)

    def test_that_is_bad_is_refused_and_nothing_is_queued(self, client: TestClient) -> None:
        before = client.get("/v1/studies").json()["items"]
        huge = [{"name": f"a{i}", "pointer": f"/x{i}", "values": list(range(1000))} for i in range(3)]
        for axes, pointer in (
            (huge, "/axes"),
            ([{"name": "n", "pointer": "/trials", "values": [20, 0]}], "/axes/0/values/1"),
            ([{"name": "n", "pointer": "/colour", "values": [20]}], "/axes/0/values/0"),
            ([], "/axes"),
        ):
            answer = client.post("/v1/sweeps", json={"name": "bad", "study": {"name": "s"}, "axes": axes})
            assert problem_of(answer, 422)["errors"][0]["pointer"] == pointer
        assert client.get("/v1/studies").json()["items"] == before

    def test_repeated_under_the_same_key_is_the_same_sweep(self, client: TestClient) -> None:
        request = {"name": "grid", "study": {"name": "s"}, "axes": AXES[:1]}
        headers = {"Idempotency-Key": "one-sweep"}
        answers = [client.post("/v1/sweeps", json=request, headers=headers) for _ in range(2)]
        assert answers[0].json()["id"] == answers[1].json()["id"]
        assert [s["id"] for s in client.get("/v1/sweeps").json()["items"]].count(answers[0].json()["id"]) == 1


def test_a_fleet_is_planned_at_once(client: TestClient) -> None:
    problem = problem_of(client.post("/v1/sweeps:fleet", json={"name": "week"}), 422)
    assert {error["pointer"] for error in problem["errors"]} == {"/study", "/demand_requests_per_s"}
