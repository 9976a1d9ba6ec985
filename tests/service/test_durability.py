"""Kills of servers, workers and the database in the middle of a study."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.db import queries
from service.db.session import open_database, reading
from tests.service.api.test_studies import expected_result, result_of
from tests.service.postgres_server import PostgresServer
from tests.service.server_process import ServiceProcess
from tests.service.waiting import wait_for

KILLS = 3
LONG_STUDY = {"trials": 300, "chunk_trials": 10, "chunk_s": 0.1}


class Processes:
    """Starts processes on one database and ends them all with the test."""

    def __init__(self, database_url: str, folder: Path) -> None:
        self.database_url = database_url
        self._folder = folder
        self._started: list[ServiceProcess] = []

    def serve(self, *options: str) -> ServiceProcess:
        server = self._start("serve", *options)
        server.wait_until_serving()
        return server

    def work(self) -> ServiceProcess:
        worker = self._start("worker")
        worker.wait_until_working()
        return worker

    def _start(self, role: str, *options: str) -> ServiceProcess:
        log = self._folder / f"{role}-{len(self._started)}.log"
        self._started.append(ServiceProcess(role, self.database_url, log, *options))
        return self._started[-1]

    def end(self) -> None:
        for process in self._started:
            process.kill()


@pytest.fixture
def processes(database_url: str, tmp_path: Path) -> Iterator[Processes]:
    started = Processes(database_url, tmp_path)
    yield started
    started.end()


@pytest.fixture
def postgres_processes(postgres_server: PostgresServer, tmp_path: Path) -> Iterator[Processes]:
    started = Processes(postgres_server.create_database(), tmp_path)
    yield started
    started.end()


def post_study(server: ServiceProcess, **document: Any) -> str:
    answer = httpx.post(f"{server.url}/v1/studies", json={"name": "s", **document}, timeout=10.0)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def get_study(server: ServiceProcess, study_id: str) -> dict[str, Any]:
    study: dict[str, Any] = httpx.get(f"{server.url}/v1/studies/{study_id}", timeout=10.0).json()
    return study


def wait_for_chunks(server: ServiceProcess, study_id: str, chunks: int, timeout_s: float = 30.0) -> None:
    wait_for(lambda: get_study(server, study_id)["progress"]["chunks_done"] >= chunks, timeout_s)


def assert_undisturbed(server: ServiceProcess, database_url: str, study_id: str, document: dict[str, Any]) -> None:
    """The study has ended as if nothing had happened: each trial once, the same result, one event for each chunk."""
    study = wait_for(lambda: (s := get_study(server, study_id)) and s["state"] in ("succeeded", "failed") and s, 90.0)
    assert study["error"] is None
    assert result_of(study) == expected_result(**document)
    database = open_database(database_url)
    with reading(database) as session:
        numbers = [record["number"] for record in queries.records_before(session, study_id)]
        kinds = [event.kind for event in queries.events_after(session, study_id, 0)]
    database.close()
    assert numbers == list(range(document["trials"]))
    assert kinds.count("progress") == study["progress"]["chunks_done"]


def kill_and_restart(processes: Processes, kills: int, seed: int) -> None:
    """Kill the server at random moments of a study, and restart it each time."""
    rng = random.Random(seed)
    document = LONG_STUDY | {"trials": 100 * kills}
    server = processes.serve()
    study_id = post_study(server, **document)
    for kill in range(kills):
        wait_for_chunks(server, study_id, 1 + 8 * kill)
        time.sleep(rng.uniform(0.0, 0.3))
        server.kill()
        server = processes.serve()
    assert_undisturbed(server, processes.database_url, study_id, document)


def test_a_study_survives_kills_of_its_server(processes: Processes) -> None:
    kill_and_restart(processes, KILLS, seed=0)


@pytest.mark.chaos
def test_a_study_survives_many_kills_of_its_server(processes: Processes) -> None:
    kill_and_restart(processes, int(os.environ["CHIPFIT_CHAOS_KILLS"]), seed=1)


def test_a_study_moves_from_a_killed_worker_to_the_other(postgres_processes: Processes) -> None:
    server = postgres_processes.serve("--no-studies")
    study_id, worker = study_on_one_of_two_workers(postgres_processes, server)
    worker.kill()
    wait_for_next_chunk(server, study_id, within_s=15.0)
    assert_undisturbed(server, postgres_processes.database_url, study_id, LONG_STUDY)


def test_a_frozen_worker_loses_its_study_and_doubles_nothing_when_it_wakes(postgres_processes: Processes) -> None:
    server = postgres_processes.serve("--no-studies")
    study_id, worker = study_on_one_of_two_workers(postgres_processes, server)
    worker.freeze()
    wait_for_next_chunk(server, study_id, within_s=15.0)
    worker.thaw()
    assert_undisturbed(server, postgres_processes.database_url, study_id, LONG_STUDY)


def study_on_one_of_two_workers(processes: Processes, server: ServiceProcess) -> tuple[str, ServiceProcess]:
    """Start two workers and a study; return the study and the worker that runs it."""
    workers = {worker.pid: worker for worker in (processes.work(), processes.work())}
    study_id = post_study(server, **LONG_STUDY)
    wait_for_chunks(server, study_id, 2)
    return study_id, workers[wait_for(lambda: running_pid(processes.database_url)) or 0]


def wait_for_next_chunk(server: ServiceProcess, study_id: str, within_s: float) -> None:
    """Wait until a chunk is recorded that no step in flight can account for."""
    done = get_study(server, study_id)["progress"]["chunks_done"]
    wait_for_chunks(server, study_id, done + 2, timeout_s=within_s)


def test_a_study_goes_on_when_its_database_is_back(postgres_server: PostgresServer, tmp_path: Path) -> None:
    processes = Processes(postgres_server.create_database(), tmp_path)
    try:
        server = processes.serve()
        study_id = post_study(server, **LONG_STUDY)
        wait_for_chunks(server, study_id, 2)
        postgres_server.kill()
        time.sleep(1.0)
        assert httpx.get(f"{server.url}/readyz", timeout=10.0).status_code == 503
        assert httpx.get(f"{server.url}/v1/studies", timeout=10.0).status_code == 503
        postgres_server.start()
        assert_undisturbed(server, processes.database_url, study_id, LONG_STUDY)
    finally:
        processes.end()


def test_a_stopped_server_finishes_its_step_and_the_next_one_goes_on(processes: Processes) -> None:
    server = processes.serve()
    study_id = post_study(server, **LONG_STUDY)
    wait_for_chunks(server, study_id, 2)
    assert server.terminate() == 0
    server = processes.serve()
    assert_undisturbed(server, processes.database_url, study_id, LONG_STUDY)


def test_a_stopped_worker_hands_its_study_over_at_once(postgres_processes: Processes) -> None:
    server = postgres_processes.serve("--no-studies")
    study_id, worker = study_on_one_of_two_workers(postgres_processes, server)
    assert worker.terminate() == 0
    wait_for_next_chunk(server, study_id, within_s=5.0)
    assert_undisturbed(server, postgres_processes.database_url, study_id, LONG_STUDY)


def test_a_server_with_an_open_stream_stops_in_time(processes: Processes) -> None:
    server = processes.serve()
    study_id = post_study(server, **LONG_STUDY)
    with httpx.stream("GET", f"{server.url}/v1/studies/{study_id}/events", timeout=30.0) as stream:
        next(stream.iter_lines())
        began_s = time.monotonic()
        assert server.terminate() == 0
        assert time.monotonic() - began_s < 15.0


def test_a_study_is_read_back_identically_after_a_restart(processes: Processes) -> None:
    server = processes.serve()
    study_id = post_study(server, trials=30)
    before = wait_for(lambda: (s := get_study(server, study_id)) and s["state"] == "succeeded" and s)
    designs = httpx.get(f"{server.url}/v1/studies/{study_id}/designs").json()
    server.kill()
    server = processes.serve()
    assert get_study(server, study_id) == before
    assert httpx.get(f"{server.url}/v1/studies/{study_id}/designs").json() == designs


def test_two_servers_on_one_database_share_the_work(processes: Processes) -> None:
    servers = [processes.serve(), processes.serve()]
    document = {"trials": 50, "chunk_trials": 10, "chunk_s": 0.05}
    ids = [post_study(server, seed=i, **document) for i in range(4) for server in servers]
    for number, study_id in enumerate(ids):
        assert_undisturbed(servers[number % 2], processes.database_url, study_id, {**document, "seed": number // 2})


def running_pid(database_url: str) -> int | None:
    """Process number of the executor that runs a study now."""
    import psycopg

    query = """
        SELECT executors.pid FROM dbos.workflow_status AS jobs JOIN executors ON executors.id = jobs.executor_id
        WHERE jobs.status = 'PENDING'
    """
    with psycopg.connect(database_url) as connection:
        row = connection.execute(query).fetchone()
    return None if row is None else int(row[0])
