"""Starts Debian's PostgreSQL for the tests: own data directory, loopback, as a plain user where the tests are root."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from pathlib import Path

import psycopg


def find_binaries() -> Path | None:
    """Folder of initdb and postgres, or None where PostgreSQL's server is not installed."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb")) or [shutil.which("initdb") or ""]
    return Path(os.path.realpath(found[-1])).parent if found[-1] else None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class PostgresServer:
    """One server with its own data directory; `kill` is a crash, `start` after it recovers."""

    def __init__(self, binaries: Path) -> None:
        self._binaries = binaries
        self._folder = Path(tempfile.mkdtemp(prefix="chipfit-postgres-"))
        self._user = self._plain_user()
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        self._run("initdb", "-D", self._folder / "data", "-U", "chipfit", "--auth=trust", "--encoding=UTF8", "-N")

    def start(self) -> None:
        options = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": self._folder,
            "max_connections": 200,
            "shared_buffers": "32MB",
            "fsync": "off",  # a killed process loses nothing without it, only a machine without power would
        }
        log = (self._folder / "log").open("ab")
        self._process = subprocess.Popen(
            [
                str(self._binaries / "postgres"),
                *("-D", str(self._folder / "data")),
                *(part for name, value in options.items() for part in ("-c", f"{name}={value}")),
            ],
            stdout=log,
            stderr=log,
            user=self._user,
            cwd=self._folder,
            start_new_session=True,
        )
        log.close()
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                psycopg.connect(self._dsn("postgres"), connect_timeout=2).close()
                return
            except psycopg.OperationalError:
                time.sleep(0.1)
        raise TimeoutError((self._folder / "log").read_text()[-2000:])

    def kill(self) -> None:
        """End the server with all its children at once, as a crash would."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(timeout=10)
        (self._folder / "data" / "postmaster.pid").unlink(missing_ok=True)

    def stop(self) -> None:
        """End the server without a checkpoint: its data are thrown away."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)
            try:
                self._process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def create_database(self) -> str:
        """Make an empty database and return its URL."""
        name = f"chipfit_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self._dsn("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return f"postgresql://chipfit@127.0.0.1:{self.port}/{name}"

    def _dsn(self, database: str) -> str:
        return f"host=127.0.0.1 port={self.port} user=chipfit dbname={database}"

    def _run(self, program: str, *arguments: object) -> None:
        command = [str(self._binaries / program), *map(str, arguments)]
        subprocess.run(command, check=True, capture_output=True, user=self._user, cwd=self._folder)

    @staticmethod
    def _plain_user() -> str | None:
        """PostgreSQL refuses to run as root; its own user, or nobody, does then."""
        if os.getuid() != 0:
            return None
        known = {entry.pw_name for entry in pwd.getpwall()}
        return "postgres" if "postgres" in known else "nobody"
