"""Opens the database and runs transactions on it; the only place that commits."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite.base import SQLiteCompiler
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.orm import Session
from sqlalchemy.pool import ConnectionPoolEntry

_BUSY_TIMEOUT_MS = 30_000
_IDLE_TRANSACTION_MS = 10_000
"""A process that freezes inside a transaction must not hold its locks against the others for longer."""


_SQLITE_CACHE_KIB = 32 * 1024
_SQLITE_MAPPED_BYTES = 4 * 1024**3
_SQLITE_CHECKPOINT_PAGES = 4_000
"""Indexes of a large history are written all over: a small cache would write and read their pages again and again."""


_ONE_MOMENT: dict[str, Any] = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
"""On Postgres, else each query would see what others committed since the last; SQLite's reader has this anyway."""


class DatabaseUnreachableError(Exception):
    """The database does not answer, or its URL names none that chipfit can use."""


class _HintingCompiler(SQLiteCompiler):
    """Writes `INDEXED BY` and `NOT INDEXED` behind a table, which SQLAlchemy leaves out for SQLite."""

    def get_from_hint_text(self, table: sa.FromClause, text: str | None) -> str | None:
        return text


@dataclass(frozen=True)
class Database:
    """One open database: its address and a pool of connections."""

    url: sa.URL
    pool: sa.Engine

    @property
    def is_sqlite(self) -> bool:
        """Whether the database is an embedded file."""
        return self.url.get_backend_name() == "sqlite"

    @property
    def address(self) -> str:
        """The URL without its password."""
        return self.url.render_as_string(hide_password=True)

    def close(self) -> None:
        """Close all connections, those in use as soon as they are given back."""
        sa.event.listen(self.pool, "checkin", _close_connection)
        self.pool.dispose()


def _close_connection(_connection: Any, record: ConnectionPoolEntry) -> None:
    """Close a connection in place of keeping it in a pool that nobody asks any more."""
    record.invalidate()


def database_url(text: str) -> sa.URL:
    """
    Return the parsed URL with the driver chipfit uses.

    Raises
    ------
    DatabaseUnreachableError
        If the URL is malformed or names neither SQLite nor PostgreSQL.
    """
    try:
        url = sa.make_url(text)
    except ArgumentError as error:
        raise DatabaseUnreachableError(f"database URL {text!r} is malformed") from error
    backend = url.get_backend_name()
    if backend in ("postgresql", "postgres"):
        return url.set(drivername="postgresql+psycopg")
    if backend == "sqlite" and url.database and url.database != ":memory:":
        return url.set(drivername="sqlite")
    raise DatabaseUnreachableError(
        f"database URL {url.render_as_string(hide_password=True)!r} must begin with sqlite:/// and name a file, "
        "or with postgresql://"
    )


def open_database(text: str) -> Database:
    """Open the database at a URL; nothing is read from it yet."""
    url = database_url(text)
    if url.get_backend_name() == "sqlite":
        pool = sa.create_engine(url, json_serializer=to_json)
        pool.dialect.statement_compiler = _HintingCompiler
        sa.event.listen(pool, "connect", _configure_sqlite)
        sa.event.listen(pool, "begin", _begin_sqlite)
    else:
        pool = sa.create_engine(
            url, json_serializer=to_json, pool_pre_ping=True, pool_size=10, max_overflow=20,
            connect_args={
                "connect_timeout": 5, "application_name": "chipfit",
                "options": f"-c idle_in_transaction_session_timeout={_IDLE_TRANSACTION_MS}",
            },
        )  # fmt: skip
    return Database(url, pool)


def require_reachable(database: Database) -> None:
    """
    Return if the database answers.

    Raises
    ------
    DatabaseUnreachableError
        If it does not, with the address and the driver's reason in one line.
    """
    try:
        if database.is_sqlite:
            Path(str(database.url.database)).parent.mkdir(parents=True, exist_ok=True)
        with database.pool.connect() as connection:
            connection.execute(sa.text("SELECT 1"))
    except (DBAPIError, OSError) as error:
        reason = " ".join(str(getattr(error, "orig", error)).split())
        raise DatabaseUnreachableError(f"database {database.address} cannot be reached: {reason}") from error


@contextmanager
def reading(database: Database) -> Iterator[Session]:
    """Yield a session for queries, all of which see the database as it was at the first; it is rolled back."""
    pool = database.pool if database.is_sqlite else database.pool.execution_options(**_ONE_MOMENT)
    with Session(pool, expire_on_commit=False) as session:
        yield session


@contextmanager
def writing(database: Database) -> Iterator[Session]:
    """Yield a session whose changes are committed together, or not at all if the block raises."""
    pool = database.pool.execution_options(chipfit_writes=True)
    with Session(pool, expire_on_commit=False) as session, session.begin():
        yield session


def clock_s(session: Session) -> float:
    """Time of the database's clock since 1970 [s]."""
    if session.get_bind().dialect.name == "sqlite":
        return float(session.scalar(sa.text("SELECT (julianday('now') - 2440587.5) * 86400.0")) or 0.0)
    return float(session.scalar(sa.text("SELECT extract(epoch FROM clock_timestamp())")) or 0.0)


_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


def to_json(value: Any) -> str:
    """JSON without NaN, which no database and no client reads."""
    return _ENCODER.encode(value)


def _configure_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # transactions begin in _begin_sqlite, not behind our back
    connection.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")  # a killed process loses nothing under WAL
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute(f"PRAGMA cache_size = -{_SQLITE_CACHE_KIB}")
    connection.execute(f"PRAGMA mmap_size = {_SQLITE_MAPPED_BYTES}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_SQLITE_CHECKPOINT_PAGES}")


def _begin_sqlite(connection: sa.Connection) -> None:
    """Take the write lock at once where a transaction will write, since a later upgrade would fail as busy."""
    writes = connection.get_execution_options().get("chipfit_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
