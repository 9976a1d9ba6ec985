"""`chipfit history`: the designs of all studies, from the database of a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from explorer.document import StudyError
from models.checks import UnknownNameError
from service.db import history, migrate
from service.db.fields import FieldError, field
from service.db.filters import Filter, FilterError, compile_filter
from service.db.history import HistoryRow, SelectionError
from service.db.session import Database, DatabaseUnreachableError, open_database, reading, require_reachable
from service.settings import Settings


def find_designs(
    database_url: str, filter_: str, order_by: str, pareto: str, near: tuple[str, ...], limit: int
) -> dict[str, Any]:
    """Return designs of the history as `GET /v1/designs` would, with their distance where `near` states a point."""
    with _opened(database_url) as database, _pointing_at("--filter"):
        chosen = compile_filter(filter_) if filter_ else None
        with reading(database) as session:
            if near:
                with _pointing_at("--near"):
                    found = history.nearest_designs(session, chosen, _point(near), limit)
                return _listed([{"distance": distance, **_document(row)} for distance, row in found])
            if pareto:
                with _pointing_at("--pareto"):
                    keys = history.front_keys(session, chosen, [name.strip() for name in pareto.split(",")])
                return _listed([_document(row) for row in history.rows_at(session, keys[:limit])])
            with _pointing_at("--order-by"):
                order = history.read_order(order_by)
            return _listed([_document(row) for row in history.list_designs(session, chosen, order, None, limit)])


def find_facets(database_url: str, filter_: str, names: str) -> dict[str, Any]:
    """Return how the selected designs spread over fields, as `GET /v1/designs:facets` would."""
    with _opened(database_url) as database, _pointing_at("--filter"):
        chosen: Filter | None = compile_filter(filter_) if filter_ else None
        with reading(database) as session, _pointing_at("--facets"):
            found = history.facets(session, chosen, [name.strip() for name in names.split(",")])
            return {"count": history.count_designs(session, chosen), "items": found}


@contextmanager
def _opened(database_url: str) -> Iterator[Database]:
    """The database of the settings or of the option, with the schema of this version."""
    database = None
    try:
        database = open_database(database_url or Settings().resolved_database_url)
        require_reachable(database)
        if migrate.current_revision(database) != migrate.head_revision():
            raise StudyError([{"pointer": "", "detail": f"{database.address} holds no history of this version"}])
        yield database
    except DatabaseUnreachableError as error:
        raise StudyError([{"pointer": "", "detail": str(error)}]) from error
    finally:
        if database is not None:
            database.close()


@contextmanager
def _pointing_at(option: str) -> Iterator[None]:
    try:
        yield
    except (FilterError, FieldError, SelectionError, UnknownNameError) as error:
        raise StudyError([{"pointer": option, "detail": str(error)}]) from error


def _point(near: tuple[str, ...]) -> dict[str, Any]:
    """Read `name=value` pairs: a plain number where the value is one, else a quantity with its unit or a text."""
    point: dict[str, Any] = {}
    for each in near:
        name, equals, text = each.partition("=")
        if not equals:
            raise FieldError(f"must be name=value, got {each!r}")
        try:
            point[name] = float(text)
        except ValueError:
            point[name] = text
        field(name).value(point[name])
    return point


def _document(row: HistoryRow) -> dict[str, Any]:
    return {"study_id": row.study_id, **row.record}


def _listed(items: list[dict[str, Any]]) -> dict[str, Any]:
    return {"items": items, "next_page_token": None}
