"""How the databases go through the history, and the look-up of many designs at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db import history, migrate, queries
from service.db.design_rows import insert_designs
from service.db.filters import compile_filter
from service.db.session import open_database, writing

DESIGNS = 40


@pytest.fixture
def session(database_url: str) -> Iterator[Session]:
    """Two studies of designs whose area is 100 + number."""
    database = open_database(database_url)
    migrate.upgrade(database)
    with writing(database) as session:
        for study in ("one", "two"):
            queries.create_study(session, study, study, {}, "1")
            insert_designs(session, study, 0, [record(number) for number in range(DESIGNS)])
        yield session
    database.close()


def record(number: int) -> dict[str, Any]:
    return {"number": number, "feasible": True, "params": {}, "design": {}, "metrics": {"area_mm2": 100.0 + number}}


def plan_of(session: Session, text: str, order_by: str) -> str:
    """Plan of the page's query where Postgres takes an index whenever one gives the order."""
    explain = "EXPLAIN QUERY PLAN "
    if session.get_bind().dialect.name == "postgresql":
        explain = "EXPLAIN "
        for kind in ("seqscan", "bitmapscan", "sort"):
            session.execute(sa.text(f"SET LOCAL enable_{kind} = off"))
    asked: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_rest: Any) -> None:
        asked.append((statement, parameters))

    sa.event.listen(session.connection(), "before_cursor_execute", note)
    history.list_designs(session, compile_filter(text), history.read_order(order_by), None, 10)
    sa.event.remove(session.connection(), "before_cursor_execute", note)
    statement, parameters = next(each for each in asked if "key_0" in each[0])
    rows = session.connection().exec_driver_sql(explain + statement, parameters)
    return "\n".join(str(row[-1]) for row in rows)


@pytest.mark.parametrize("order", ["area_mm2", "area_mm2 desc"])
def test_a_filter_that_the_index_of_the_order_answers_walks_it(session: Session, order: str) -> None:
    assert "ix_designs_area_mm2" in plan_of(session, "area_mm2 < 120 and feasible = true", order)


@pytest.mark.parametrize("order", ["area_mm2", "area_mm2 desc"])
def test_a_filter_on_other_fields_walks_no_index_of_the_order(session: Session, order: str) -> None:
    assert "ix_designs_area_mm2" not in plan_of(session, "step_s < 1 and n_cores > 16", order)


def test_designs_come_in_the_order_of_their_keys_and_unknown_ones_are_left_out(session: Session) -> None:
    keys = [(study, number) for number in reversed(range(DESIGNS)) for study in ("two", "one")]
    rows = history.rows_at(session, [keys[0], ("none", 3), ("one", DESIGNS), *keys[1:]])
    assert [row.key for row in rows] == keys
    assert [(row.study_id, row.record["number"]) for row in rows] == keys
    assert all(row.record["metrics"] == {"area_mm2": 100.0 + row.record["number"]} for row in rows)
    assert history.rows_at(session, []) == []
