"""Behaviour under load, on a server of its own on loopback; every test stops by itself."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from explorer.records import design_document
from models.hardware.catalog import chip_designs
from service.demo import running_server
from service.load_bench import evaluation_times_s, percentiles_s, read_events, resident_bytes, send_many
from tests.service.server_process import ServiceProcess
from tests.service.test_durability import Processes, get_study, post_study
from tests.service.test_real_engine import study_document

READERS = 200


@pytest.fixture
def server(tmp_path: Any) -> Iterator[ServiceProcess]:
    processes = Processes(f"sqlite:///{tmp_path / 'chipfit.sqlite'}", tmp_path)
    try:
        yield processes.serve()
    finally:
        processes.end()


@pytest.mark.load
def test_many_readers_follow_a_study_to_its_end_and_each_sees_every_event(server: ServiceProcess) -> None:
    study_id = post_study(server, trials=30, chunk_trials=10, chunk_s=1.0)
    seen = asyncio.run(read_events(server.url, f"/v1/studies/{study_id}", READERS))
    assert get_study(server, study_id)["state"] == "succeeded"
    assert seen == [6] * READERS
    assert httpx.get(f"{server.url}/readyz").status_code == 200


@pytest.mark.load
def test_memory_stays_flat_over_ten_thousand_requests(server: ServiceProcess) -> None:
    post_study(server, trials=10)
    paths = ["/v1/studies", "/v1/chips", "/v1/designs?page_size=10", "/version", "/metrics"]
    asyncio.run(send_many(server.url, paths, 2_000, 8))
    before = resident_bytes(server.pid)
    asyncio.run(send_many(server.url, paths, 10_000, 8))
    growth = resident_bytes(server.pid) / before - 1.0
    print(f"resident memory {before / 2**20:.0f} MiB, growth over 10,000 requests {growth:+.1%}")
    assert growth < 0.05


@pytest.mark.load
def test_what_if_evaluations_are_quick_at_twenty_a_second(tmp_path: Any) -> None:
    """Every request asks for a new design on a known workload: nothing is answered from the history."""
    documents = [what_if(i) for i in range(420)]
    with running_server(tmp_path) as url:
        asyncio.run(evaluation_times_s(url, documents[:20], 2.0))
        found = percentiles_s(asyncio.run(evaluation_times_s(url, documents[20:], 20.0)))
    print({name: f"{1e3 * value:.1f} ms" for name, value in found.items()})
    assert found["p95_s"] < 0.05


def what_if(i: int) -> dict[str, Any]:
    """The chat study on an H100 with a clock and a cache of its own."""
    design = design_document(chip_designs(["h100_sxm"]), 0)
    changed = {"clock_hz": 1.2e9 + 1e6 * i, "l2_bytes": design["l2_bytes"] + 4096 * i}
    return {"design": design | changed, "study": study_document()}


@pytest.mark.load
def test_ten_thousand_designs_are_judged_in_one_call_in_bounded_memory(tmp_path: Any) -> None:
    document = what_if(0)
    designs = [document["design"] | {"clock_hz": 1.2e9 + 1e4 * i, "n_cores": 64.0 + i % 64} for i in range(10_000)]
    with running_server(tmp_path) as url, httpx.Client(base_url=url, timeout=300.0) as client:
        (server,) = children_of(os.getpid())
        client.post("/v1/evaluations", json=document).raise_for_status()
        before = resident_bytes(server)
        answer = client.post("/v1/evaluations", json={"designs": designs, "study": document["study"]})
        growth_bytes = peak_resident_bytes(server) - before
        print(f"{len(designs)} designs in {answer.elapsed.total_seconds():.1f} s, {growth_bytes / 2**20:.0f} MiB more")
    assert len(answer.json()["items"]) == len(designs)
    assert growth_bytes < 512 * 2**20


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def peak_resident_bytes(pid: int) -> int:
    fields = Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024 * int(next(line for line in fields if line.startswith("VmHWM:")).split()[1])
