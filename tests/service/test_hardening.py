"""Slow, huge and malformed requests are refused with a problem, and the server keeps answering."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.settings import Settings, SettingsError, read_settings
from tests.service.server_process import ServiceProcess
from tests.service.test_durability import Processes
from tests.service.test_http import problem_of
from tests.service.waiting import wait_for

HEAD = "POST /v1/studies HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A server that waits a second for bodies and heads."""
    folder = tmp_path_factory.mktemp("hardening")
    processes = Processes(f"sqlite:///{folder / 'chipfit.sqlite'}", folder)
    try:
        yield processes.serve("--timeout-s", "1")
    finally:
        processes.end()


def connect(server: ServiceProcess) -> socket.socket:
    url = httpx.URL(server.url)
    return socket.create_connection((url.host, url.port or 80), timeout=10.0)


def answer_of(connection: socket.socket) -> tuple[int, dict[str, object]]:
    """Status and document of an answer behind which the server hangs up."""
    received = b""
    while piece := connection.recv(65_536):
        received += piece
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head
    return int(head.split()[1]), json.loads(body)


def is_responsive(server: ServiceProcess) -> bool:
    began_s = time.monotonic()
    return httpx.get(f"{server.url}/v1/chips").status_code == 200 and time.monotonic() - began_s < 2.0


def test_a_body_of_a_gigabyte_is_refused_by_its_length_alone(server: ServiceProcess) -> None:
    with connect(server) as connection:
        connection.sendall(f"{HEAD}Content-Length: {1024**3}\r\n\r\n{{".encode())
        status, problem = answer_of(connection)
    assert status == 413
    assert problem["detail"] == "the request body must not exceed 16777216 bytes"
    assert is_responsive(server)


def test_a_body_that_drips_is_refused_in_time(server: ServiceProcess) -> None:
    with connect(server) as connection:
        began_s = time.monotonic()
        connection.sendall(f"{HEAD}Content-Length: 1000\r\n\r\n".encode())
        for _ in range(4):
            connection.sendall(b" ")
            time.sleep(0.2)
        assert is_responsive(server)
        status, problem = answer_of(connection)
    assert status == 408
    assert problem["detail"] == "the request body must arrive within 1 s"
    assert time.monotonic() - began_s < 5.0


def test_a_head_that_drips_is_hung_up_on(server: ServiceProcess) -> None:
    with connect(server) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nX-Slow: ")
        began_s = time.monotonic()
        assert connection.recv(1) == b""
        assert 0.5 < time.monotonic() - began_s < 4.0
    assert is_responsive(server)


def test_many_dripping_callers_leave_the_server_responsive(server: ServiceProcess) -> None:
    connections = [connect(server) for _ in range(100)]
    for connection in connections:
        connection.sendall(f"{HEAD}Content-Length: 1000\r\n\r\n".encode())
    assert is_responsive(server)
    for connection in connections:
        connection.close()


def test_what_is_no_http_is_refused(server: ServiceProcess) -> None:
    with connect(server) as connection:
        connection.sendall(b"\x16\x03\x01\x00\xa5nonsense\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 400")
    assert is_responsive(server)


def test_every_request_is_logged_as_json_with_its_id_and_study(server: ServiceProcess) -> None:
    made = httpx.post(f"{server.url}/v1/studies", json={"name": "s"}, headers={"X-Request-ID": "plan-7"})
    assert made.headers["X-Request-ID"] == "plan-7"
    study_id = made.json()["id"]
    httpx.get(f"{server.url}/v1/studies/{study_id}", headers={"X-Request-ID": "no (plain) id"})
    got = wait_for(lambda: [each for each in logged(server, study_id=study_id) if each.get("method") == "GET"])
    posted = logged(server, request_id="plan-7")
    assert (posted[0]["event"], posted[0]["study_id"]) == ("study queued", study_id)
    assert posted[-1]["event"] == "request" and posted[-1]["status"] == 202
    assert re.fullmatch("[0-9a-f]{32}", got[0]["request_id"])


def logged(server: ServiceProcess, **fields: str) -> list[dict[str, Any]]:
    """Lines of the log that hold these fields; a request's own comes just after its answer."""
    lines = [json.loads(line) for line in server.log_text().splitlines(keepends=True) if line.endswith("\n")]
    return [line for line in lines if fields.items() <= line.items()]


def test_metrics_count_requests_by_route_and_studies_by_state(server: ServiceProcess) -> None:
    httpx.get(f"{server.url}/v1/studies/none")
    httpx.request("BREW", f"{server.url}/v1/nowhere")
    text = httpx.get(f"{server.url}/metrics").text
    assert 'chipfit_http_requests_total{method="GET",route="/v1/studies/{study_id}",status="404"}' in text
    assert 'method="other",route="unmatched"' in text
    assert 'chipfit_studies{state="queued"}' in text
    assert 'chipfit_executors{state="alive"} 1.0' in text
    assert "process_resident_memory_bytes" in text


class TestBehindAProxy:
    def test_locations_and_pages_work_under_the_prefix_that_it_strips(self, tmp_path: Path) -> None:
        processes = Processes(f"sqlite:///{tmp_path / 'chipfit.sqlite'}", tmp_path)
        try:
            server = processes.serve("--root-path", "/tools/chipfit")
            origin = server.url.removesuffix("/tools/chipfit")
            posted = httpx.post(f"{origin}/v1/studies", json={"name": "s"})
            assert posted.headers["Location"] == f"/tools/chipfit/v1/studies/{posted.json()['id']}"
            sent = httpx.post(f"{origin}/v1/workloads?name=t.csv", content="input_tokens,output_tokens\n5,7\n")
            assert sent.headers["Location"] == f"/tools/chipfit/v1/workloads/{sent.json()['id']}"
            for path in ("/docs", "/static/docs.js", "/v1/studies"):
                assert httpx.get(f"{origin}{path}").status_code == 200
            assert httpx.get(f"{origin}/openapi.json").json()["servers"] == [{"url": "/tools/chipfit"}]
        finally:
            processes.end()


class TestSettings:
    @pytest.mark.parametrize(
        ("stated", "said"),
        [
            ({"rate_limit": "often"}, "rate_limit: .*'3000/minute', got 'often'"),
            ({"port": 70_000}, "port: .*got 70000"),
            ({"max_trials": 0}, "max_trials"),
        ],
    )
    def test_a_bad_one_is_named(self, stated: dict[str, object], said: str) -> None:
        with pytest.raises(SettingsError, match=said):
            read_settings(**stated)

    def test_lists_stand_between_commas_in_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CHIPFIT_CORS_ORIGINS", "https://a.example, https://b.example")
        assert read_settings().cors_origins == ["https://a.example", "https://b.example"]

    @pytest.mark.parametrize(
        ("host", "required"),
        [("127.0.0.1", False), ("localhost", False), ("::1", False), ("0.0.0.0", True), ("::", True)],
    )
    def test_keys_are_required_wherever_others_can_call(self, host: str, required: bool) -> None:
        assert Settings(host=host).keys_required is required


def test_a_server_beyond_loopback_asks_for_keys(tmp_path: Path) -> None:
    processes = Processes(f"sqlite:///{tmp_path / 'chipfit.sqlite'}", tmp_path)
    try:
        server = processes.serve("--host", "0.0.0.0")
        url = server.url.replace("0.0.0.0", "127.0.0.1")
        assert httpx.get(f"{url}/livez").status_code == 200
        problem_of(httpx.get(f"{url}/v1/studies"), 401)
        problem_of(httpx.get(f"{url}/docs"), 401)
    finally:
        processes.end()
