"""What a server does when its database is away, empty, full or locked."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from service.db import migrate
from service.db.session import DatabaseUnreachableError, database_url, open_database
from tests.service.postgres_server import free_port
from tests.service.server_process import ServiceProcess
from tests.service.test_durability import LONG_STUDY, Processes, assert_undisturbed, post_study, wait_for_chunks
from tests.service.waiting import wait_for


@pytest.mark.parametrize("role", ["serve", "worker"])
def test_an_unreachable_database_ends_the_start_in_one_line(role: str, tmp_path: Path) -> None:
    port = free_port()
    process = ServiceProcess(role, f"postgresql://chipfit:secret@127.0.0.1:{port}/none", tmp_path / "log")
    assert process.wait() == 2
    assert process.log_text().startswith(f"chipfit: database postgresql+psycopg://chipfit:***@127.0.0.1:{port}/none")
    assert "cannot be reached" in process.log_text()
    assert len(process.log_text().splitlines()) == 1


def test_a_folder_that_cannot_be_made_ends_the_start_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    process = ServiceProcess("serve", f"sqlite:///{tmp_path / 'file' / 'chipfit.sqlite'}", tmp_path / "log")
    assert process.wait() == 2
    assert "cannot be reached" in process.log_text()


def test_a_port_in_use_ends_the_start_in_one_line(tmp_path: Path, sqlite_url: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = ServiceProcess("serve", sqlite_url, tmp_path / "log", "--port", str(port))
        assert process.wait() == 2
    assert process.log_text() == f"chipfit: 127.0.0.1:{port} cannot be listened on: Address already in use\n"


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
def test_an_address_that_is_not_of_this_machine_is_refused(tmp_path: Path, sqlite_url: str, host: str) -> None:
    process = ServiceProcess("serve", sqlite_url, tmp_path / "log", "--host", host)
    assert process.wait() == 2
    assert process.log_text().startswith(f"chipfit: {host}:0 cannot be listened on")


@pytest.mark.parametrize("url", ["mysql://host/name", "sqlite://", "sqlite:///:memory:", "nonsense", "sqlite:///"])
def test_a_url_of_no_usable_database_is_refused(url: str) -> None:
    with pytest.raises(DatabaseUnreachableError, match=r"must begin with sqlite:/// and name a file|is malformed"):
        database_url(url)


def test_missing_migrations_are_said_by_readyz_until_they_are_there(tmp_path: Path, database_url: str) -> None:
    processes = Processes(database_url, tmp_path)
    try:
        server = processes.serve("--no-migrate")
        answer = httpx.get(f"{server.url}/readyz")
        assert answer.status_code == 503
        assert answer.json()["errors"][0]["pointer"] == "migrations"
        assert httpx.post(f"{server.url}/v1/studies", json={"name": "s"}).status_code == 503
        database = open_database(database_url)
        migrate.upgrade(database)
        database.close()
        wait_for(lambda: httpx.get(f"{server.url}/readyz").status_code == 200)
    finally:
        processes.end()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of 8 MiB."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(tmp_path)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("no right to mount a small disk")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_a_study_outlives_a_full_disk(small_disk: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    processes = Processes(f"sqlite:///{small_disk / 'chipfit.sqlite'}", tmp_path_factory.mktemp("logs"))
    try:
        server = processes.serve()
        study_id = post_study(server, **LONG_STUDY)
        wait_for_chunks(server, study_id, 2)
        fill(small_disk / "ballast")
        wait_for(lambda: httpx.get(f"{server.url}/livez").status_code == 200)
        time.sleep(2.0)
        assert httpx.post(f"{server.url}/v1/studies", json={"name": "s"}, timeout=60.0).status_code == 503
        (small_disk / "ballast").unlink()
        assert_undisturbed(server, processes.database_url, study_id, LONG_STUDY)
    finally:
        processes.end()


def fill(path: Path) -> None:
    """Write until the disk is full."""
    with path.open("wb", buffering=0) as ballast:
        try:
            while True:
                ballast.write(b"\0" * 4096)
        except OSError:
            return


def test_the_command_line_passes_a_refusal_on(tmp_path: Path) -> None:
    url = f"postgresql://chipfit@127.0.0.1:{free_port()}/none"
    command = [sys.executable, "-m", "service.cli", "worker", "--database-url", url]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert len(ended.stderr.splitlines()) == 1
