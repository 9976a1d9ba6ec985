"""What every table with an id and a time of creation shares: look one up, lock one as the caller saw it, list pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db.tables import Table

Row = TypeVar("Row", bound=Table)

VersionCheck = Callable[[int], bool]
"""Whether a row of this version is the one the caller means."""

Cursor = tuple[float, str]
"""Time of creation and id of the last row of a page."""


def any_version(_version: int) -> bool:
    """The check of a caller who does not say which version is meant."""
    return True


class NotFoundError(LookupError):
    """No row with this id."""


class ConflictError(Exception):
    """The row is in a state that does not allow what was asked."""


class StaleError(Exception):
    """The row has changed since the caller looked at it."""


def get_row(session: Session, table: type[Row], kind: str, row_id: str) -> Row:
    """Return the row of an id, or raise NotFoundError with what it is called."""
    row = session.get(table, row_id)
    if row is None:
        raise NotFoundError(f"unknown {kind} '{row_id}'")
    return row


def locked_row(session: Session, table: Any, kind: str, row_id: str, is_wanted: VersionCheck = any_version) -> Any:
    """Return the row with its lock, or raise NotFoundError, or StaleError where it is another version than meant."""
    row = session.scalar(sa.select(table).where(table.id == row_id).with_for_update())
    if row is None:
        raise NotFoundError(f"unknown {kind} '{row_id}'")
    if not is_wanted(row.version):
        raise StaleError(f"{kind} '{row_id}' has changed since it was read; it is at version {row.version} now")
    return row


def newest_first(session: Session, table: Any, query: sa.Select[Row], before: Cursor | None, limit: int) -> list[Row]:
    """Return rows of a query on one table, newest first, that come after a cursor."""
    query = query.order_by(table.created_at_s.desc(), table.id.desc()).limit(limit)
    if before is not None:
        query = query.where(sa.tuple_(table.created_at_s, table.id) < sa.tuple_(*before))
    return list(session.scalars(query))
