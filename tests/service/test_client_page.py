"""The example of docs/client.md does what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from service.client import Client
from service.demo import running_server

PAGE = Path(__file__).parents[2] / "docs" / "client.md"


def test_the_example_runs_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [example] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    with running_server(tmp_path) as url:
        monkeypatch.chdir(tmp_path)
        exec(example.replace("http://127.0.0.1:8080", url), {})
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "4.54 G parameters, 64 KiB/token"
    assert printed[-2] == "succeeded 20"
    assert 0 < float(printed[-1]) <= 400
    assert pq.read_table(tmp_path / "designs.parquet").num_rows == 20


def test_every_call_of_the_page_is_one_of_the_client() -> None:
    calls = [*re.findall(r"`(\w+)\(", PAGE.read_text()), "cancel", "resume", "delete_study"]
    assert {name for name in calls if name != "Client"} <= set(dir(Client))
