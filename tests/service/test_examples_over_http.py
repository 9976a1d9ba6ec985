"""Every reference study runs through the API and evaluates what it is asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from explorer.files import read_yaml
from service.app import create_app
from service.real_engine import real_engine
from tests.service.conftest import quick_settings
from tests.service.waiting import wait_for

EXAMPLES = Path(__file__).parents[2] / "examples"
STUDIES = sorted(path.name for path in EXAMPLES.glob("*.yaml") if "objectives" in read_yaml(path))
LONG = os.environ.get("CHIPFIT_LONG") == "1"
TRIALS, TIMEOUT = (24, "60 s") if LONG else (8, "30 s")
"""Under CHIPFIT_LONG=1 all studies with as many trials as a caller asks for; else the quick ones with fewer."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    database_file = tmp_path_factory.mktemp("examples") / "chipfit.sqlite"
    with TestClient(create_app(quick_settings(f"sqlite:///{database_file}"), real_engine())) as client:
        yield client


def ended(client: TestClient, study_id: str) -> dict[str, Any] | None:
    study: dict[str, Any] = client.get(f"/v1/studies/{study_id}").json()
    return study if study["state"] in ("succeeded", "failed") else None


@pytest.mark.parametrize("name", STUDIES if LONG else ["azure-conversation.yaml", "training.yaml"])
def test_a_reference_study_runs_over_http(client: TestClient, name: str) -> None:
    document = read_yaml(EXAMPLES / name)
    document["search"] |= {"trials": TRIALS, "timeout": TIMEOUT, "certify": False}
    posted = client.post("/v1/studies", json=document)
    assert posted.status_code == 202, posted.text
    study = wait_for(lambda: ended(client, posted.json()["id"]), timeout_s=900.0 if LONG else 100.0, every_s=0.2)
    assert study is not None
    assert study["error"] is None
    assert study["result"]["evaluated"] >= TRIALS * 0.8
