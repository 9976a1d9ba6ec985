"""How fast a large history is written and answers: `chipfit bench history`, on a database of its own."""

from __future__ import annotations

import contextlib
import functools
import gc
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.orm import Session

from explorer.bench import CHAT
from explorer.document import StudyError
from explorer.files import parse_yaml
from explorer.problem import judge_points
from explorer.records import records_of
from explorer.study import prepare, read_study
from models.checks import BoolArray, FloatArray
from service.db import history, migrate, queries
from service.db.design_rows import insert_designs
from service.db.filters import compile_filter
from service.db.session import Database, open_database, reading, require_reachable, writing
from service.db.tables import INDEXED_COLUMNS, METRIC_NUMBERS, Study, Table, design_records, designs

STUDY_ROWS = 2_000
"""Designs of each study in the history."""
SEED_STUDIES = 10
"""Studies written one record at a time, at most; the others vary them inside the database."""
COMMIT_ROWS = 500
WRITTEN_ROWS = 10_000
"""Designs written, with every index in place and full, to measure the speed of writing."""
INDEXED_QUERIES, OTHER_QUERIES, PAGE = 60, 12, 100
FRONT_FRACTION = 0.1
"""Share of the history whose front is asked for: 100,000 designs of a million."""
UNINDEXED = ("energy_per_output_token_j", "average_power_w", "output_tokens_per_s_per_mm2", "step_s")


def history_speed(rows: int = 1_000_000, database_url: str = "") -> dict[str, Any]:
    """
    Return how fast a history of `rows` designs is written and answers.

    Parameters
    ----------
    rows : int
        Designs, a multiple of `STUDY_ROWS` is made of it.
    database_url : str
        An empty database, left empty; a temporary SQLite file where none is given.

    Returns
    -------
    dict
        `p50_s` and `p95_s` of a filter on indexed fields with a sort and a page of 100; `unindexed_max_s` of any other
        filter, `pareto_max_s` of the front of a tenth of the designs, `write_rows_per_s`.
    """
    if rows < STUDY_ROWS:
        raise StudyError([{"pointer": "", "detail": f"rows must be at least {STUDY_ROWS}, got {rows}"}])
    rng = np.random.default_rng(0)
    with _scratch_database(database_url) as database:
        began_s = time.perf_counter()
        _fill(database, rows // STUDY_ROWS, rng)
        filled_s = time.perf_counter() - began_s
        gc.collect()
        gc.freeze()  # as a server does when it has started
        columns = _columns(database)
        indexed = [_timed(database, _indexed_query(rng, columns)) for _ in range(INDEXED_QUERIES)]
        other = [_timed(database, _other_query(rng, columns)) for _ in range(OTHER_QUERIES)]
        fronts = [_timed(database, each) for each in _front_queries(columns)]
        return {
            "rows": rows // STUDY_ROWS * STUDY_ROWS,
            "p50_s": float(np.quantile(indexed, 0.5)),
            "p95_s": float(np.quantile(indexed, 0.95)),
            "unindexed_p50_s": float(np.quantile(other, 0.5)),
            "unindexed_max_s": max(other),
            "pareto_max_s": max(fronts),
            "write_rows_per_s": _write_speed(database, rng, min(WRITTEN_ROWS, rows)),
            "fill_s": filled_s,
            "database": "sqlite" if database.is_sqlite else "postgresql",
        }


@contextmanager
def _scratch_database(url: str) -> Iterator[Database]:
    """An empty database with our tables, which are gone again at the end."""
    with tempfile.TemporaryDirectory(prefix="chipfit-bench-") as folder:
        database = open_database(url or f"sqlite:///{Path(folder) / 'history.sqlite'}")
        require_reachable(database)
        if sa.inspect(database.pool).get_table_names():
            database.close()
            raise StudyError([{"pointer": "", "detail": f"database {database.address} must be empty"}])
        try:
            migrate.upgrade(database)
            yield database
        finally:
            Table.metadata.drop_all(database.pool.execution_options(chipfit_writes=True))
            with database.pool.execution_options(chipfit_writes=True).begin() as connection:
                connection.execute(sa.text("DROP TABLE IF EXISTS alembic_version"))
            database.close()


def _fill(database: Database, n_studies: int, rng: np.random.Generator) -> None:
    """Write some studies through the service's own path, then as many varied copies of them as are missing."""
    records = _records()
    seeds = min(SEED_STUDIES, n_studies)
    for study in range(seeds):
        with writing(database) as session:
            queries.create_study(session, _study_id(study), "bench", {}, "bench")
            insert_designs(session, _study_id(study), 0, _varied(records, rng, STUDY_ROWS))
    indexes = [each for each in designs.indexes if each.name != "ix_designs_judgement_key"]
    writable = database.pool.execution_options(chipfit_writes=True)
    with writable.begin() as connection:
        for index in indexes:
            index.drop(connection)
    for first in range(seeds, n_studies, SEED_STUDIES):
        with writable.begin() as connection:
            for number in range(first, min(first + SEED_STUDIES, n_studies)):
                _copy_study(connection, _study_id(number % seeds), _study_id(number))
    for index in indexes:
        with writable.begin() as connection:
            index.create(connection)
    _settle(database)


def _settle(database: Database) -> None:
    """Bring statistics and files into the state that a database in use has."""
    if database.is_sqlite:
        with contextlib.closing(database.pool.raw_connection()) as raw:
            for statement in ("ANALYZE", "PRAGMA wal_checkpoint(TRUNCATE)"):
                raw.cursor().execute(statement)
        return
    with database.pool.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("VACUUM ANALYZE")


def _copy_study(connection: sa.Connection, old: str, new: str) -> None:
    """Copy a study, every metric of its designs times a factor between 0.5 and 1.5."""
    random = "abs(random() % 1000003) / 1000003.0" if connection.dialect.name == "sqlite" else "random()"
    factor: Any = sa.literal_column(f"(0.5 + {random})", sa.Double)
    for table, own in ((Study.metadata.tables["studies"], "id"), (designs, "study_id"), (design_records, "study_id")):
        columns: dict[str, Any] = {column.name: column for column in table.c} | {own: sa.literal(new)}
        if table is designs:
            columns |= {name: table.c[name] * factor for name in METRIC_NUMBERS}
        copied = sa.select(*columns.values()).where(table.c[own] == old)
        connection.execute(sa.insert(table).from_select(list(columns), copied, include_defaults=False))


def _study_id(number: int) -> str:
    return f"bench{number:027d}"


def _records() -> list[dict[str, Any]]:
    """Records of random designs of the full space on the chat workload."""
    problem = prepare(read_study(parse_yaml(CHAT, "chat")))
    sizes = problem.space.sizes
    points = np.random.default_rng(0).integers(0, sizes, size=(50, len(sizes)))
    return [record.as_json() for record in records_of(problem, points, judge_points(problem, points), 0)]


def _varied(records: list[dict[str, Any]], rng: np.random.Generator, count: int) -> list[dict[str, Any]]:
    """Return `count` records with numbers from 0 on and metrics of their own."""
    factors = rng.uniform(0.5, 1.5, size=(count, len(records[0]["metrics"]))).tolist()
    made = []
    for number in range(count):
        source = records[number % len(records)]
        metrics = {name: value * f for (name, value), f in zip(source["metrics"].items(), factors[number], strict=True)}
        made.append({**source, "number": number, "feasible": number % 3 > 0, "metrics": metrics})
    return made


def _write_speed(database: Database, rng: np.random.Generator, count: int) -> float:
    """Designs stored per second into the full history, some hundred in each transaction."""
    made = _varied(_records(), rng, count)
    with writing(database) as session:
        queries.create_study(session, "written", "bench", {}, "bench")
    began_s = time.perf_counter()
    for first in range(0, count, COMMIT_ROWS):
        with writing(database) as session:
            insert_designs(session, "written", first, made[first : first + COMMIT_ROWS], ("bench", "bench"))
    return count / (time.perf_counter() - began_s)


def _columns(database: Database) -> dict[str, FloatArray]:
    """Values of the columns that queries name, from one study."""
    names = [*INDEXED_COLUMNS, *UNINDEXED]
    query = sa.select(*(designs.c[name] for name in names)).where(designs.c.study_id == _study_id(0))
    with reading(database) as session:
        values = np.array([tuple(row) for row in session.execute(query)])
    return dict(zip(names, values.T, strict=True))


Query = Callable[[Session], object]


def _timed(database: Database, query: Query) -> float:
    """Time of one query in a session of its own [s]."""
    with reading(database) as session:
        began_s = time.perf_counter()
        query(session)
        return time.perf_counter() - began_s


def _comparison(rng: np.random.Generator, columns: dict[str, FloatArray], name: str) -> tuple[str, BoolArray]:
    """A comparison that keeps between a thousandth and nine tenths of the designs, and which ones of the study."""
    share = 10.0 ** rng.uniform(-3.0, -0.05)
    if rng.random() < 0.5:
        highest = np.quantile(columns[name], share)
        return f"{name} <= {highest}", columns[name] <= highest
    lowest = np.quantile(columns[name], 1.0 - share)
    return f"{name} > {lowest}", columns[name] > lowest


def _indexed_query(rng: np.random.Generator, columns: dict[str, FloatArray]) -> Query:
    """A filter on one to three indexed fields, a sort by one, and a page somewhere."""
    names = rng.choice(INDEXED_COLUMNS, size=rng.integers(1, 4), replace=False)
    parts = [_comparison(rng, columns, name) for name in names]
    text = " and ".join(part for part, _ in parts) + " and feasible = true" * bool(rng.random() < 0.5)
    keeps = np.logical_and.reduce([kept for _, kept in parts])
    return _page(rng, columns, text, str(rng.choice(INDEXED_COLUMNS)), keeps)


def _other_query(rng: np.random.Generator, columns: dict[str, FloatArray]) -> Query:
    """A filter that needs columns without an index, with any sort."""
    names = rng.choice(UNINDEXED, size=2, replace=False)
    (first, kept_first), (second, kept_second) = (_comparison(rng, columns, name) for name in names)
    joined, keeps = ("and", kept_first & kept_second) if rng.random() < 0.5 else ("or", kept_first | kept_second)
    text = f"({first} {joined} {second})" + " and n_cores >= 16" * bool(rng.random() < 0.5)
    return _page(rng, columns, text, str(rng.choice([*INDEXED_COLUMNS, *UNINDEXED])), keeps)


def _page(rng: np.random.Generator, columns: dict[str, FloatArray], text: str, by: str, keeps: BoolArray) -> Query:
    """The first page, or the one behind a design that the filter keeps."""
    order = history.read_order(f"{by} desc" if rng.random() < 0.5 else by)
    kept = columns[by][keeps]
    behind = (float(rng.choice(kept)), _study_id(0), 0) if len(kept) and rng.random() < 0.5 else None
    return lambda session: history.list_designs(session, compile_filter(text), order, behind, PAGE + 1)


def _front_queries(columns: dict[str, FloatArray]) -> list[Query]:
    area = np.quantile(columns["area_mm2"], FRONT_FRACTION * 1.5)  # two of three designs are feasible
    text = f"area_mm2 <= {area}"
    pairs = (
        ["sustainable_output_tokens_per_s", "usd_per_million_output_tokens"],
        ["energy_per_output_token_j", "step_s"],
        ["ttft_p95_s", "unit_cost_usd", "average_power_w"],
    )
    return [functools.partial(_front, text, pair) for pair in pairs]


def _front(text: str, metrics: list[str], session: Session) -> object:
    return history.front_keys(session, compile_filter(text), metrics)
