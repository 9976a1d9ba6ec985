"""Shows the service at work: starts it on SQLite, posts a study over HTTP, streams its progress, prints the answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console

from explorer.files import read_yaml
from service.client import ApiError, Client, StudyFailedError
from service.tables import print_result

_START_TIMEOUT_S = 60.0

SEARCH_TIME = "45 s"
"""Search time of the demonstration, in place of the study's own: the proof goes as far as it gets."""


def main(study: Path) -> int:
    """Run one study on a server of its own; the exit code says whether it gave an answer."""
    console = Console(width=None if sys.stdout.isatty() else 200)
    with tempfile.TemporaryDirectory(prefix="chipfit-demo-") as folder, running_server(Path(folder)) as url:
        console.print(f"server on {url}, database {folder}/chipfit.sqlite")
        with Client(url) as client:
            document = read_yaml(study)
            document["search"] = document.get("search", {}) | {"timeout": SEARCH_TIME}
            try:
                posted = client.submit(document)
                console.print(f"POST /v1/studies -> study {posted['id']}")
                result = client.wait(posted["id"], lambda progress: console.print(progress_line(progress)))
            except (ApiError, StudyFailedError) as error:
                console.print(str(error))
                return 1
    print_result(result, console)
    return 0


@contextmanager
def running_server(folder: Path) -> Iterator[str]:
    """Yield the URL of a server on a free port whose database lies in a folder; it is stopped in order."""
    log = folder / "server.log"
    command = [sys.executable, "-m", "service.cli", "serve", "--port", "0"]
    command += ["--database-url", f"sqlite:///{folder / 'chipfit.sqlite'}"]
    with log.open("wb") as stderr:
        server = subprocess.Popen(command, stderr=stderr, stdout=subprocess.DEVNULL, env=dict(os.environ))
    try:
        yield _wait_for_url(server, log)
    finally:
        server.terminate()
        server.wait(timeout=30)


def progress_line(progress: dict[str, Any]) -> str:
    """One line on how far the study is, times in seconds."""
    eta = "" if progress["eta_s"] is None else f", {progress['eta_s']:.0f} s to go"
    return (
        f"{progress['state']:>9}: {progress['trials_done']} designs judged, {progress['feasible_done']} feasible"
        f", {progress['busy_s']:.1f} s of search{eta}"
    )


def _wait_for_url(server: subprocess.Popen[bytes], log: Path) -> str:
    """Return the server's address once it answers; its log goes to stderr if it does not."""
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline_s and server.poll() is None:
        for line in log.read_text().splitlines():
            if '"event": "serving"' in line and line.endswith("}"):
                url = str(json.loads(line)["url"])
                if _is_ready(url):
                    return url
        time.sleep(0.1)
    sys.stderr.write(log.read_text())
    raise TimeoutError(f"the server did not start within {_START_TIMEOUT_S:.0f} s")


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", timeout=5.0).status_code == 200
    except httpx.HTTPError:
        return False


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
