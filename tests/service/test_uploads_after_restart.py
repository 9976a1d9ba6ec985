"""A study that reads uploads outlives the process that took it."""

from __future__ import annotations

from fastapi.testclient import TestClient

from service.app import create_app
from service.real_engine import real_engine
from tests.service.api.test_networks import config_of
from tests.service.api.test_studies import wait_until
from tests.service.api.test_workloads import ROWS
from tests.service.api.test_workloads import sent as send_workload
from tests.service.conftest import quick_settings
from tests.service.test_uploads_in_studies import small


def test_a_queued_study_runs_after_a_restart(database_url: str) -> None:
    settings = quick_settings(database_url)
    config = config_of("llama-3.1-8b") | {"num_hidden_layers": 16}
    with TestClient(create_app(settings.model_copy(update={"run_studies": False}), real_engine())) as client:
        trace = send_workload(client, ROWS).json()["id"]
        network = client.post("/v1/networks", json=config).json()["id"]
        posted = client.post("/v1/studies", json=small(network=network, requests={"trace": trace})).json()
        assert posted["state"] == "queued"
    with TestClient(create_app(settings, real_engine())) as client:
        ended = wait_until(client, posted["id"], "succeeded", "failed")
        assert ended["error"] is None
        assert ended["result"]["inputs"][1]["n_requests"] == 50
