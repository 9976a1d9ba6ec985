"""Which way SQLite goes through the designs, and that every way finds the same ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from explorer.pareto import non_dominated
from service.db import history, migrate, queries, walk
from service.db.design_rows import insert_designs
from service.db.filters import compile_filter
from service.db.session import open_database, writing

DESIGNS = 3_000
RNG = np.random.default_rng(0)
VALUES = {
    "area_mm2": np.arange(1.0, DESIGNS + 1),
    "ttft_p95_s": np.arange(DESIGNS, 0.0, -1.0),
    "tpot_p95_s": RNG.permutation(DESIGNS) + 1.0,
    "step_s": RNG.permutation(DESIGNS) + 1.0,
    "average_power_w": RNG.permutation(DESIGNS) + 1.0,
}
WAYS = ["NOT INDEXED", "INDEXED BY ix_designs_area_mm2", "INDEXED BY ix_designs_tpot_p95_s"]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """One study on SQLite: ttft_p95_s falls as area_mm2 grows, tpot_p95_s and step_s follow neither."""
    folder: Path = tmp_path_factory.mktemp("walk")
    database = open_database(f"sqlite:///{folder / 'chipfit.sqlite'}")
    migrate.upgrade(database)
    with writing(database) as session:
        queries.create_study(session, "one", "one", {}, "1")
        insert_designs(session, "one", 0, [record(number) for number in range(DESIGNS)])
        yield session
    database.close()


def record(number: int) -> dict[str, Any]:
    metrics = {name: float(values[number]) for name, values in VALUES.items()}
    return {"number": number, "feasible": number % 2 == 0, "params": {}, "design": {}, "metrics": metrics}


def asked(session: Session, text: str, order_by: str, behind: tuple[Any, ...] | None = None) -> str:
    """SQL of the query for one page."""
    statements: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        statements.append(statement)

    sa.event.listen(session.connection(), "before_cursor_execute", note)
    history.list_designs(session, compile_filter(text), history.read_order(order_by), behind, 10)
    sa.event.remove(session.connection(), "before_cursor_execute", note)
    return next(each for each in statements if "key_0" in each)


@pytest.mark.parametrize(
    ("text", "order_by", "way"),
    [
        ("feasible = true", "area_mm2", "INDEXED BY ix_designs_area_mm2"),
        ("feasible = true", "", "INDEXED BY sqlite_autoindex_designs_1"),
        ("tpot_p95_s < 20", "area_mm2", "INDEXED BY ix_designs_tpot_p95_s"),
        ("tpot_p95_s < 20 and (step_s < 9 or step_s > 900)", "area_mm2", "INDEXED BY ix_designs_tpot_p95_s"),
        ("step_s < 2 or average_power_w < 2", "area_mm2", "NOT INDEXED"),
        ("ttft_p95_s < 300", "area_mm2", "INDEXED BY ix_designs_ttft_p95_s"),
        ("ttft_p95_s < 300", "area_mm2 desc", "INDEXED BY ix_designs_area_mm2"),
    ],
    ids=["frequent", "unordered", "rare", "rare-beside-others", "rare-without-index", "far-in-the-order", "first"],
)
def test_the_way_of_least_expected_cost_is_taken(session: Session, text: str, order_by: str, way: str) -> None:
    assert f"FROM designs {way}" in asked(session, text, order_by)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("order_by", ["area_mm2", "tpot_p95_s desc"])
def test_every_way_finds_the_same_designs(
    session: Session, monkeypatch: pytest.MonkeyPatch, way: str, order_by: str
) -> None:
    chosen = compile_filter("tpot_p95_s < 900 and area_mm2 > 100 and feasible = true")
    order = history.read_order(order_by)
    first = history.list_designs(session, chosen, order, None, 30)
    second = history.list_designs(session, chosen, order, first[-1].key, 30)
    monkeypatch.setattr(walk, "_costs", lambda *_: {way: 0.0})
    assert history.list_designs(session, chosen, order, None, 60) == first + second
    key = order_by.split()[0]
    expected = [n for n in range(0, DESIGNS, 2) if VALUES["tpot_p95_s"][n] < 900 and VALUES["area_mm2"][n] > 100]
    expected.sort(key=lambda n: VALUES[key][n], reverse="desc" in order_by)
    assert [row.record["number"] for row in first + second] == expected[:60]


@pytest.mark.parametrize("order_by", ["", "area_mm2", "ttft_p95_s desc", "step_s"])
@pytest.mark.parametrize(
    "text",
    [
        "feasible = true and area_mm2 > 2990", "not area_mm2 < 2999", "area_mm2 != 5", "area_mm2 in (5, 7)",
        "feasible = false or area_mm2 < 1", 'study_name = "one" and area_mm2 < 9', 'study_id = "one" and step_s < 9',
    ],
)  # fmt: skip
def test_the_way_that_is_chosen_answers_every_kind_of_filter(
    session: Session, monkeypatch: pytest.MonkeyPatch, text: str, order_by: str
) -> None:
    chosen, order = compile_filter(text), history.read_order(order_by)
    found = history.design_keys(session, chosen, order, None, 40)
    count, front = history.count_designs(session, chosen), history.front_keys(session, chosen, ["step_s", "area_mm2"])
    monkeypatch.setattr(walk, "_costs", lambda *_: {"NOT INDEXED": 0.0})
    assert found == history.design_keys(session, chosen, order, None, 40)
    assert count == history.count_designs(session, chosen) > 0
    assert front == history.front_keys(session, chosen, ["step_s", "area_mm2"])


def test_an_empty_history_and_one_with_holes_are_answered(session: Session) -> None:
    with session.begin_nested() as inner:
        session.execute(sa.text("DELETE FROM designs WHERE number % 3 > 0"))
        every, order = compile_filter("step_s < 1e9"), history.read_order("step_s")
        assert len(history.list_designs(session, every, order, None, DESIGNS)) == DESIGNS // 3
        session.execute(sa.text("DELETE FROM designs"))
        assert history.list_designs(session, every, order, None, 9) == []
        assert history.count_designs(session, compile_filter("area_mm2 < 1")) == 0
        inner.rollback()


@pytest.mark.parametrize("metrics", [["step_s"], ["step_s", "tpot_p95_s"], ["step_s", "tpot_p95_s", "average_power_w"]])
def test_a_front_sorted_out_by_the_first_designs_is_the_whole_front(session: Session, metrics: list[str]) -> None:
    assert len(range(0, DESIGNS, 2)) < history.FIRST_SELECTED
    plain = history.front_keys(session, None, metrics)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history, "FIRST_SELECTED", 50)
        assert history.front_keys(session, None, metrics) == plain
    costs = np.stack([VALUES[name][::2] for name in metrics], 1)
    assert sorted(key[-1] for key in plain) == (2 * np.flatnonzero(non_dominated(costs))).tolist()


def test_a_front_of_too_many_designs_is_refused(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "FIRST_SELECTED", 10)
    monkeypatch.setattr(history, "MOST_SELECTED", 20)
    with pytest.raises(history.SelectionError, match="a front is made of at most 20 designs"):
        history.front_keys(session, None, ["step_s", "tpot_p95_s", "average_power_w", "area_mm2"])
