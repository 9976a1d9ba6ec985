"""Reads request traces from text tables (comma, semicolon, tab or bar separated)."""

from __future__ import annotations

import csv
import io
import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from models.checks import FloatArray
from models.workload.trace_formats import SECONDS_PER_CLOCK, TraceColumns, TraceFormat, recognise

ROWS_PER_CHUNK = 20_000
SEPARATORS = ",;\t|"
_ZONE = re.compile(r"(?:Z|z| ?UTC|([+-])(\d\d):?(\d\d)?)")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d{1,12})?)?")


def read_table(text: str, name: str) -> TraceColumns:
    """Return the columns of a text table with one header row; '#' lines before it are provenance."""
    header, separator = _header(text, name)
    fmt, matched = recognise(header, name)
    values = None if fmt.clock == "datetime" else _plain_numbers(text, separator, header, matched)
    if values is None:
        values = _checked_cells(text, separator, header, fmt, matched, name)
    if fmt.clock != "datetime" and "arrival_s" in values:
        values["arrival_s"] = values["arrival_s"] * SECONDS_PER_CLOCK[fmt.clock]
    labels = {field: column.strip() for field, column in matched.items()}
    return TraceColumns(values, labels, _place(text, separator), fmt.absolute)


def _plain_numbers(
    text: str, separator: str, header: Sequence[str], matched: Mapping[str, str]
) -> dict[str, FloatArray] | None:
    """All columns at once where every cell is a finite number and every row full, else None: read them one by one."""
    if '"' in text or "prefix_blocks" in matched:
        return None
    numbers = {field: header.index(column) for field, column in matched.items() if field != "session_id"}
    lines = _lines(text)
    next(lines)
    first = next((line for line in lines if line.strip()), None)
    if first is None:
        return None
    try:
        table = np.loadtxt(
            itertools.chain([first], lines), delimiter=separator, usecols=list(numbers.values()), ndmin=2, comments=None
        )
    except ValueError:
        return None
    full = text.count(separator, _start(text)) == (len(table) + 1) * (len(header) - 1)
    if not (full and np.isfinite(table).all()):
        return None
    values = {field: np.ascontiguousarray(table[:, index]) for index, field in enumerate(numbers)}
    if "session_id" in matched:
        values["session_id"] = session_codes(_column(text, separator, header.index(matched["session_id"])), {})
    return values


def _column(text: str, separator: str, index: int) -> list[str]:
    """Cells of one column of a table without quotes."""
    lines = _lines(text)
    next(lines)
    return [line.rstrip("\r\n").split(separator)[index] for line in lines if line.strip()]


def _checked_cells(
    text: str, separator: str, header: Sequence[str], fmt: TraceFormat, matched: Mapping[str, str], name: str
) -> dict[str, FloatArray]:
    """All columns cell by cell: empty cells become NaN, and what breaks a rule is named with its place."""
    chunks: dict[str, list[FloatArray]] = {field: [] for field in matched}
    parsers = _parsers(matched, fmt.clock)
    first = 0
    for rows in _chunks(text, separator, len(header), name):
        cells = dict(zip(header, zip(*rows, strict=True), strict=True))
        for field, column in matched.items():
            if field == "prefix_blocks":
                raise ValueError(f"{name}: column '{column}' is read from JSON lines, not from a table")
            try:
                chunks[field].append(parsers[field](cells[column]))
            except _CellError as error:
                where = _place(text, separator)(first + error.row)
                raise ValueError(f"{name} {where}, column '{column.strip()}': {error.rule}") from None
        first += len(rows)
    if first == 0:
        raise ValueError(f"{name}: no data rows below the header")
    return {field: np.concatenate(parts) for field, parts in chunks.items()}


class _CellError(ValueError):
    """A cell that breaks a rule, with its row in the chunk."""

    def __init__(self, row: int, rule: str) -> None:
        super().__init__(rule)
        self.row, self.rule = row, rule


def _lines(text: str) -> Iterator[str]:
    """The lines from the header on."""
    lines = io.StringIO(text, newline="")
    lines.seek(_start(text))
    return lines


def _start(text: str) -> int:
    """Where the header begins, past blank lines and provenance."""
    skipped = itertools.takewhile(lambda line: line.startswith("#") or not line.strip(), io.StringIO(text, newline=""))
    return sum(len(line) for line in skipped)


def _header(text: str, name: str) -> tuple[list[str], str]:
    """Column names and the separator, which is the one the header holds most of."""
    line = next(_lines(text), "")
    if not line.strip():
        raise ValueError(f"{name}: the trace is empty")
    separator = max(SEPARATORS, key=line.count)
    header = next(csv.reader([line], delimiter=separator))
    names = [column.strip().lower() for column in header]
    twice = sorted({column for column in names if column and names.count(column) > 1})
    if twice:
        raise ValueError(f"{name}: column '{twice[0]}' occurs twice in the header")
    return header, separator


def _chunks(text: str, separator: str, n_columns: int, name: str) -> Iterator[list[list[str]]]:
    """Data rows in lists of at most `ROWS_PER_CHUNK`, each with one cell per column; blank lines are no rows."""
    reader = csv.reader(_lines(text), delimiter=separator)
    try:
        next(reader)
        first = 0
        while rows := list(itertools.islice(reader, ROWS_PER_CHUNK)):
            rows = [row for row in rows if row]
            for index, row in enumerate(rows):
                if len(row) != n_columns:
                    where = _place(text, separator)(first + index)
                    raise ValueError(f"{name} {where}: must have {n_columns} cells as the header, got {len(row)}")
            first += len(rows)
            if rows:
                yield rows
    except csv.Error as error:
        raise ValueError(f"{name} line {reader.line_num}: malformed table, {error}") from None


def _place(text: str, separator: str) -> Callable[[int], str]:
    """Row -> "line 7" by reading the table again, which only an error pays for."""

    def place(row: int) -> str:
        before = len(text[: _start(text)].splitlines())
        reader = csv.reader(_lines(text), delimiter=separator)
        next(reader)
        seen = -1
        for cells in reader:
            seen += bool(cells)
            if seen == row:
                return f"line {before + reader.line_num}"
        return f"row {row + 1}"

    return place


def _parsers(matched: Mapping[str, str], clock: str) -> dict[str, Callable[[Sequence[str]], FloatArray]]:
    """How to read the cells of each field, chunk after chunk."""
    sessions: dict[str, int] = {}
    zoned: dict[bool, None] = {}
    special: dict[str, Callable[[Sequence[str]], FloatArray]] = {
        "session_id": lambda cells: session_codes(cells, sessions)
    }
    if clock == "datetime":
        special["arrival_s"] = lambda cells: _moments(cells, zoned)
    return {field: special.get(field, _numbers) for field in matched}


def session_codes(cells: Sequence[str], sessions: dict[str, int]) -> FloatArray:
    """Number of each session in order of appearance, NaN where the cell is empty."""
    codes = (sessions.setdefault(cell, len(sessions)) if cell.strip() else math.nan for cell in cells)
    return np.fromiter(codes, dtype=np.float64, count=len(cells))


def _numbers(cells: Sequence[str]) -> FloatArray:
    """Numbers of a column, NaN where a cell is empty."""
    try:
        values = np.fromiter(map(float, cells), dtype=np.float64, count=len(cells))
        if np.isfinite(values).all():
            return values
    except ValueError:
        pass
    return np.array([_number(row, cell) for row, cell in enumerate(cells)], dtype=np.float64)


def _number(row: int, cell: str) -> float:
    if not cell.strip():
        return math.nan
    try:
        value = float(cell)
    except ValueError:
        hint = " (a decimal comma is not read)" if re.fullmatch(r"\s*-?\d+,\d+\s*", cell) else ""
        raise _CellError(row, f"must be a number, got '{cell[:40]}'{hint}") from None
    if not math.isfinite(value):
        raise _CellError(row, f"must be a finite number, got {cell.strip()[:40]}")
    return value


def _moments(cells: Sequence[str], zoned: dict[bool, None]) -> FloatArray:
    """Seconds since 1970 of ISO 8601 dates and times; an offset from UTC is applied. `zoned` is that of all chunks."""
    tails = [cell[19:].lstrip(".0123456789").rstrip() for cell in cells]
    offsets_s = {tail: _offset_s(tail) for tail in set(tails)}
    zoned.update(dict.fromkeys(bool(tail) for tail in offsets_s))
    if len(zoned) > 1 or None in offsets_s.values():
        _refuse_zone(cells, tails, offsets_s, next(iter(zoned)))
    if set(tails) != {""}:
        cells = [cell.rstrip()[: len(cell.rstrip()) - len(tail)] for cell, tail in zip(cells, tails, strict=True)]
    if not all(map(_MOMENT.fullmatch, cells)):
        _refuse_date(cells)
    try:
        moments = np.array(cells, dtype="datetime64[us]")
    except ValueError:
        _refuse_date(cells)
        raise
    offset_s = np.array([offsets_s[tail] for tail in tails], dtype=np.float64)
    seconds = moments.astype("datetime64[s]")
    fraction_s = (moments - seconds) / np.timedelta64(1, "s")
    absolute_s: FloatArray = seconds.astype(np.float64) + fraction_s - offset_s
    return absolute_s


def _refuse_zone(
    cells: Sequence[str], tails: Sequence[str], offsets_s: Mapping[str, float | None], zoned: bool
) -> None:
    """Name the first cell whose time zone is not understood, or missing where the first row has one."""
    for row, (cell, tail) in enumerate(zip(cells, tails, strict=True)):
        if offsets_s[tail] is None:
            raise _CellError(row, f"{_ISO_RULE}, got '{cell[:40]}'")
        if bool(tail) != zoned:
            raise _CellError(row, f"must state its time zone like the first row, got '{cell[:40]}'")


def _refuse_date(cells: Sequence[str]) -> None:
    """Name the first cell that is no date and time."""
    for row, cell in enumerate(cells):
        if not (_MOMENT.fullmatch(cell) and _is_date(cell)):
            raise _CellError(row, f"{_ISO_RULE}, got '{cell[:40]}'")


_ISO_RULE = "must be a date and time as 2023-11-16 18:15:46.680 with Z, +hh:mm or no time zone"


def _offset_s(tail: str) -> float | None:
    """Seconds ahead of UTC of a time zone suffix, None where it is not understood."""
    if not tail:
        return 0.0
    zone = _ZONE.fullmatch(tail)
    if zone is None:
        return None
    sign, hours, minutes = zone.groups()
    return 0.0 if sign is None else float(sign + "1") * (3600.0 * int(hours) + 60.0 * int(minutes or 0))


def _is_date(cell: str) -> bool:
    try:
        np.datetime64(cell)
    except ValueError:
        return False
    return True
