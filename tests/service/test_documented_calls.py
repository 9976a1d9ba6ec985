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
def client(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, timeout=120.0) as client:
        yield client


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


OUTSIDE_STUDY = json.loads(re.findall(r"```json\n(.*?)```", (DOCS / "service.md").read_text(), flags=re.DOTALL)[0])
"""The study of another evaluator as the page prints it."""


def test_examples_of_bodies_in_the_specification_are_accepted(client: httpx.Client) -> None:
    """Each is sent as printed, with ids of what the ones before it made in the path."""
    specification = client.get("/openapi.json").json()
    left = {operation_id: (path, kind, example) for operation_id, path, kind, example in bodies_of(specification)}
    assert {name for name, (*_, example) in left.items() if example is None} == set()

    def send(operation_id: str, **ids: str) -> Any:
        path, kind, example = left.pop(operation_id)
        content = example if isinstance(example, str) else json.dumps(example)
        answer = client.post(path.format(**ids), content=content, headers={"Content-Type": kind})
        assert answer.status_code < 300, f"{operation_id}: {answer.text}"
        return answer.json()

    study_id = send("create_study")["id"]
    finished(client, study_id)
    send("extend_study", study_id=study_id)
    send("clone_study", study_id=study_id)
    send("backfill_schedule", schedule_id=send("create_schedule")["id"])
    outside_id = client.post("/v1/studies", json=OUTSIDE_STUDY).json()["id"]
    client.post(f"/v1/studies/{outside_id}:suggest", params={"client": "rtl-1"})
    send("complete_trials", study_id=outside_id)
    for operation_id in list(left):
        send(operation_id)


def bodies_of(specification: dict[str, Any]) -> Iterator[tuple[str, str, str, Any]]:
    """Operation, path, content type and example of every body; of a file, the table of text."""
    for path, operations in specification["paths"].items():
        for operation in operations.values():
            content = operation.get("requestBody", {}).get("content", {})
            kind = "text/csv" if "text/csv" in content else "application/json"
            if content:
                yield operation["operationId"], path, kind, content[kind].get("example")


def finished(client: httpx.Client, study_id: str) -> None:
    """Follow a study to its end."""
    with client.stream("GET", f"/v1/studies/{study_id}/events") as events:
        events.read()
    assert client.get(f"/v1/studies/{study_id}").json()["state"] == "succeeded"


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
    assert asked >= 20


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
