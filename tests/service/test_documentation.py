"""The documentation pages: from this package alone."""

from __future__ import annotations

import csv
import hashlib
import re

import pytest
from fastapi.testclient import TestClient

from service.app import create_app
from service.documentation import STATIC
from service.settings import Settings
from tests.service.fake_engine import fake_engine


@pytest.fixture(scope="module")
def pages() -> TestClient:
    return TestClient(create_app(Settings(), fake_engine()))


def test_the_page_names_only_files_that_are_served_here(pages: TestClient) -> None:
    page = pages.get("/docs")
    assert page.headers["content-security-policy"].startswith("default-src 'self'")
    named = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(named) == 3
    for name in named:
        assert "//" not in name
        assert pages.get(f"/{name}").status_code == 200
    assert 'url: "openapi.json"' in pages.get("/static/docs.js").text


def test_files_of_others_are_those_noted() -> None:
    noted = list(csv.DictReader((STATIC / "vendored.csv").read_text().splitlines()))
    for row in noted:
        assert hashlib.sha256((STATIC / row["file"]).read_bytes()).hexdigest() == row["sha256"], row["file"]
        assert row["version"] and row["licence"]
    kept = {str(path.relative_to(STATIC)) for path in STATIC.rglob("*") if path.is_file()}
    assert kept == {row["file"] for row in noted} | {"vendored.csv", "docs.js"}
