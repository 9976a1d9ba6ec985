"""Queries on the designs of all studies together: pages, fronts, neighbours, facets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.orm import Session

from explorer.pareto import non_dominated
from models.checks import FloatArray
from service.db.design_rows import RECORD_COLUMNS, WITH_RECORDS, records_of
from service.db.fields import Field, FieldError, field, metric_field, number_field
from service.db.filters import Filter
from service.db.tables import COVERED_COLUMNS, INDEXED_COLUMNS, designs
from service.db.walk import Search, hinted

MOST_SELECTED = 500_000
"""Designs of a selection from which the front is computed here, those left out that some of the first ones beat."""

FIRST_SELECTED, MOST_STRONG = 2_000, 12
"""Designs that are looked at first, and how many of their front then sort out others."""

MOST_DISTINCT = 50
"""Values of a text or whole-number field that a facet lists; numbers with more become a histogram."""

HISTOGRAM_BINS = 20


@dataclass(frozen=True)
class Order:
    """Order of a list: by a field, or by study and trial where it is None."""

    field: Field | None
    descending: bool

    @property
    def text(self) -> str:
        """The order as `read_order` reads it."""
        return "" if self.field is None else f"{self.field.name} {'desc' if self.descending else 'asc'}"


@dataclass(frozen=True)
class HistoryRow:
    """One design with the sort key behind which the next page begins."""

    study_id: str
    record: dict[str, Any]
    key: tuple[Any, ...]


class SelectionError(ValueError):
    """More designs are selected than a query can take."""


def read_order(text: str | None) -> Order:
    """Return the order that `area_mm2` or `area_mm2 desc` names."""
    words = (text or "").split()
    if not words:
        return Order(None, False)
    name, *direction = words
    if [word.lower() for word in direction] not in ([], ["asc"], ["desc"]):
        raise FieldError(f"order_by must be a field with asc or desc behind it, got {text!r}")
    return Order(number_field(name), [word.lower() for word in direction] == ["desc"])


def list_designs(
    session: Session, chosen: Filter | None, order: Order, behind: Sequence[Any] | None, limit: int
) -> list[HistoryRow]:
    """Return designs that meet the filter, from behind a sort key; without a value of the order, none."""
    return rows_at(session, design_keys(session, chosen, order, behind, limit))


def design_keys(
    session: Session, chosen: Filter | None, order: Order, behind: Sequence[Any] | None, limit: int
) -> list[tuple[Any, ...]]:
    """Return the sort keys of designs that meet the filter, from behind one of them."""
    keys = _sort_keys(order, session.get_bind().dialect.name == "sqlite" or _walks_index(chosen, order))
    by = tuple(key.desc() if order.descending else key for key in keys)
    after = None if behind is None else _behind(keys, behind, order.descending)
    page = sa.select(*(key.label(f"key_{i}") for i, key in enumerate(keys))).order_by(*by).limit(limit)
    if order.field is not None:
        page = page.where(keys[0].is_not(None))
    if after is not None:
        page = page.where(after)
    name = None if order.field is None else order.field.name
    search = Search(chosen, _names(chosen) | ({name} if name else set()), name, by, after, limit)
    return [tuple(row) for row in _driver_rows(session, hinted(session, _where(page, chosen), search))]


def front_keys(session: Session, chosen: Filter | None, metrics: Sequence[str]) -> list[tuple[Any, ...]]:
    """
    Return the designs of a selection that no other one beats, best in the first metric first.

    Infeasible designs, and those without a value of some metric, are left out.

    Returns
    -------
    list
        (value of the first metric, study id, number) for each.

    Raises
    ------
    SelectionError
        If more than `MOST_SELECTED` designs are left to compare.
    """
    fields = [metric_field(name) for name in metrics]
    costs = [each.column * (-1.0 if each.direction == "maximize" else 1.0) for each in fields]
    query: sa.Select[Any] = sa.select(*(each.column for each in fields), designs.c.study_id, designs.c.number)
    query = query.where(designs.c.feasible.is_(True))
    query = _where(query, chosen).where(*(each.column.is_not(None) for each in fields))
    query = hinted(session, query, Search(chosen, _names(chosen) | {*metrics, "feasible"}))
    rows = _driver_rows(session, query.limit(FIRST_SELECTED))
    if len(rows) == FIRST_SELECTED:
        beaten = [_beaten(costs, each) for each in _strong(_costs(fields, rows))]
        rows = _driver_rows(session, query.where(sa.not_(sa.or_(*beaten))).limit(MOST_SELECTED + 1))
    if len(rows) > MOST_SELECTED:
        raise SelectionError(f"a front is made of at most {MOST_SELECTED} designs: the filter leaves more")
    if not rows:
        return []
    found = _costs(fields, rows)
    front = np.flatnonzero(non_dominated(found))
    ordered = front[np.lexsort(found[front].T[::-1])]
    return [(rows[i][0], *rows[i][-2:]) for i in ordered.tolist()]


def _costs(fields: Sequence[Field], rows: Sequence[tuple[Any, ...]]) -> FloatArray:
    """Values of the fields, the smaller the better, of shape (n_rows, n_fields)."""
    signs = [-1.0 if each.direction == "maximize" else 1.0 for each in fields]
    values = list(zip(*rows, strict=True))[: len(fields)]
    costs: FloatArray = np.stack([sign * np.array(each, float) for sign, each in zip(signs, values, strict=True)], 1)
    return costs


def _strong(costs: FloatArray) -> FloatArray:
    """Some points of the front of the first designs, spread over it: they beat most others inside the database."""
    front = costs[np.flatnonzero(non_dominated(costs))]
    front = front[np.argsort(front[:, 0])]
    spread: FloatArray = front[np.unique(np.linspace(0, len(front) - 1, MOST_STRONG).astype(int))]
    return spread


def _beaten(costs: Sequence[sa.ColumnElement[Any]], point: FloatArray) -> sa.ColumnElement[bool]:
    """Whether a design is nowhere better than a point and somewhere worse."""
    pairs = list(zip(costs, point.tolist(), strict=True))
    return sa.and_(*(cost >= value for cost, value in pairs), sa.or_(*(cost > value for cost, value in pairs)))


def _driver_rows(session: Session, query: sa.Select[Any]) -> Sequence[tuple[Any, ...]]:
    """Numbers and texts as the driver gives them: SQLAlchemy's rows of a large selection would double the time."""
    cursor = session.connection().execute(query).cursor
    assert cursor is not None  # a SELECT has one
    return cursor.fetchall()


def rows_at(session: Session, keys: Sequence[tuple[Any, ...]]) -> list[HistoryRow]:
    """Return the designs of sort keys, which end in study id and number."""
    if not keys:
        return []
    wanted = _pairs(len(keys))
    here = sa.and_(designs.c.study_id == wanted.c.study_id, designs.c.number == wanted.c.number)
    query = sa.select(designs.c.study_id, *RECORD_COLUMNS).select_from(WITH_RECORDS.join(wanted, here))
    pairs = {f"{part}_{i}": key[at] for i, key in enumerate(keys) for part, at in (("study", -2), ("number", -1))}
    rows = session.execute(query, pairs).all()
    found = {(row.study_id, record["number"]): record for row, record in zip(rows, records_of(rows, 1), strict=True)}
    return [HistoryRow(key[-2], found[key[-2:]], tuple(key)) for key in keys if key[-2:] in found]


def _pairs(count: int) -> sa.CTE:
    """
    Bound pairs of study id and number as rows to join with.

    SQLite searches no index for a list of pairs, and SQLAlchemy builds a condition for each more slowly than any
    database looks them up.
    """
    values = ", ".join(f"(:study_{i}, :number_{i})" for i in range(count))
    rows = sa.text(f"SELECT column1 AS study_id, column2 AS number FROM (VALUES {values}) AS pairs")
    return rows.columns(sa.column("study_id", sa.String), sa.column("number", sa.Integer)).cte("wanted")


def nearest_designs(
    session: Session, chosen: Filter | None, point: Mapping[str, Any], limit: int
) -> list[tuple[float, HistoryRow]]:
    """
    Return the designs nearest to a point of some fields, with their distances.

    The distance is the mean over the fields of |x - p| / (|x| + |p|), and of 0 or 1 where a field is no number: it
    depends on no unit, and half or double are 1/3 away. Designs without a value of some field are left out.
    """
    parts = []
    fields = {name: field(name) for name in point}
    for name, named in fields.items():
        parts.append(_distance(named.column, named.value(point[name])))
    distance = sum(parts[1:], parts[0]) / float(len(parts))
    query = sa.select(distance, designs.c.study_id, designs.c.number)
    query = query.where(*(named.column.is_not(None) for named in fields.values()))
    query = _where(query, chosen).order_by(distance, designs.c.study_id, designs.c.number).limit(limit)
    found = [tuple(row) for row in session.execute(query)]
    rows = rows_at(session, found)
    return [(float(key[0]), row) for key, row in zip(found, rows, strict=True)]


def facets(session: Session, chosen: Filter | None, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return, for each field, how the selected designs spread over its values."""
    return [_facet(session, chosen, field(name)) for name in names]


def count_designs(session: Session, chosen: Filter | None) -> int:
    """Return how many designs a filter selects."""
    query = _where(sa.select(sa.func.count()).select_from(designs), chosen)
    return int(session.scalar(hinted(session, query, Search(chosen, _names(chosen)))) or 0)


def _facet(session: Session, chosen: Filter | None, named: Field) -> dict[str, Any]:
    column = named.column
    counted = sa.func.count()
    present: Any = sa.select(column).select_from(designs).where(column.is_not(None))
    facet: dict[str, Any] = {"field": named.name, "unit": named.unit, "values": None, "histogram": None}
    if named.kind != "number" or _are_few(session, _where(present, chosen)):
        groups = _where(present.add_columns(counted), chosen).group_by(column)
        rows = session.execute(groups.order_by(counted.desc(), column).limit(MOST_DISTINCT))
        return facet | {"values": [{"value": row[0], "count": row[1]} for row in rows]}
    edges: Any = sa.select(sa.func.min(column), sa.func.max(column))
    lowest, highest = session.execute(_where(edges, chosen)).one()
    width = (highest - lowest) / HISTOGRAM_BINS
    place = sa.cast((column - lowest) / width, sa.Integer)
    if session.get_bind().dialect.name == "postgresql":
        place = sa.cast(sa.func.floor((column - lowest) / width), sa.Integer)
    binned: Any = sa.select(place.label("place"), counted).select_from(designs).where(column.is_not(None))
    counts = [0] * HISTOGRAM_BINS
    for place_of, count in session.execute(_where(binned, chosen).group_by(sa.text("place"))):
        counts[min(int(place_of), HISTOGRAM_BINS - 1)] += count
    return facet | {"histogram": {"lowest": lowest, "highest": highest, "counts": counts}}


def _are_few(session: Session, present: sa.Select[Any]) -> bool:
    """Whether a list has room for the values; it is known long before all of them are counted that it has not."""
    return len(session.execute(present.distinct().limit(MOST_DISTINCT + 1)).all()) <= MOST_DISTINCT


def _distance(column: Any, target: Any) -> Any:
    if not isinstance(target, float):
        return sa.case((column == target, 0.0), else_=1.0)
    scale = sa.func.abs(column) + abs(target)
    return sa.case((scale == 0.0, 0.0), else_=sa.func.abs(column - target) / sa.func.nullif(scale, 0.0))


def _sort_keys(order: Order, walks_index: bool) -> list[sa.ColumnElement[Any]]:
    """
    Columns of the order; a sum with nothing keeps Postgres, too, from walking an index that the filter looks behind.

    It takes comparisons for independent and expects matches soon; where there are none, it reads the whole table one
    row at a time.
    """
    keys: list[sa.ColumnElement[Any]] = [designs.c.study_id, designs.c.number]
    if order.field is None:
        return keys
    return [order.field.column if walks_index else order.field.column + 0.0, *keys]


def _walks_index(chosen: Filter | None, order: Order) -> bool:
    """Whether the index of the order answers the filter without a look at the rows, or has no filter to answer."""
    if chosen is None or order.field is None:
        return True
    return order.field.name in INDEXED_COLUMNS and chosen.names <= set(COVERED_COLUMNS)


def _behind(keys: Sequence[sa.ColumnElement[Any]], behind: Sequence[Any], descending: bool) -> sa.ColumnElement[bool]:
    here, there = sa.tuple_(*keys), sa.tuple_(*behind)
    return here < there if descending else here > there


def _where(query: sa.Select[Any], chosen: Filter | None) -> sa.Select[Any]:
    return query if chosen is None else query.where(chosen.condition)


def _names(chosen: Filter | None) -> frozenset[str]:
    return frozenset() if chosen is None else chosen.names
