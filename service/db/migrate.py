"""Brings the schema of a database to the version of this package, and says where it stands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from service.db.session import Database

_ADVISORY_LOCK = 0x63686970  # "chip": two servers starting at once migrate one after the other


def upgrade(database: Database, revision: str = "head") -> None:
    """Apply the migrations up to `revision`, all or none."""
    with _locked(database) as connection:
        command.upgrade(_config(connection), revision)


def downgrade(database: Database, revision: str = "base") -> None:
    """Take the migrations back down to `revision`, all or none."""
    with _locked(database) as connection:
        command.downgrade(_config(connection), revision)


def current_revision(database: Database) -> str | None:
    """Version of the schema in the database, or None where there is none."""
    with database.pool.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def head_revision() -> str | None:
    """Version of the schema that this package needs."""
    return ScriptDirectory.from_config(_config(None)).get_current_head()


@contextmanager
def _locked(database: Database) -> Iterator[sa.Connection]:
    """Yield a transaction that no other migration enters at the same time."""
    with database.pool.execution_options(chipfit_writes=True).begin() as connection:
        if not database.is_sqlite:  # SQLite's write lock is taken when the transaction begins
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
        yield connection


def _config(connection: sa.Connection | None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config
