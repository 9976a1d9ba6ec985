"""Queries on the designs of all studies together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db.tables import NUMBER_COLUMNS, designs


class OrderError(ValueError):
    """The order names no numeric field."""


@dataclass(frozen=True)
class Order:
    """Order of a list: by a column, or by study and trial where it is None."""

    column: str | None
    descending: bool


@dataclass(frozen=True)
class HistoryRow:
    """One design with the sort key behind which the next page begins."""

    study_id: str
    record: dict[str, Any]
    key: tuple[Any, ...]


def read_order(text: str | None) -> Order:
    """Return the order that `area_mm2` or `area_mm2 desc` names."""
    if not text:
        return Order(None, False)
    name, *direction = text.split()
    if name not in NUMBER_COLUMNS or direction not in ([], ["asc"], ["desc"]):
        raise OrderError(f"order_by must be a numeric field, with asc or desc behind it, got {text!r}")
    return Order(name, direction == ["desc"])


def list_designs(
    session: Session, condition: sa.ColumnElement[bool] | None, order: Order, behind: list[Any] | None, limit: int
) -> list[HistoryRow]:
    """Return designs that meet the condition, from behind a sort key; without a value of the order, none."""
    keys: list[sa.ColumnElement[Any]] = [designs.c.study_id, designs.c.number]
    if order.column is not None:
        keys.insert(0, designs.c[order.column])
    query = sa.select(designs.c.study_id, designs.c.record, *(key.label(f"key_{i}") for i, key in enumerate(keys)))
    query = query.order_by(*(key.desc() if order.descending else key for key in keys)).limit(limit)
    if order.column is not None:
        query = query.where(designs.c[order.column].is_not(None))
    if condition is not None:
        query = query.where(condition)
    if behind is not None:
        here, there = sa.tuple_(*keys), sa.tuple_(*behind)
        query = query.where(here < there if order.descending else here > there)
    return [HistoryRow(row.study_id, row.record, tuple(row)[2:]) for row in session.execute(query)]
