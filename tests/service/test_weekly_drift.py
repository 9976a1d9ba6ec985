"""A schedule that reads the newest upload of a name, on the two halves of the Azure conversation trace."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.explorer.test_drift import HEADER, ROWS, SPACE, columns
from tests.service.test_real_engine import real_client, study_document
from tests.service.waiting import wait_for

__all__ = ["real_client"]


def upload(client: TestClient, rows: list[str]) -> str:
    content = "\n".join([HEADER, *rows])
    answer = client.post("/v1/workloads", params={"name": "week.csv"}, content=content,
                         headers={"content-type": "text/csv"})  # fmt: skip
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def finished_run(client: TestClient, path: str, count: int) -> dict[str, Any]:
    """Run a schedule now and return its latest run once `count` of them have succeeded."""
    client.post(f"{path}:run")

    def look() -> dict[str, Any] | None:
        runs = client.get(f"{path}/runs").json()["items"]
        done = [run["state"] for run in runs] == ["succeeded"] * count and (count == 1 or runs[0]["drift"])
        return runs[0] if done else None

    found = wait_for(look, 120.0)
    assert found is not None
    return found


def test_a_replaced_trace_is_read_again_and_its_drift_reported(real_client: TestClient) -> None:
    study = study_document(
        name="week", workload__scenarios__0__network="llama-3.1-8b", workload__scenarios__0__arrivals={},
        workload__scenarios__0__requests={"trace": "latest:week.csv"}, space=SPACE,
        budget={"area": "700 mm2", "tdp": "600 W"}, system={"n_chips": 1}, search__sampler="random", search__trials=10,
    )  # fmt: skip
    weeks = ROWS[: len(ROWS) // 2], ROWS[len(ROWS) // 2 :]
    ids = [upload(real_client, weeks[0])]
    posted = real_client.post("/v1/schedules", json={"name": "weekly", "cron": "0 3 * * 1", "study": study})
    assert posted.status_code == 201, posted.text
    first = finished_run(real_client, posted.headers["Location"], 1)
    ids.append(upload(real_client, weeks[1]))
    second = finished_run(real_client, posted.headers["Location"], 2)
    documents = [real_client.get(f"/v1/studies/{run['study_id']}").json()["document"] for run in (first, second)]
    assert [d["workload"]["scenarios"][0]["requests"]["trace"] for d in documents] == ids
    drift = second["drift"]
    assert drift["previous_study_id"] == first["study_id"]
    mean = drift["distribution"]["chat"]["input_tokens"]["mean"]
    assert [mean["before"], mean["after"]] == pytest.approx([columns(rows)[:, 0].mean() for rows in weeks])
    assert [change["pointer"] for change in drift["inputs_changed"]] == ["/workload/scenarios/0/requests/trace"]
    assert drift["why"]["largest"] in drift["summary"]
