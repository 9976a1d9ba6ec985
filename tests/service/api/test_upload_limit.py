"""Uploads above the operator's limit."""

from __future__ import annotations

import zlib
from typing import Any

from fastapi.testclient import TestClient

from service.app import create_app
from service.settings import Settings
from tests.service.api.test_workloads import HEADER, ROWS, sent, stored_ids
from tests.service.conftest import quick_settings
from tests.service.fake_engine import fake_engine
from tests.service.test_http import problem_of


def test_an_upload_above_the_limit_is_refused_packed_or_not(sqlite_url: str) -> None:
    settings: Settings = quick_settings(sqlite_url).model_copy(update={"max_upload_bytes": 50_000})
    with TestClient(create_app(settings, fake_engine()), raise_server_exceptions=False) as client:
        large = HEADER + "0,5,5\n" * 20_000
        assert "must not exceed" in problem_of(sent(client, large), 413)["detail"]
        packed = problem_of(sent(client, zlib.compress(large.encode(), wbits=31), "trace.csv.gz"), 413)
        assert "must be at most 50000 B unpacked" in packed["detail"]
        chunks: Any = (large[i : i + 4096].encode() for i in range(0, len(large), 4096))
        problem_of(sent(client, chunks), 413)
        problem_of(client.post("/v1/workloads", files={"file": ("trace.csv", large)}), 413)
        assert stored_ids(client) == []
        assert sent(client, ROWS).status_code == 201
