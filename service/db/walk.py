"""
Which way SQLite goes through the designs: by an index, or over the narrow rows from end to end.

SQLite knows no distribution of values and would walk the index of the order through the whole history to find a page
of rare designs. A sample of rows tells how rare they are and where in the order the first ones come. PostgreSQL keeps
such statistics itself.
"""

from __future__ import annotations

import random
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.orm import Session

from models.checks import BoolArray
from service.db.filters import Filter
from service.db.tables import COVERED_COLUMNS, INDEXED_COLUMNS, designs

_SAMPLED_ROWS = 1_000
_ROW_COST, _LOOK_UP_COST, _SORT_COST = 2.7, 20.0, 7.0
"""Reading the next narrow row, reading the row of an index entry, and keeping a match among the first ones of the order
so far, as multiples of reading the next index entry (0.13 us)."""

_PRIMARY_KEY = "sqlite_autoindex_designs_1"

Condition = sa.ColumnElement[bool]


@dataclass(frozen=True)
class Search:
    """
    What a query looks for: its filter, the fields it reads, its order, behind what it begins, and how many it wants.

    `order` is the field it is sorted by, None for study and trial; without a `limit` every match is read in any order.
    """

    chosen: Filter | None
    reads: AbstractSet[str]
    order: str | None = None
    order_by: tuple[sa.ColumnElement[Any], ...] = ()
    behind: Condition | None = None
    limit: int | None = None

    @property
    def is_covered(self) -> bool:
        """Whether any index of an indexed column answers it without a look at the rows."""
        return self.reads <= set(COVERED_COLUMNS)

    @property
    def required(self) -> dict[str, Condition]:
        """Indexed column -> condition that every match meets."""
        conditions = {} if self.chosen is None else self.chosen.required
        return {name: condition for name, condition in conditions.items() if name in INDEXED_COLUMNS}


def hinted(session: Session, query: sa.Select[Any], search: Search) -> sa.Select[Any]:
    """Return the query with the way of least expected cost as a hint where SQLite answers it."""
    if session.get_bind().dialect.name != "sqlite" or "study_id" in search.reads:
        return query
    if search.chosen is None and search.limit is not None:
        return query  # the first entries in its order
    costs = _costs(search, *_sample(session, search))
    return query.with_hint(designs, min(costs, key=lambda way: costs[way]), "sqlite")


def _costs(search: Search, n_rows: float, is_behind: BoolArray, meets: dict[str, BoolArray]) -> dict[str, float]:
    """
    Return hint -> expected cost.

    Parameters
    ----------
    n_rows : float
        Designs of the history.
    is_behind : array of shape (n_sampled,)
        Which rows of the sample, in the order of the search, come behind the page before.
    meets : dict of arrays of shape (n_sampled,)
        Which meet each required condition; under the empty name, the whole filter.
    """
    entry_cost = 1.0 if search.is_covered else _LOOK_UP_COST
    sorting = 0.0 if search.limit is None else n_rows * _share(meets[""] & is_behind) * _SORT_COST
    costs = {"NOT INDEXED": n_rows * _ROW_COST + sorting}
    for name in INDEXED_COLUMNS:
        if name in meets or search.is_covered:
            entries = n_rows * _share(meets.get(name, np.array([True])))
            costs[f"INDEXED BY ix_designs_{name}"] = entries * entry_cost + sorting
    if search.limit is not None and (search.order is None or search.order in INDEXED_COLUMNS):
        index = _PRIMARY_KEY if search.order is None else f"ix_designs_{search.order}"
        within = is_behind & meets.get(search.order or "", np.array([True])) if search.order else is_behind
        matching = meets[""][within]
        before_first = int(np.argmax(matching)) if matching.any() else len(matching)
        entries = n_rows * before_first / max(len(is_behind), 1) + search.limit / _share(matching)
        costs[f"INDEXED BY {index}"] = min(entries, n_rows) * (entry_cost if search.order else _LOOK_UP_COST)
    return costs


def _share(meets: BoolArray) -> float:
    """Share of rows that meet a condition; of a sample without any, half of the least it could show."""
    return max(float(np.count_nonzero(meets)), 0.5) / max(len(meets), 1)


def _sample(session: Session, search: Search) -> tuple[float, BoolArray, dict[str, BoolArray]]:
    """Return rows of the history, and of some of them which come behind the page before and which meet what."""
    last = session.scalar(sa.text("SELECT max(rowid) FROM designs")) or 0
    picked = random.Random(0).sample(range(1, last + 1), min(_SAMPLED_ROWS, last))
    always: sa.ColumnElement[Any] = sa.literal_column("1")
    chosen = {"": always if search.chosen is None else search.chosen.condition, **search.required}
    asked = [always if search.behind is None else search.behind, *chosen.values()]
    rows = sa.text(f"SELECT value FROM json_each('{picked}')").columns(sa.column("value", sa.Integer))
    query = sa.select(*asked).select_from(designs).where(sa.literal_column("designs.rowid").in_(rows))
    cursor = session.connection().execute(query.order_by(*search.order_by)).cursor
    assert cursor is not None  # a SELECT has one
    found = np.array([tuple(map(bool, row)) for row in cursor.fetchall()], bool).reshape(-1, len(asked))
    n_rows = last * len(found) / max(len(picked), 1)
    return n_rows, found[:, 0], dict(zip(chosen, found[:, 1:].T, strict=True))
