"""What the documentation and the specification print works when it is sent as printed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from models.tables import DATA
from service.demo import running_server

DOCS = Path(__file__).parents[2] / "docs"
PRINTED_URL = "http://127.0.0.1:8080"
PAGES = [page for page in sorted(DOCS.glob("*.md")) if "curl " in page.read_text() and PRINTED_URL in page.read_text()]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_server(tmp_path_factory.mktemp("documented")) as url:
        yield url


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a reader stands: with a trace and a network's configuration, and a curl that fails where HTTP does."""
    (tmp_path / "trace.csv").write_text("input_tokens,output_tokens\n550,150\n300,80\n")
    shutil.copy(DATA / "networks" / "llama-3.1-8b.json", tmp_path / "config.json")
    (tmp_path / ".curlrc").write_text("fail\nsilent\nshow-error\nmax-time = 120\n")
    return tmp_path


def shell_blocks(page: Path) -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", page.read_text(), flags=re.DOTALL)
    return [block for block in blocks if "curl " in block and PRINTED_URL in block]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_calls_of_the_pages_work_as_printed(page: Path, url: str, folder: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    for block in shell_blocks(page):
        ran = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", block.replace(PRINTED_URL, url)],
            cwd=folder, env={**os.environ, "HOME": str(folder), "CURL_HOME": str(folder)},
            capture_output=True, text=True, timeout=180,
        )  # fmt: skip
        assert ran.returncode == 0, f"{block}\n{ran.stderr}\n{ran.stdout[-500:]}"
        assert "problem+json" not in ran.stdout


def test_examples_of_bodies_in_the_specification_are_accepted(url: str) -> None:
    specification = httpx.get(f"{url}/openapi.json").json()
    sent = {}
    for path, operations in specification["paths"].items():
        for method, operation in operations.items():
            for kind, body in operation.get("requestBody", {}).get("content", {}).items():
                if "example" in body and kind == "application/json":
                    answer = httpx.request(method, url + path, json=body["example"], timeout=120.0)
                    sent[path] = answer.status_code
    assert sent == {"/v1/studies": 202, "/v1/evaluations": 200}


def test_examples_of_parameters_in_the_specification_are_accepted(url: str) -> None:
    specification = httpx.get(f"{url}/openapi.json").json()
    asked = 0
    for path, operations in specification["paths"].items():
        operation = operations.get("get")
        if operation is None or "{" in path:
            continue
        for parameter in operation.get("parameters", []):
            for example in examples_of(parameter):
                required = {"fields": "area_mm2"} if path == "/v1/designs:facets" else {}
                answer = httpx.get(url + path, params=required | {parameter["name"]: example}, timeout=60.0)
                assert answer.status_code == 200, f"{path} {parameter['name']}={example}: {answer.text}"
                asked += 1
    assert asked >= 8


def examples_of(parameter: dict[str, Any]) -> list[Any]:
    found = parameter.get("examples", parameter.get("schema", {}).get("examples", []))
    return [each for each in (found.values() if isinstance(found, dict) else found) if parameter["in"] == "query"]


def test_the_study_of_the_page_is_the_example_of_the_specification(url: str) -> None:
    block = shell_blocks(DOCS / "service.md")[0]
    printed = json.loads(block.split("<<'END'\n")[1].split("\nEND")[0])
    specification = httpx.get(f"{url}/openapi.json").json()
    assert (
        printed
        == specification["paths"]["/v1/studies"]["post"]["requestBody"]["content"]["application/json"]["example"]
    )
