"""A real database of each kind, empty for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from service.app import create_app
from service.db import migrate
from service.db.session import Database, open_database, require_reachable
from service.settings import Settings
from tests.service.fake_engine import fake_engine
from tests.service.postgres_server import PostgresServer, find_binaries

KINDS = ("sqlite", "postgres")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("PostgreSQL's server is not installed")
    server = PostgresServer(binaries)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(params=KINDS)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of an empty database, once for each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'chipfit.sqlite'}"
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.create_database()


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'chipfit.sqlite'}"


@pytest.fixture
def empty_database(database_url: str) -> Iterator[Database]:
    """An open database without any table."""
    database = open_database(database_url)
    require_reachable(database)
    yield database
    database.close()


@pytest.fixture
def database(empty_database: Database) -> Database:
    """An open database with the current schema."""
    migrate.upgrade(empty_database)
    return empty_database


def quick_settings(database_url: str) -> Settings:
    """Settings of a server that looks and beats more often than usual."""
    return Settings(
        database_url=database_url,
        beat_interval_s=0.5,
        stale_after_s=3.0,
        queue_interval_s=0.1,
        supervise_interval_s=0.1,
        schedule_interval_s=0.1,
        event_poll_interval_s=0.05,
        stop_timeout_s=5.0,
    )


@pytest.fixture(scope="module", params=KINDS)
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A client of a running application, its jobs included; one for all tests of a file and kind of database."""
    url = new_database_url(request, tmp_path_factory)
    with TestClient(create_app(quick_settings(url), fake_engine()), raise_server_exceptions=False) as client:
        yield client


def new_database_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """URL of an empty database of the kind that a fixture of a whole file is parametrised with."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path_factory.mktemp('database') / 'chipfit.sqlite'}"
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.create_database()
