"""Every command of the container files, the unit files and the backup instructions, run natively."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from typer.testing import CliRunner

from service.cli import app as command_line
from tests.service.postgres_server import PostgresServer, find_binaries, free_port
from tests.service.test_durability import Processes, assert_undisturbed, post_study, wait_for_chunks
from tests.service.test_real_engine import study_document
from tests.service.waiting import wait_for

STUDY = {"trials": 80, "chunk_trials": 10, "chunk_s": 0.1}
ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def chipfit(*arguments: str) -> list[str]:
    """The command line as the containers call it."""
    return [sys.executable, "-m", "service.cli", *arguments]


def run(*arguments: str, **environment: str) -> str:
    """Output of a command, run in this process."""
    ended = CliRunner().invoke(command_line, list(arguments), env=environment)
    assert ended.exit_code == 0, ended.output
    return ended.stdout


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Any]:
    """Starts services of the compose file as processes of this machine, and ends them."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(service: str, **changes: str) -> subprocess.Popen[bytes]:
        environment = {name: str(value) for name, value in COMPOSE[service]["environment"].items()} | changes
        with (tmp_path / f"{service}-{len(processes)}.log").open("wb") as log:
            processes.append(
                subprocess.Popen(
                    chipfit(*COMPOSE[service]["command"]), cwd=ROOT, env=os.environ | environment, stderr=log
                )
            )
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()


def test_the_services_of_the_compose_file_run_a_study_together(started: Any, postgres_server: PostgresServer) -> None:
    settings = {"CHIPFIT_DATABASE_URL": postgres_server.create_database(), "CHIPFIT_PORT": str(free_port())}
    api = started("api", **settings)
    worker = started("worker", **settings)
    url = f"http://127.0.0.1:{settings['CHIPFIT_PORT']}"
    wait_for(lambda: subprocess.run(health_check(), env=os.environ | settings, cwd=ROOT).returncode == 0, 60.0)
    assert httpx.get(f"{url}/v1/studies").status_code == 401
    token = run(*first_key(), **settings).strip()
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60.0) as client:
        document = study_document(search__trials=3, search__sampler="random")
        path = client.post("/v1/studies", json=document).raise_for_status().headers["Location"]
        study = wait_for(lambda: (s := client.get(path).json()) and s["state"] == "succeeded" and s, 60.0)
    assert study["result"]["evaluated"] == 3
    for process in (api, worker):
        process.terminate()
        assert process.wait(timeout=30) == 0


def health_check() -> list[str]:
    found = re.search(r"^HEALTHCHECK .* CMD (.+)$", DOCKERFILE, re.MULTILINE)
    assert found is not None
    name, *arguments = shlex.split(found[1])
    assert name == "chipfit"
    return chipfit(*arguments)


def first_key() -> list[str]:
    """The command for the first key as the head of the compose file tells it."""
    text = (ROOT / "docker-compose.yml").read_text().replace("\n# ", " ")
    found = re.search(r"docker compose run --rm api (keys create [^`]+)`", text)
    assert found is not None
    return shlex.split(found[1])


@pytest.mark.skipif(
    shutil.which("docker-compose") is None,
    reason="docker-compose is not installed, a Debian package that nothing but this check needs",
)
def test_compose_accepts_its_file_with_a_password_and_asks_for_one_without() -> None:
    plain = {name: value for name, value in os.environ.items() if name != "POSTGRES_PASSWORD"}
    command = ["docker-compose", "--file", str(ROOT / "docker-compose.yml"), "config"]
    accepted = subprocess.run(command, env=plain | {"POSTGRES_PASSWORD": "x"}, capture_output=True, text=True)
    assert accepted.returncode == 0, accepted.stderr
    assert set(yaml.safe_load(accepted.stdout)["services"]) == set(COMPOSE)
    refused = subprocess.run(command, env=plain, capture_output=True, text=True)
    assert refused.returncode != 0
    assert "set a password for the database" in refused.stderr


def test_the_image_starts_what_the_compose_file_starts_and_not_as_root() -> None:
    assert json.loads(re.findall(r"^ENTRYPOINT (.+)$", DOCKERFILE, re.MULTILINE)[0]) == ["chipfit"]
    assert json.loads(re.findall(r"^CMD (.+)$", DOCKERFILE, re.MULTILINE)[0]) == COMPOSE["api"]["command"]
    assert re.findall(r"^USER (.+)$", DOCKERFILE, re.MULTILINE) == ["10001"]
    assert len(re.findall(r"^FROM ", DOCKERFILE, re.MULTILINE)) == 2
    copied = set(" ".join(re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)).split())
    assert all((ROOT / name).exists() for name in copied)
    kept = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] == "!"}
    assert kept == copied


@pytest.mark.parametrize("unit", sorted((ROOT / "deploy").glob("*.service")), ids=lambda path: path.name)
def test_unit_files_call_commands_that_exist(unit: Path) -> None:
    read = configparser.ConfigParser(strict=False, interpolation=None)
    read.optionxform = str  # type: ignore[assignment, method-assign]
    read.read_string(unit.read_text())
    program, command = read["Service"]["ExecStart"].split()
    assert program == "/opt/chipfit/bin/chipfit"
    assert "Usage" in run(command, "--help", COLUMNS="200")


def test_a_copy_of_the_embedded_database_taken_in_mid_study_goes_on_elsewhere(tmp_path: Path) -> None:
    live = Processes(f"sqlite:///{tmp_path / 'live.sqlite'}", tmp_path)
    try:
        server = live.serve()
        study_id = post_study(server, **STUDY)
        wait_for_chunks(server, study_id, 2)
        run("backup", str(tmp_path / "copy.sqlite"), CHIPFIT_DATABASE_URL=live.database_url)
    finally:
        live.end()
    restored = Processes(f"sqlite:///{tmp_path / 'copy.sqlite'}", tmp_path)
    try:
        assert_undisturbed(restored.serve(), restored.database_url, study_id, STUDY)
    finally:
        restored.end()


def test_a_dump_of_postgres_taken_in_mid_study_goes_on_elsewhere(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    live = Processes(postgres_server.create_database(), tmp_path)
    binaries = find_binaries()
    assert binaries is not None
    try:
        server = live.serve()
        study_id = post_study(server, **STUDY)
        wait_for_chunks(server, study_id, 2)
        dump = [binaries / "pg_dump", "--format=custom", f"--file={tmp_path / 'chipfit.dump'}", live.database_url]
        subprocess.run(dump, check=True)
    finally:
        live.end()
    restored = Processes(postgres_server.create_database(), tmp_path)
    try:
        restore = [
            binaries / "pg_restore",
            "--no-owner",
            f"--dbname={restored.database_url}",
            tmp_path / "chipfit.dump",
        ]
        subprocess.run(restore, check=True)
        assert_undisturbed(restored.serve(), restored.database_url, study_id, STUDY)
    finally:
        restored.end()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite:////no/such/folder/chipfit.sqlite", "is not there"),
        ("postgresql://chipfit@127.0.0.1/chipfit", "PostgreSQL is backed up by pg_dump"),
    ],
)
def test_a_backup_that_cannot_be_made_is_refused_in_one_line(tmp_path: Path, url: str, said: str) -> None:
    ended = CliRunner().invoke(command_line, ["backup", str(tmp_path / "copy"), "--database-url", url])
    assert ended.exit_code == 2
    assert said in ended.stderr and len(ended.stderr.splitlines()) == 1
    assert not (tmp_path / "copy").exists()
