"""Servers and workers with the fake engine as processes of their own, to be killed."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).parents[2]


class ServiceProcess:
    """One `serve` or `worker` process; its messages go to a file that a failed wait shows."""

    def __init__(self, role: str, database_url: str, log: Path, *options: str) -> None:
        self._log = log
        with log.open("ab") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.service.server_process", role, database_url, *options],
                cwd=ROOT,
                stderr=stderr,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
        self._began = len(log.read_text().splitlines()) if log.exists() else 0
        self.url = ""

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_serving(self, timeout_s: float = 90.0) -> None:
        """Wait until the process answers, and learn its address."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and self._process.poll() is None:
            for line in self._messages():
                if line.get("event") == "serving":
                    self.url = line["url"]
            if self.url and self._answers():
                return
            time.sleep(0.05)
        raise TimeoutError(self._log.read_text()[-4000:])

    def wait_until_working(self, timeout_s: float = 90.0) -> None:
        """Wait until a worker has begun."""
        deadline = time.monotonic() + timeout_s
        while not any(line.get("event") == "working" for line in self._messages()):
            if time.monotonic() > deadline:
                raise TimeoutError(self._log.read_text()[-4000:])
            time.sleep(0.05)

    def kill(self) -> None:
        """End the process as a crash would."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(timeout=10)

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def terminate(self) -> int:
        """Ask the process to stop and return its exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout=30)

    def wait(self, timeout_s: float = 30.0) -> int:
        return self._process.wait(timeout=timeout_s)

    def log_text(self) -> str:
        return self._log.read_text()

    def _messages(self) -> list[dict[str, Any]]:
        lines = self._log.read_text().splitlines()[self._began :] if self._log.exists() else []
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def _answers(self) -> bool:
        try:
            return httpx.get(httpx.URL(self.url, path="/livez"), timeout=2.0).status_code == 200
        except httpx.HTTPError:
            return False


def main() -> int:
    """Run one process: `serve URL` or `worker URL`, with settings as further options."""
    from service.server import run_worker, serve
    from service.settings import Settings
    from tests.service.fake_engine import fake_engine

    arguments = argparse.ArgumentParser()
    arguments.add_argument("role", choices=("serve", "worker"))
    arguments.add_argument("database_url")
    arguments.add_argument("--no-studies", action="store_true")
    arguments.add_argument("--no-migrate", action="store_true")
    arguments.add_argument("--require-keys", action="store_true")
    arguments.add_argument("--timeout-s", type=float, default=30.0)
    arguments.add_argument("--root-path", default="")
    arguments.add_argument("--host", default="127.0.0.1")
    arguments.add_argument("--port", type=int, default=0)
    options = arguments.parse_args()
    settings = Settings(
        database_url=options.database_url,
        body_timeout_s=options.timeout_s,
        header_timeout_s=options.timeout_s,
        root_path=options.root_path,
        require_keys=options.require_keys,
        host=options.host,
        port=options.port,
        run_studies=not options.no_studies,
        migrate=not options.no_migrate,
    )
    return {"serve": serve, "worker": run_worker}[options.role](settings, fake_engine())


if __name__ == "__main__":
    raise SystemExit(main())
