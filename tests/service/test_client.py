"""The Python client against a server of its own."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.client import ApiError, Client, StudyFailedError
from tests.service.api.test_networks import config_of
from tests.service.api.test_workloads import ROWS
from tests.service.postgres_server import free_port
from tests.service.test_durability import Processes
from tests.service.waiting import wait_for


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("client")
    processes = Processes(f"sqlite:///{folder / 'chipfit.sqlite'}", folder)
    try:
        with Client(processes.serve().url) as client:
            yield client
    finally:
        processes.end()


@pytest.fixture(scope="module")
def study_id(client: Client) -> str:
    posted = client.submit({"name": "s", "trials": 30, "chunk_trials": 10})
    client.wait(posted["id"])
    return str(posted["id"])


def test_a_study_is_submitted_followed_and_read(client: Client) -> None:
    told = []
    posted = client.submit({"name": "s", "trials": 30, "chunk_trials": 10, "chunk_s": 0.05})
    result = client.wait(posted["id"], told.append)
    assert result["evaluated"] == 30
    assert [each["trials_done"] for each in told] == sorted(each["trials_done"] for each in told)
    assert told[-1]["state"] == "succeeded"
    assert client.recommendation(posted["id"])["recommended"] == result["recommended"]
    assert client.pareto(posted["id"]) == result["pareto"]
    assert client.study(posted["id"])["result"] == result


def test_the_events_of_an_ended_study_end(client: Client, study_id: str) -> None:
    events = list(client.events(study_id))
    assert events[-1].progress["state"] == "succeeded"
    assert list(client.events(study_id, after=events[-1].id)) == []


def test_the_same_key_twice_makes_one_study(client: Client) -> None:
    first, second = (client.submit({"name": "once"}, idempotency_key="a") for _ in range(2))
    assert first["id"] == second["id"]


def test_designs_come_page_by_page_and_as_tables(client: Client, study_id: str, tmp_path: Path) -> None:
    assert [each["number"] for each in client.designs(study_id)] == list(range(30))
    feasible = list(client.designs(study_id, feasible=True))
    assert client.table(study_id)["feasible"].to_pylist().count(True) == len(feasible) == 20
    chosen = f'study_id = "{study_id}" and area_mm2 < 110'
    assert client.table(filter=chosen).num_rows == len(list(client.history(filter=chosen))) == 10
    written = json.loads(client.export(tmp_path / "designs.json", study_id, format="json").read_text())
    assert len(written["designs"]) == 30


def test_designs_come_as_a_data_frame_where_pandas_is_there(client: Client, study_id: str) -> None:
    pytest.importorskip("pandas")
    frame = client.frame(study_id)
    assert frame[frame["feasible"]]["area_mm2"].min() == 101.0


def test_uploads_are_named_by_their_id(client: Client, tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(ROWS)
    workload = client.upload_workload(tmp_path / "trace.csv")
    assert workload["requests"]["input_tokens"]["mean"] == 124.5
    assert client.upload_workload(ROWS.encode(), "again.csv")["id"] == workload["id"]
    assert client.upload_network(config_of("llama-3.1-8b"), "mine")["n_layers"] == 32


def test_a_refusal_carries_the_problem(client: Client) -> None:
    with pytest.raises(ApiError, match="422: ") as caught:
        client.submit({"name": "s", "trials": -1})
    assert caught.value.errors[0]["pointer"] == "/trials"
    with pytest.raises(ApiError, match="404: unknown study 'none'"):
        list(client.events("none"))


def test_a_study_that_fails_or_is_cancelled_has_no_result(client: Client) -> None:
    failing = client.submit({"name": "s", "trials": 30, "fails_at_chunk": 0})
    with pytest.raises(StudyFailedError, match="has failed: ZeroDivisionError: asked to fail"):
        client.wait(failing["id"])
    long = client.submit({"name": "s", "trials": 1000, "chunk_s": 0.2})
    client.cancel(long["id"])
    with pytest.raises(StudyFailedError, match="has cancelled"):
        client.wait(long["id"])
    client.delete_study(long["id"])
    assert long["id"] not in [each["id"] for each in client.studies()]


def test_a_study_is_followed_through_a_crash_of_the_server(tmp_path: Path) -> None:
    processes = Processes(f"sqlite:///{tmp_path / 'chipfit.sqlite'}", tmp_path)
    port = str(free_port())
    try:
        server = processes.serve("--port", port)
        with Client(server.url) as client:
            posted = client.submit({"name": "s", "trials": 60, "chunk_trials": 10, "chunk_s": 0.3})
            seen: list[int] = []
            follower = threading.Thread(
                target=client.wait, args=(posted["id"], lambda progress: seen.append(progress["chunks_done"]))
            )
            follower.start()
            wait_for(lambda: max(seen, default=0) >= 2)
            server.kill()
            processes.serve("--port", port)
            follower.join(timeout=60)
            assert not follower.is_alive()
            assert sorted(set(seen)) == list(range(7))
    finally:
        processes.end()
