"""Records of trials <-> rows: typed columns in `designs`, everything else as JSON in `design_records`."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db.session import to_json
from service.db.tables import DESIGN_NUMBERS, DESIGN_TEXTS, METRIC_NUMBERS, METRIC_TEXTS, design_records, designs

Document = dict[str, Any]

_DESIGN_COLUMNS = frozenset((*DESIGN_NUMBERS, *DESIGN_TEXTS)) - {*METRIC_NUMBERS, *METRIC_TEXTS}
_METRIC_COLUMNS = frozenset((*METRIC_NUMBERS, *METRIC_TEXTS))
_FIXED = ("study_id", "number", "chunk", "feasible", "judgement_key")
_APART = ("number", "feasible", "design", "metrics")
_LONGEST_TEXT = 40

RECORD_COLUMNS: tuple[sa.ColumnElement[Any], ...] = (
    designs.c.number,
    designs.c.feasible,
    design_records.c.rest,
    *(designs.c[name] for name in (*DESIGN_NUMBERS, *DESIGN_TEXTS, *METRIC_NUMBERS, *METRIC_TEXTS)),
)
"""What `records_of` needs of each row."""

WITH_RECORDS = designs.join(
    design_records,
    sa.and_(designs.c.study_id == design_records.c.study_id, designs.c.number == design_records.c.number),
)


def judgement_key(model_version: str, workload_hash: str, params: Mapping[str, Any]) -> int:
    """Return 64 bits that equal judgements share: same model, same workload, same free parameters."""
    text = f"{model_version}\n{workload_hash}\n{to_json(dict(sorted(params.items())))}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


def insert_designs(
    session: Session,
    study_id: str,
    chunk: int,
    records: Sequence[Document],
    judged_under: tuple[str, str] | None = None,
) -> None:
    """
    Insert records in two statements; a trial number that is there stays as it is.

    The driver takes the rows as they are: SQLAlchemy's handling of each value would double the time.

    Parameters
    ----------
    judged_under : tuple of str, optional
        Model version and workload hash, where equal designs of other studies may take the records over.
    """
    if not records:
        return
    connection = session.connection()
    keys = [None if judged_under is None else judgement_key(*judged_under, record["params"]) for record in records]
    rows = [_design_row(study_id, chunk, record, key) for record, key in zip(records, keys, strict=True)]
    rests = [(study_id, record["number"], to_json(_rest(record))) for record in records]
    narrow, wide = _insert_sql(connection.dialect.name)
    connection.exec_driver_sql(narrow, rows)
    connection.exec_driver_sql(wide, rests)


def find_judged(
    session: Session, judged_under: tuple[str, str], params: Sequence[Mapping[str, Any]]
) -> dict[int, Document]:
    """Return the records of designs that were judged before under the same model and workload, by their position."""
    keys = {judgement_key(*judged_under, each): position for position, each in enumerate(params)}
    query = sa.select(designs.c.judgement_key, *RECORD_COLUMNS).select_from(WITH_RECORDS)
    rows = session.execute(query.where(designs.c.judgement_key.in_(list(keys)))).all()
    found: dict[int, Document] = {}
    for row, record in zip(rows, records_of(rows, 1), strict=True):
        position = keys[row[0]]
        if record["params"] == dict(params[position]):
            found[position] = record
    return found


def records_of(rows: Sequence[sa.Row[Any]], offset: int = 0) -> Iterator[Document]:
    """Yield the record of each row, whose columns from `offset` on are `RECORD_COLUMNS`."""
    parameters = [*DESIGN_NUMBERS, *DESIGN_TEXTS]
    metrics = [*METRIC_NUMBERS, *METRIC_TEXTS]
    first_parameter, first_metric = offset + 3, offset + 3 + len(parameters)
    for row in rows:
        number, feasible, rest = row[offset:first_parameter]
        design = zip(parameters, row[first_parameter:first_metric], strict=True)
        measured = zip(metrics, row[first_metric:], strict=True)
        own_design = {name: value for name, value in design if value is not None}
        own_metrics = {name: value for name, value in measured if value is not None}
        yield {
            **rest, "number": number, "feasible": feasible,
            "design": own_design | rest.get("design", {}), "metrics": own_metrics | rest.get("metrics", {}),
        }  # fmt: skip


def _design_row(study_id: str, chunk: int, record: Document, key: int | None) -> tuple[Any, ...]:
    """One row of `designs` in the order of `_insert_sql`."""
    design, metrics = record["design"], record["metrics"]
    texts = [None if value is None else str(value)[:_LONGEST_TEXT]
             for value in chain(map(design.get, DESIGN_TEXTS), map(metrics.get, METRIC_TEXTS))]  # fmt: skip
    numbers = (*map(design.get, DESIGN_NUMBERS), *map(metrics.get, METRIC_NUMBERS))
    return (study_id, record["number"], chunk, record["feasible"], key, *numbers, *texts)


def _rest(record: Document) -> Document:
    """What no column gives back exactly."""
    rest = {name: value for name, value in record.items() if name not in _APART}
    for part, columns in (("design", _DESIGN_COLUMNS), ("metrics", _METRIC_COLUMNS)):
        left = _left(record[part], columns)
        if left:
            rest[part] = left
    return rest


def _left(values: Document, columns: frozenset[str]) -> Document:
    """The values that have no column, or that a column would change; the usual case is checked all at once."""
    numbers = [value for value in values.values() if type(value) is float]
    texts = [value for value in values.values() if type(value) is str]
    all_exact = len(numbers) + len(texts) == len(values) and max(map(len, texts), default=0) <= _LONGEST_TEXT
    if all_exact and math.isfinite(sum(numbers)):
        return {name: values[name] for name in values.keys() - columns}
    return {name: value for name, value in values.items() if name not in columns or not _is_exact(value)}


def _is_exact(value: Any) -> bool:
    return (type(value) is float and math.isfinite(value)) or (type(value) is str and len(value) <= _LONGEST_TEXT)


@functools.cache
def _insert_sql(dialect_name: str) -> tuple[str, str]:
    """SQL of both bulk inserts with positional parameters."""
    columns = [*_FIXED, *DESIGN_NUMBERS, *METRIC_NUMBERS, *DESIGN_TEXTS, *METRIC_TEXTS]
    mark = "?" if dialect_name == "sqlite" else "%s"
    return _insert("designs", columns, mark), _insert("design_records", ["study_id", "number", "rest"], mark)


def _insert(table: str, columns: Sequence[str], mark: str) -> str:
    values = ", ".join([mark] * len(columns))
    names = ", ".join(columns)
    return f"INSERT INTO {table} ({names}) VALUES ({values}) ON CONFLICT (study_id, number) DO NOTHING"
