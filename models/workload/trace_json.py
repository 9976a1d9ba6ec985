"""Reads request traces from JSON documents and JSON lines."""

from __future__ import annotations

import io
import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from models.checks import FloatArray
from models.workload.trace_csv import session_codes
from models.workload.trace_formats import SECONDS_PER_CLOCK, TraceColumns, TraceFormat, recognise

TURN_TOKEN_KEYS = ("tokens", "num_tokens", "n_tokens", "token_count", "token_len")
LINES_PER_CHUNK = 5_000
WRAPPERS = ("requests", "data", "trace", "records", "results")


def read_json_trace(text: str, name: str) -> TraceColumns:
    """Return the columns of a JSON document (records or arrays per column) or of JSON lines (one record each)."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise ValueError(f"{name} line {error.lineno} column {error.colno}: malformed JSON, {error.msg}") from None
        return _from_records(lambda: _line_chunks(text, name), name)
    except RecursionError:
        raise ValueError(f"{name}: malformed JSON, nested too deeply") from None
    if isinstance(document, Mapping):
        wrapped = next((document[key] for key in WRAPPERS if isinstance(document.get(key), list)), None)
        if wrapped is None and "conversations" not in document and not _is_record(document):
            return _from_arrays(document, name)
        document = [document] if wrapped is None else wrapped
    if not isinstance(document, list) or not document:
        raise ValueError(f"{name}: the trace is empty")
    chunk = _Chunk("record", range(1, len(document) + 1), document)
    return _from_records(lambda: iter([chunk]), name)


def _is_record(document: Mapping[str, Any]) -> bool:
    """Whether an object is one request, as the only line of a file of JSON lines is."""
    return not any(isinstance(value, list) for key, value in document.items() if key != "hash_ids")


@dataclass(frozen=True)
class _Chunk:
    """Some records of a trace, and where each stands: a kind of place with its number."""

    kind: str
    numbers: Sequence[int]
    records: list[Any]

    def place(self, index: int) -> str:
        """Where a record stands, as "line 7"."""
        return f"{self.kind} {self.numbers[index]}"


def _line_chunks(text: str, name: str) -> Iterator[_Chunk]:
    """Records of JSON lines, parsed some thousands at a time."""
    lines = ((number, line) for number, line in enumerate(io.StringIO(text), start=1) if line.strip())
    while chunk := list(itertools.islice(lines, LINES_PER_CHUNK)):
        try:
            records = json.loads("[" + ",".join([line for _, line in chunk]) + "]")
        except (json.JSONDecodeError, RecursionError):
            records = []
        if len(records) != len(chunk):
            records = [_line_record(line, number, name) for number, line in chunk]
        yield _Chunk("line", [number for number, _ in chunk], records)


def _line_record(line: str, number: int, name: str) -> Any:
    try:
        return json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{name} line {number}: malformed JSON line, {error}") from None


Records = Callable[[], Iterator[_Chunk]]
"""Begins a new pass over the records of a trace."""


def _objects(records: Records, name: str) -> Iterator[_Chunk]:
    """The records, all of which must be objects."""
    for chunk in records():
        if not set(map(type, chunk.records)) <= {dict}:
            index = next(i for i, record in enumerate(chunk.records) if type(record) is not dict)
            came = type(chunk.records[index]).__name__
            raise ValueError(f"{name} {chunk.place(index)}: must be an object, got {came}")
        yield chunk


def _from_records(records: Records, name: str) -> TraceColumns:
    first = next(_objects(records, name)).records[0]
    if "conversations" in first or "conversation" in first:
        return _from_conversations(records, name)
    if "total_input_tokens" in first and "input_lens" not in first:
        raise ValueError(f"{name}: a benchmark result without the lengths per request; save it with its details")
    fmt, matched = recognise(first, name)
    columns: dict[str, list[Any]] = {field: [] for field in matched}
    seen: set[int] = set()
    for chunk in _objects(records, name):
        for field, column in matched.items():
            cells = [record.get(column) for record in chunk.records]
            if field == "prefix_blocks":
                _require_blocks(cells, chunk, name, column)
                cells = [_known_blocks(cell, seen) for cell in cells]
            columns[field] += cells
    return _columns(fmt, matched, columns, name, lambda row: _nth_place(records, row))


def _nth_place(records: Records, row: int) -> str:
    """Where a row stands, by another pass that only an error pays for."""
    places = (chunk.place(index) for chunk in records() for index in range(len(chunk.records)))
    return next(itertools.islice(places, row, None))


def _from_arrays(document: Mapping[str, Any], name: str) -> TraceColumns:
    arrays = {key: value for key, value in document.items() if isinstance(value, list)}
    if "total_input_tokens" in document and "input_lens" not in arrays:
        raise ValueError(f"{name}: a benchmark result without the lengths per request; save it with its details")
    fmt, matched = recognise(arrays, name)
    columns = {field: arrays[column] for field, column in matched.items()}
    sizes = {matched[field]: len(cells) for field, cells in columns.items()}
    if fmt.name == "benchmark-result" and sizes.get("start_times") == 0:
        del columns["arrival_s"], sizes["start_times"], matched["arrival_s"]
    if len(set(sizes.values())) > 1:
        raise ValueError(f"{name}: arrays must have one length, got {sizes}")
    return _columns(fmt, matched, columns, name, lambda row: f"entry {row + 1}")


def _columns(
    fmt: TraceFormat,
    matched: Mapping[str, str],
    columns: Mapping[str, Sequence[Any]],
    name: str,
    place: Callable[[int], str],
) -> TraceColumns:
    if not columns["input_tokens"]:
        raise ValueError(f"{name}: the trace is empty")
    values: dict[str, FloatArray] = {}
    for field, cells in columns.items():
        if field == "session_id":
            values[field] = session_codes(["" if cell is None else str(cell) for cell in cells], {})
        elif field != "prefix_blocks":
            values[field] = _numbers(cells, name, matched[field], place)
    if "arrival_s" in values:
        values["arrival_s"] = values["arrival_s"] * SECONDS_PER_CLOCK[fmt.clock]
    if "prefix_blocks" in columns:
        known = np.array(columns["prefix_blocks"], dtype=np.float64)
        values["cached_prefix_tokens"] = _reused_tokens(known, values["input_tokens"], fmt.block_tokens)
    if fmt.ordered or "arrival_s" not in values:
        return TraceColumns(values, dict(matched), place, fmt.absolute)
    order = np.argsort(values["arrival_s"], kind="stable")
    values = {field: cells[order] for field, cells in values.items()}
    return TraceColumns(values, dict(matched), lambda row: place(int(order[row])), fmt.absolute)


def _numbers(cells: Sequence[Any], name: str, column: str, place: Callable[[int], str]) -> FloatArray:
    """Numbers of a column, NaN where a record has none."""
    if not {type(cell) for cell in cells} <= {int, float}:
        for row, cell in enumerate(cells):
            if cell is not None and type(cell) not in (int, float):
                raise ValueError(f"{name} {place(row)}, column '{column}': must be a number, got {cell!r:.60}")
    try:
        values = np.array([math.nan if cell is None else cell for cell in cells], dtype=np.float64)
    except OverflowError:
        raise ValueError(f"{name}: column '{column}' holds a number beyond the range of float64") from None
    for row in np.flatnonzero(~np.isfinite(values)).tolist():
        if cells[row] is not None:
            raise ValueError(f"{name} {place(row)}, column '{column}': must be a finite number, got {cells[row]}")
    return values


def _require_blocks(cells: Sequence[Any], chunk: _Chunk, name: str, column: str) -> None:
    for index, cell in enumerate(cells):
        if type(cell) is not list or not set(map(type, cell)) <= {int}:
            came = f"numbers, got {cell!r:.40}" if type(cell) is not list else "whole numbers"
            raise ValueError(f"{name} {chunk.place(index)}, column '{column}': must be a list of {came}")


def _known_blocks(chain: Sequence[int], seen: set[int]) -> int:
    """How many leading blocks were seen before; all of them are seen from now on."""
    if seen.issuperset(chain):
        return len(chain)
    count = next(index for index, block in enumerate(chain) if block not in seen)
    seen.update(chain[count:])
    return count


def _reused_tokens(known_blocks: FloatArray, input_tokens: FloatArray, block_tokens: int) -> FloatArray:
    """Tokens in the known blocks of each prompt, of which at least one is always computed, shape (n,)."""
    return np.maximum(np.minimum(known_blocks * block_tokens, input_tokens - 1.0), 0.0)


def reused_prefix_tokens(
    blocks: Sequence[Sequence[int]], input_tokens: FloatArray, block_tokens: int = 512
) -> FloatArray:
    """
    Return how many prompt tokens an unlimited prefix cache already holds when each request arrives.

    A block number stands for the content of its tokens and of everything before them, so the reused prefix ends
    at the first number no earlier request had. At least one token is always computed.

    Parameters
    ----------
    blocks : sequences of block numbers, one per request in order of arrival
    input_tokens : array of shape (n,)
        Length of each prompt. [tokens]
    block_tokens : int
        Length of a block. [tokens]

    Returns
    -------
    array of shape (n,)
        Reused tokens of each prompt. [tokens]

    References
    ----------
    .. [1] R. Qin et al., "Mooncake: trading more storage for less computation", FAST 2025; trace format in the
       README of kvcache-ai/Mooncake, FAST25-release.

    Examples
    --------
    >>> reused_prefix_tokens([[1, 2], [1, 2, 3], [4]], np.array([1024.0, 1300.0, 40.0])).tolist()
    [0.0, 1024.0, 0.0]
    """
    seen: set[int] = set()
    known = np.array([_known_blocks(chain, seen) for chain in blocks], dtype=np.float64)
    return _reused_tokens(known, input_tokens, block_tokens)


def _from_conversations(records: Records, name: str) -> TraceColumns:
    """One request per answer of a ShareGPT-style conversation: its prompt is everything said before it."""
    rows: list[tuple[float, float, float, float]] = []
    places: list[str] = []
    placed = ((c.place(i), record) for c in _objects(records, name) for i, record in enumerate(c.records))
    for index, (place, record) in enumerate(placed):
        spoken = cached = pending = 0.0
        turns = record.get("conversations", record.get("conversation"))
        if not isinstance(turns, list):
            raise ValueError(f"{name} {place}: conversations must be a list of turns, got {turns!r:.40}")
        for turn in turns:
            tokens = _turn_tokens(turn, name, place)
            if turn.get("from", turn.get("role")) in ("gpt", "assistant", "model", "chatgpt", "bing", "bard"):
                rows.append((spoken + pending, tokens, cached, float(index)))
                places.append(place)
                spoken += pending + tokens
                cached, pending = spoken, 0.0
            else:
                pending += tokens
    if not rows:
        raise ValueError(f"{name}: no conversation has an answer")
    inputs, outputs, caches, sessions = np.array(rows).T
    labels = dict.fromkeys(("input_tokens", "output_tokens", "cached_prefix_tokens"), "conversations")
    values = {"input_tokens": inputs, "output_tokens": outputs, "cached_prefix_tokens": caches, "session_id": sessions}
    return TraceColumns(values, labels, places.__getitem__, False)


def _turn_tokens(turn: Any, name: str, where: str) -> float:
    key = next((key for key in TURN_TOKEN_KEYS if isinstance(turn, Mapping) and key in turn), None)
    if key is None:
        keys = ", ".join(TURN_TOKEN_KEYS)
        raise ValueError(f"{name} {where}: a turn has no token count ({keys}); count the tokens of the text first")
    tokens = turn[key]
    if type(tokens) not in (int, float) or not math.isfinite(tokens):
        raise ValueError(f"{name} {where}, field '{key}': must be a number of tokens, got {tokens!r:.40}")
    return float(tokens)
