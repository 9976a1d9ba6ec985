"""Designs as files: every format holds every design, of a study or of the history."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient

from service import exports
from service.db import history, queries
from service.db.design_rows import insert_designs
from service.db.filters import compile_filter
from service.db.session import Database, writing
from tests.service.api.test_studies import run_study
from tests.service.fake_engine import record
from tests.service.test_http import problem_of


@pytest.fixture(scope="module")
def study(client: TestClient) -> dict[str, Any]:
    return run_study(client, trials=25, chunk_trials=10)


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.exports.PAGE_ROWS", 10)


def records_of(client: TestClient, study_id: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = client.get(f"/v1/studies/{study_id}/designs?page_size=500").json()["items"]
    return items


def test_json_holds_the_records_as_they_are(client: TestClient, study: dict[str, Any]) -> None:
    answer = client.get(f"/v1/studies/{study['id']}/export?format=json")
    designs = answer.json()["designs"]
    assert [each["number"] for each in designs] == list(range(25))
    for got, listed in zip(designs, records_of(client, study["id"]), strict=True):
        assert {name: got[name] for name in listed} == listed


def test_csv_and_parquet_hold_the_same_rows_under_the_names_of_filters(
    client: TestClient, study: dict[str, Any]
) -> None:
    text = client.get(f"/v1/studies/{study['id']}/export?format=csv")
    assert text.headers["content-type"].startswith("text/csv")
    assert text.headers["content-disposition"] == f'attachment; filename="{study["id"]}.csv"'
    rows = list(csv.DictReader(io.StringIO(text.text)))
    table = pq.read_table(io.BytesIO(client.get(f"/v1/studies/{study['id']}/export?format=parquet").content))
    assert table.column_names == list(exports.COLUMNS) == list(rows[0])
    assert [float(row["area_mm2"]) for row in rows] == table["area_mm2"].to_pylist() == [100.0 + i for i in range(25)]
    assert table["feasible"].to_pylist() == [i % 3 != 0 for i in range(25)]
    assert table["memory_kind"].to_pylist() == ["hbm3"] * 25
    assert json.loads(rows[7]["operating_point"]) == {"batch": 8}
    assert table["objectives"].to_pylist() == [row["objectives"] for row in rows]


def test_the_history_is_exported_by_filter_and_order(client: TestClient, study: dict[str, Any]) -> None:
    query = {"filter": f'study_id = "{study["id"]}" and area_mm2 < 115', "order_by": "area_mm2 desc", "format": "csv"}
    rows = list(csv.DictReader(io.StringIO(client.get("/v1/designs:export", params=query).text)))
    assert [float(row["area_mm2"]) for row in rows] == [114.0 - i for i in range(15)]


def test_a_study_without_designs_is_an_empty_file(client: TestClient) -> None:
    posted = client.post("/v1/studies", json={"name": "s", "trials": 10, "chunk_s": 3.0}).json()
    path = f"/v1/studies/{posted['id']}/export"
    assert client.get(path, params={"format": "json"}).json() == {"designs": []}
    assert client.get(path, params={"format": "csv"}).text.count("\n") == 1
    assert pq.read_table(io.BytesIO(client.get(path, params={"format": "parquet"}).content)).num_rows == 0
    client.post(f"/v1/studies/{posted['id']}:cancel")


@pytest.mark.parametrize(
    ("path", "status", "pointer"),
    [
        ("/v1/studies/none/export", 404, None),
        ("/v1/designs:export?format=optuna", 422, "query.format"),
        ("/v1/designs:export?filter=area_mm2", 422, "query.filter"),
        ("/v1/designs:export?order_by=colour", 422, "query.order_by"),
        ("/v1/designs:export?format=xls", 422, "query.format"),
    ],
)
def test_a_bad_query_is_refused(client: TestClient, path: str, status: int, pointer: str | None) -> None:
    problem = problem_of(client.get(path), status)
    assert [error["pointer"] for error in problem["errors"]] == ([pointer] if pointer else [])


def test_a_file_is_written_page_by_page() -> None:
    taken = []

    def pages() -> Any:
        for first in range(0, 30, 10):
            taken.append(first)
            yield [{"study_id": "s", **record(first + i, 0.5).as_json()} for i in range(10)]

    for kind in ("csv", "parquet", "json"):
        taken.clear()
        pieces = exports.table_bytes(pages(), kind)  # type: ignore[arg-type]
        assert next(pieces)
        assert len(taken) <= 1
        assert len(b"".join(pieces)) > 0


def test_the_history_is_scanned_once_for_many_pages(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    with writing(database) as session:
        queries.create_study(session, "s", "s", {}, "1")
        insert_designs(session, "s", 0, [record(number, float(number % 7)).as_json() for number in range(40)])
    scans: list[int] = []
    plain = history.design_keys

    def counted(*asked: Any) -> list[tuple[Any, ...]]:
        scans.append(asked[-1])
        return plain(*asked)

    monkeypatch.setattr(history, "design_keys", counted)
    monkeypatch.setattr(exports, "SCANNED_ROWS", 15)
    monkeypatch.setattr(exports, "PAGE_ROWS", 4)
    chosen, order = compile_filter("number >= 1"), history.read_order("area_mm2 desc")
    pages = list(exports.history_pages(database, chosen, order))
    assert scans == [15] * 3
    assert max(map(len, pages)) == 4
    found = [each for page in pages for each in page]
    assert sorted(each["number"] for each in found) == list(range(1, 40))
    values = [each["metrics"]["area_mm2"] for each in found]
    assert values == sorted(values, reverse=True)
