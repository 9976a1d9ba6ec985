"""`chipfit history` and `chipfit bench history` as a user runs them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from service.cli import app
from service.db import migrate, queries
from service.db.design_rows import insert_designs
from service.db.session import open_database, require_reachable, writing
from tests.service.fake_engine import record


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """An embedded history of one study with 30 designs."""
    database = open_database(f"sqlite:///{tmp_path / 'chipfit.sqlite'}")
    require_reachable(database)
    migrate.upgrade(database)
    with writing(database) as session:
        queries.create_study(session, "study-1", "s", {}, "1")
        insert_designs(session, "study-1", 0, [record(i, 1.0 / (i + 1)).as_json() for i in range(30)])
    database.close()
    yield f"sqlite:///{tmp_path / 'chipfit.sqlite'}"


def answered(*arguments: str) -> Any:
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_designs_are_filtered_and_ordered(url: str) -> None:
    options = ["--filter", 'area_mm2 < "1.09 cm2" and feasible = true', "--order-by", "area_mm2 desc", "--limit", "3"]
    items = answered("history", *options, "--database-url", url)["items"]
    assert [item["number"] for item in items] == [8, 7, 5]


def test_a_front_neighbours_and_facets_are_found(url: str) -> None:
    front = answered("history", "--pareto", "area_mm2,ttft_p95_s", "--limit", "2", "--database-url", url)["items"]
    assert [item["number"] for item in front] == [1, 2]
    near = answered("history", "--near", "area_mm2=120 mm2", "--limit", "1", "--database-url", url)["items"]
    assert (near[0]["number"], near[0]["distance"]) == (20, 0.0)
    facet = answered("history", "--facets", "memory_kind", "--database-url", url)
    assert facet["items"][0]["values"] == [{"value": "hbm3", "count": 30}]


def test_tables_are_printed_for_people(url: str) -> None:
    for options in ((), ("--facets", "n_cores,memory_kind"), ("--near", "area_mm2=120")):
        result = CliRunner().invoke(app, ["history", *options, "--database-url", url])
        assert result.exit_code == 0, result.stderr
        assert "designs" in result.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--filter", "area < 3"], "--filter: unknown field 'area'"),
        (["--order-by", "memory_kind"], "--order-by: memory_kind holds text"),
        (["--pareto", "n_cores"], "--pareto: unknown metric 'n_cores'"),
        (["--near", "area_mm2"], "--near: must be name=value"),
        (["--facets", "colour"], "--facets: unknown field 'colour'"),
    ],
)
def test_bad_input_ends_with_one_line(url: str, options: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["history", *options, "--database-url", url])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"chipfit: {said}")
    assert len(result.stderr.splitlines()) == 1


def test_a_database_without_a_history_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["history", "--database-url", f"sqlite:///{tmp_path / 'none.sqlite'}"])
    assert result.exit_code == 2
    assert "holds no history" in result.stderr


def test_the_benchmark_answers_with_its_figures_and_leaves_nothing() -> None:
    found = answered("bench", "history", "--rows", "5000")["history"]
    assert found["rows"] == 4000
    assert 0 < found["p50_s"] <= found["p95_s"]
    assert found["write_rows_per_s"] > 0


def test_the_benchmark_refuses_a_database_that_is_not_empty(url: str) -> None:
    result = CliRunner().invoke(app, ["bench", "history", "--rows", "4000", "--database-url", url])
    assert result.exit_code == 2
    assert "must be empty" in result.stderr
