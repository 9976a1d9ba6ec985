"""Ask and tell: an evaluator outside drives a study, dies, and its trials return."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from tests.explorer.test_outside import DOCUMENT
from tests.service.api.test_studies import events_of
from tests.service.test_durability import Processes
from tests.service.test_http import problem_of

ROOT = Path(__file__).parents[3]


def created(client: TestClient, **search: Any) -> str:
    """Path of a new study with an outside evaluator."""
    answer = client.post("/v1/studies", json=DOCUMENT | {"search": {"trials": 8, "seed": 1} | search})
    assert answer.status_code == 202, answer.text
    assert answer.json()["state"] == "running"
    return answer.headers["Location"]


def suggested(client: TestClient, path: str, count: int = 1, who: str = "a") -> list[dict[str, Any]]:
    answer = client.post(f"{path}:suggest", params={"count": count, "client": who})
    assert answer.status_code == 200, answer.text
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


def told(client: TestClient, path: str, numbers: list[int], who: str = "a", **outcome: Any) -> httpx.Response:
    outcome = outcome or {"metrics": {"latency_s": 1.0}, "constraints": {"area": -0.5}}
    return client.post(f"{path}:complete", json={"client": who, "trials": [{"number": n, **outcome} for n in numbers]})


def numbers(trials: list[dict[str, Any]]) -> list[int]:
    return [trial["number"] for trial in trials]


class TestSuggest:
    def test_the_same_client_gets_its_own_trials_again_and_another_gets_others(self, client: TestClient) -> None:
        path = created(client)
        assert numbers(suggested(client, path, 2, "a")) == [0, 1]
        assert numbers(suggested(client, path, 3, "b")) == [2, 3, 4]
        assert numbers(suggested(client, path, 2, "a")) == [0, 1]
        assert numbers(suggested(client, path, 3, "a")) == [0, 1, 5]

    def test_no_more_trials_than_the_study_has(self, client: TestClient) -> None:
        path = created(client)
        assert len(suggested(client, path, 100)) == 8
        assert suggested(client, path, 5, "late") == []

    def test_clients_that_ask_at_once_get_trials_of_their_own(self, client: TestClient) -> None:
        path = created(client, trials=40)
        with ThreadPoolExecutor(6) as pool:
            found = list(pool.map(lambda i: numbers(suggested(client, path, 5, f"c{i}")), range(6)))
        assert sorted(n for each in found for n in each) == list(range(30))

    def test_an_expired_lease_returns_and_its_result_comes_too_late(self, client: TestClient) -> None:
        path = created(client, lease="0.3 s")
        (first,) = suggested(client, path, 1, "slow")
        time.sleep(0.4)
        problem = problem_of(told(client, path, [0], "slow"), 409)
        assert "the lease of trial 0 expired" in problem["detail"]
        (again,) = suggested(client, path, 1, "quick")
        assert (again["number"], again["params"], again["leases"]) == (0, first["params"], 2)
        assert "leased to client 'quick'" in problem_of(told(client, path, [0], "slow"), 409)["detail"]
        assert told(client, path, [0], "quick").status_code == 200

    @pytest.mark.parametrize("query", ["count=0", "count=101", "count=x", "client=", "client=a%20b"])
    def test_a_bad_query_is_refused(self, client: TestClient, query: str) -> None:
        problem_of(client.post(f"{created(client)}:suggest?{query}"), 422)


class TestComplete:
    def test_all_results_make_the_result_of_the_study(self, client: TestClient) -> None:
        path = created(client)
        for trial in suggested(client, path, 8):
            told(
                client,
                path,
                [trial["number"]],
                metrics={"latency_s": 1.0 + trial["number"]},
                constraints={"area": -0.1},
            )
        study = client.get(path).json()
        assert study["state"] == "succeeded"
        assert study["result"]["recommended"]["trial"] == 0
        assert study["result"]["recommended"]["metrics"] == {"latency_s": 1.0}
        assert client.get(f"{path}/recommendation").json()["recommended"] == study["result"]["recommended"]
        assert len(client.get(f"{path}/designs").json()["items"]) == 8
        kinds = [kind for _, kind, _ in events_of(client, study["id"])]
        assert kinds == ["state", "state", *["progress"] * 8, "state"]
        problem_of(client.post(f"{path}:suggest"), 409)

    def test_failed_trials_count_and_have_no_figures(self, client: TestClient) -> None:
        path = created(client, trials=3)
        suggested(client, path, 3)
        assert told(client, path, [0, 2], failure="did not synthesise").status_code == 200
        assert told(client, path, [1]).json()["state"] == "succeeded"
        assert client.get(path).json()["result"]["evaluated"] == 1

    def test_the_front_so_far_is_there_while_it_runs(self, client: TestClient) -> None:
        path = created(client)
        suggested(client, path, 2)
        told(client, path, [1])
        front = client.get(f"{path}/pareto").json()
        assert front["state"] == "running"
        assert [point["trial"] for point in front["pareto"]] == [1]

    @pytest.mark.parametrize(
        ("body", "status", "said"),
        [
            ({"trials": [{"number": 7, "failure": "x"}]}, 404, "trial 7 of study .* was never suggested"),
            ({"trials": []}, 422, "at least 1 item"),
            ({"trials": [{"number": 0, "metrics": {"latency_s": "fast"}}]}, 422, "valid number"),
            ({"trials": [{"number": 0, "metrics": {"latency_s": 1}}]}, 422, "is missing"),
            ({"trials": [{"number": 0, "colour": 1}]}, 422, "Extra inputs"),
            ({"trials": [{"number": 0, "failure": "x"}] * 2}, 422, "must not occur twice"),
            ({"trials": [{"number": 0, "failure": "x", "metrics": {"a": 1}}]}, 422, "neither metrics nor"),
            ({"trials": [{"number": -1, "failure": "x"}]}, 422, "greater than or equal to 0, got -1"),
        ],
    )
    def test_a_bad_result_is_refused_and_changes_nothing(
        self, client: TestClient, body: dict[str, Any], status: int, said: str
    ) -> None:
        path = created(client)
        suggested(client, path, 1)
        suggested(client, path, 1, "default")
        before = client.get(path).json()
        problem = problem_of(client.post(f"{path}:complete", json={"client": "a"} | body), status)
        assert re.search(said, problem["detail"])
        assert client.get(path).json() == before

    def test_a_batch_with_one_bad_result_is_refused_whole(self, client: TestClient) -> None:
        path = created(client)
        suggested(client, path, 1)
        problem_of(told(client, path, [0, 5]), 404)
        assert told(client, path, [0]).status_code == 200
        assert "trial 0 is done already" in problem_of(told(client, path, [0]), 409)["detail"]

    def test_a_study_that_is_judged_here_takes_no_results(self, client: TestClient) -> None:
        path = client.post("/v1/studies", json={"name": "s", "trials": 10_000, "chunk_s": 0.2}).headers["Location"]
        assert "is judged here" in problem_of(client.post(f"{path}:suggest"), 409)["detail"]
        problem_of(told(client, path, [0]), 409)
        client.post(f"{path}:cancel")
        problem_of(client.post("/v1/studies/none:suggest"), 404)

    def test_a_cancelled_study_goes_on_when_it_is_resumed(self, client: TestClient) -> None:
        path = created(client)
        suggested(client, path, 2)
        told(client, path, [0])
        client.post(f"{path}:cancel")
        problem_of(client.post(f"{path}:suggest"), 409)
        assert client.post(f"{path}:resume").json()["state"] == "running"
        assert numbers(suggested(client, path, 3)) == [1, 2, 3]


def test_an_evaluator_process_dies_and_another_finishes_its_trials(processes: Processes) -> None:
    """Its server is killed and restarted too: what was handed out and told is in the database."""
    server = processes.serve()
    document = DOCUMENT | {"search": {"trials": 12, "seed": 1, "lease": "2 s"}}
    path = httpx.post(f"{server.url}/v1/studies", json=document).headers["Location"]
    first = start_evaluator(f"{server.url}{path}", "first", judged=4)
    assert first.stdout is not None and first.stdout.readline() == b"hanging\n"
    first.kill()
    first.communicate()
    server.kill()
    server = processes.serve()
    study = httpx.get(f"{server.url}{path}").json()
    assert (study["state"], study["progress"]["trials_done"]) == ("running", 4)
    time.sleep(2.0)
    second = start_evaluator(f"{server.url}{path}", "second", judged=1000)
    second.communicate(timeout=60.0)
    study = httpx.get(f"{server.url}{path}").json()
    assert (study["state"], study["progress"]["trials_done"]) == ("succeeded", 12)
    designs = httpx.get(f"{server.url}{path}/designs").json()["items"]
    assert numbers(designs) == list(range(12))
    assert study["result"]["recommended"]["metrics"]["latency_s"] == min(d["metrics"]["latency_s"] for d in designs)


def start_evaluator(url: str, client: str, judged: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.service.outside_evaluator", url, client, str(judged)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)


@pytest.fixture
def processes(database_url: str, tmp_path: Path) -> Any:
    started = Processes(database_url, tmp_path)
    yield started
    started.end()
