"""A copy of the embedded database, taken while the server writes to it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from service.db.session import DatabaseUnreachableError, database_url


def back_up(url: str, target: Path) -> None:
    """
    Copy a SQLite database as it is at one moment to a new file.

    Raises
    ------
    DatabaseUnreachableError
        If the database is none of SQLite, or is not there.
    FileExistsError
        If the target is there already.
    """
    parsed = database_url(url)
    if parsed.get_backend_name() != "sqlite":
        raise DatabaseUnreachableError("PostgreSQL is backed up by pg_dump, see docs/service.md")
    source = Path(str(parsed.database))
    if not source.is_file():
        raise DatabaseUnreachableError(f"database {source} is not there")
    if target.exists():
        raise FileExistsError(f"{target} is there already")
    with closing(sqlite3.connect(source)) as live, closing(sqlite3.connect(target)) as copy:
        live.backup(copy)
