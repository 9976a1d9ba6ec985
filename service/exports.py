"""Designs as files, written page by page so that none is ever held whole: CSV, Parquet, JSON, Optuna's journal."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from explorer.optuna_journal import optuna_journal
from explorer.records import record_from_json
from service.db import history, queries
from service.db.fields import FIELDS, STUDY_FIELDS
from service.db.filters import Filter
from service.db.session import Database, reading
from service.engine import Document

TableFormat = Literal["csv", "parquet", "json"]

PAGE_ROWS = 1_000

SCANNED_ROWS = 100_000
"""Designs of the history that are found at once, as some MB of keys: a filter without an index goes through all."""

JSON_COLUMNS = ("params", "operating_point", "objectives", "excess", "other_metrics")
"""Columns that hold JSON, since their parts differ from study to study."""

KINDS = {name: field.kind for name, field in FIELDS.items() if name not in STUDY_FIELDS} | {"violated": "text"}
"""Columns with one value each, under the names that filters use, and what they hold."""

COLUMNS = (*KINDS, *JSON_COLUMNS)

MEDIA_TYPES = {
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
    "json": "application/json",
    "optuna": "application/x-ndjson",
}

SUFFIXES = {"csv": "csv", "parquet": "parquet", "json": "json", "optuna": "journal.log"}

Pages = Iterable[Sequence[Document]]
"""Records of trials with their `study_id`, some at a time."""


def study_pages(database: Database, study_id: str) -> Iterator[list[Document]]:
    """Yield the records of a study in trial order; no transaction is open between two pages."""
    after = -1
    while True:
        with reading(database) as session:
            page = queries.list_trials(session, study_id, after, PAGE_ROWS, None)
        if not page:
            return
        after = page[-1]["number"]
        yield [{"study_id": study_id, **record} for record in page]


def history_pages(database: Database, chosen: Filter | None, order: history.Order) -> Iterator[list[Document]]:
    """Yield the records of the history that meet a filter, in an order; those deleted meanwhile are left out."""
    behind: Sequence[Any] | None = None
    while True:
        with reading(database) as session:
            keys = history.design_keys(session, chosen, order, behind, SCANNED_ROWS)
        for first in range(0, len(keys), PAGE_ROWS):
            with reading(database) as session:
                rows = history.rows_at(session, keys[first : first + PAGE_ROWS])
            yield [{"study_id": row.study_id, **row.record} for row in rows]
        if len(keys) < SCANNED_ROWS:
            return
        behind = keys[-1]


def table_bytes(pages: Pages, kind: TableFormat) -> Iterator[bytes]:
    """Yield the pieces of a file that holds every record."""
    return {"csv": _csv, "parquet": _parquet, "json": _json}[kind](pages)


def journal_bytes(document: Any, pages: Pages) -> Iterator[bytes]:
    """Yield the pieces of an Optuna journal of a checked study."""
    records = ([record_from_json(_without_study(each)) for each in page] for page in pages)
    for text in optuna_journal(document, records):
        yield text.encode()


def _without_study(record: Document) -> Document:
    return {name: value for name, value in record.items() if name != "study_id"}


def row_of(record: Mapping[str, Any]) -> Document:
    """One row of a table; a metric goes before a design parameter of the same name."""
    known = {**record["design"], **record["metrics"], **{name: record[name] for name in ("study_id", "number")}}
    known |= {"feasible": record["feasible"], "violated": record["violated"]}
    others = {name: value for name, value in record["metrics"].items() if name not in KINDS}
    stated = {**record, "other_metrics": others}
    row: Document = {name: _plain(known.get(name), kind) for name, kind in KINDS.items()}
    return row | {name: json.dumps(stated[name]) for name in JSON_COLUMNS}


def _plain(value: Any, kind: str) -> Any:
    if value is None:
        return None
    return float(value) if kind == "number" else bool(value) if kind == "truth" else str(value)


def _csv(pages: Pages) -> Iterator[bytes]:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for page in pages:
        writer.writerows(row_of(record) for record in page)
        yield _drained(text)
    yield _drained(text)


def _drained(text: io.StringIO) -> bytes:
    piece = text.getvalue().encode()
    text.seek(0)
    text.truncate()
    return piece


def _json(pages: Pages) -> Iterator[bytes]:
    yield b'{"designs": ['
    separator = b"\n"
    for page in pages:
        for record in page:
            yield separator + json.dumps(record, allow_nan=False, separators=(",", ":")).encode()
            separator = b",\n"
    yield b"\n]}\n"


_ARROW = {"number": pa.float64(), "text": pa.string(), "truth": pa.bool_()}

SCHEMA = pa.schema(
    [*(pa.field(name, _ARROW[kind]) for name, kind in KINDS.items()), *(pa.field(n, pa.string()) for n in JSON_COLUMNS)]
)


def _parquet(pages: Pages) -> Iterator[bytes]:
    """Row groups of one page each."""
    sink = _Pieces()
    with pq.ParquetWriter(sink, SCHEMA, compression="zstd") as writer:
        for page in pages:
            writer.write_table(pa.Table.from_pylist([row_of(record) for record in page], schema=SCHEMA))
            yield sink.drained()
    yield sink.drained()


class _Pieces(io.RawIOBase):
    """A file that only grows and whose pieces are taken away as they come."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, piece: Any) -> int:
        self.pieces.append(bytes(piece))
        self.size += len(self.pieces[-1])
        return len(self.pieces[-1])

    def tell(self) -> int:
        return self.size

    def drained(self) -> bytes:
        pieces, self.pieces = self.pieces, []
        return b"".join(pieces)
