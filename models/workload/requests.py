"""Requests as they are observed: arrival, prompt and answer length of each, read from the traces publishers write."""

from __future__ import annotations

import codecs
import dataclasses
import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from models.checks import FloatArray
from models.workload.trace_csv import read_table
from models.workload.trace_formats import TraceColumns
from models.workload.trace_json import read_json_trace

MAX_TOKENS = 100_000_000
"""No context is longer; a larger number in a trace is a unit mistake."""
MAX_TRACE_BYTES = 512 * 2**20
ZeroRows = Literal["refuse", "drop"]


@dataclass(frozen=True)
class Requests:
    """
    Observed requests in order of arrival.

    Parameters
    ----------
    arrival_s : array of shape (n,) or None
        Arrival, not decreasing; None where only lengths are known. [s]
    input_tokens, output_tokens : arrays of shape (n,)
        Whole numbers of at least 1. The prompt includes its cached prefix. [tokens]
    cached_prefix_tokens : array of shape (n,)
        Leading prompt tokens whose keys and values are already in the prefix cache. [tokens]
    session_id : integer array of shape (n,) or None
        Number of the conversation or client a request belongs to, -1 where it has none.
    n_dropped_rows : int
        Zero-token rows of the source that the caller asked to leave out.

    Raises
    ------
    ValueError
        If an array has another length or a value breaks its rule.

    Examples
    --------
    >>> Requests(None, np.array([550.0]), np.array([150.0]), np.array([0.0])).n
    1
    """

    arrival_s: FloatArray | None
    input_tokens: FloatArray
    output_tokens: FloatArray
    cached_prefix_tokens: FloatArray
    session_id: NDArray[np.int64] | None = None
    n_dropped_rows: int = 0

    def __post_init__(self) -> None:
        n = len(self.input_tokens)
        if n == 0:
            raise ValueError("requests must not be empty")
        for name in ("arrival_s", "output_tokens", "cached_prefix_tokens", "session_id"):
            values = getattr(self, name)
            if values is not None and len(values) != n:
                raise ValueError(f"{name} must have {n} entries as input_tokens, got {len(values)}")
        broken = _broken_rule(self.arrival_s, self.input_tokens, self.output_tokens, self.cached_prefix_tokens)
        if broken is not None:
            raise ValueError(f"{broken.field} {broken.text} at index {broken.row} ({broken.count} of {n} entries)")

    @property
    def n(self) -> int:
        """Number of requests."""
        return len(self.input_tokens)


def read_trace(source: str | Path | bytes, name: str = "", *, zero_token_rows: ZeroRows = "refuse") -> Requests:
    """
    Return the requests of a trace file, whose format is recognised by its columns.

    Known are the tables and JSON documents of `models.workload.trace_formats.FORMATS`, Mooncake JSON lines (prefix
    reuse is computed from `hash_ids`), ShareGPT-style conversations with token counts, and the result files of
    serving benchmarks. Text may be gzipped, begin with a byte order mark, and use comma, semicolon, tab or bar.

    Parameters
    ----------
    source : path or bytes
        The file, or its content.
    name : str
        What error messages call it; the file's name by default.
    zero_token_rows : "refuse" or "drop"
        Some publishers log failed requests as rows without tokens: refuse the file, or leave them out and count them.

    Raises
    ------
    ValueError
        Naming file, line, column and rule: empty, malformed, not UTF-8, NaN, zero tokens, negative or unsorted
        arrivals, a prefix longer than its prompt.
    LookupError
        If there is no such file.

    Examples
    --------
    >>> read_trace(b"arrival_s,input_tokens,output_tokens\\n0.0,550,150\\n0.4,610,90\\n", "two.csv").output_tokens
    array([150.,  90.])
    """
    name = name or (Path(source).name if isinstance(source, (str, Path)) else "trace")
    text = _text(_content(source), name)
    if not text.strip():
        raise ValueError(f"{name}: the trace is empty")
    reader = read_json_trace if text.lstrip()[0] in "[{" else read_table
    return _requests(reader(text, name), name, zero_token_rows)


def require_within_context(requests: Requests, max_context_tokens: float, network: str) -> None:
    """
    Refuse requests whose prompt and answer together are longer than the network's context.

    Raises
    ------
    ValueError
        Naming the first such request and how many there are.

    Examples
    --------
    >>> require_within_context(Requests(None, *np.full((2, 1), 500.0), np.zeros(1)), 1024, "bert-large")
    """
    total = requests.input_tokens + requests.output_tokens
    too_long = np.flatnonzero(total > max_context_tokens)
    if too_long.size:
        raise ValueError(
            f"input_tokens + output_tokens must be at most {max_context_tokens:g}, the context of {network}, "
            f"got {total[too_long[0]]:g} at request {too_long[0] + 1} ({too_long.size} of {requests.n} requests)"
        )


def _content(source: str | Path | bytes) -> bytes:
    if isinstance(source, bytes):
        return source
    path = Path(source)
    if not path.is_file():
        raise LookupError(f"no trace file '{path}'")
    if path.stat().st_size > MAX_TRACE_BYTES:
        raise ValueError(f"{path.name} must be at most {MAX_TRACE_BYTES} B, got {path.stat().st_size}")
    return path.read_bytes()


def _text(content: bytes, name: str) -> str:
    """The text of a trace, unpacked and decoded."""
    content = unpacked(content, name, MAX_TRACE_BYTES)
    utf16 = content[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    try:
        return content.decode("utf-16" if utf16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{name} line {line}: must be UTF-8 text, got byte 0x{content[error.start]:02x} at offset {error.start}"
        ) from None


class TooManyBytesError(ValueError):
    """A file is larger than its reader takes."""


def unpacked(content: bytes, name: str, max_bytes: int = MAX_TRACE_BYTES) -> bytes:
    """
    Return the content of a file, gunzipped where it is packed and never more than `max_bytes`.

    Raises
    ------
    TooManyBytesError
        If it is larger.
    ValueError
        If the gzip file is malformed.
    """
    if content[:2] == b"\x1f\x8b":
        content = _gunzipped(content, name, max_bytes)
    if len(content) > max_bytes:
        raise TooManyBytesError(f"{name} must be at most {max_bytes} B, got {len(content)}")
    return content


def _gunzipped(content: bytes, name: str, max_bytes: int) -> bytes:
    parts, size = [], 0
    while content:
        unpacker = zlib.decompressobj(wbits=31)
        try:
            part = unpacker.decompress(content, max_bytes + 1 - size)
        except zlib.error as error:
            raise ValueError(f"{name}: malformed gzip file, {error}") from None
        size += len(part)
        parts.append(part)
        if size > max_bytes:
            raise TooManyBytesError(f"{name} must be at most {max_bytes} B unpacked, got more")
        if not unpacker.eof:
            raise ValueError(f"{name}: malformed gzip file, it ends early")
        content = unpacker.unused_data.lstrip(b"\0")
    return b"".join(parts)


def _requests(columns: TraceColumns, name: str, zero_token_rows: ZeroRows) -> Requests:
    values = dict(columns.values)
    inputs, outputs = values["input_tokens"], values["output_tokens"]
    n = len(inputs)
    arrival_s = values.get("arrival_s")
    if arrival_s is not None and np.isnan(arrival_s).all():
        arrival_s = None
    if arrival_s is not None and columns.absolute:
        arrival_s = np.round(arrival_s - arrival_s[0], 6)
    cached = values.get("cached_prefix_tokens", np.zeros(n))
    cached = np.where(np.isnan(cached), 0.0, cached)
    kept = np.ones(n, dtype=bool)
    if zero_token_rows == "drop":
        kept = ~((inputs == 0) | (outputs == 0))
        if not kept.any():
            raise ValueError(f"{name}: no row has tokens")
    rows = np.flatnonzero(kept)
    arrival_s = None if arrival_s is None else arrival_s[rows]
    broken = _broken_rule(arrival_s, inputs[rows], outputs[rows], cached[rows])
    if broken is not None:
        label = columns.labels.get(broken.field, broken.field)
        place = columns.place(int(rows[broken.row]))
        raise ValueError(f"{name} {place}, column '{label}': {broken.text} ({broken.count} of {n} rows)")
    session = values.get("session_id")
    codes = None
    if session is not None and not np.isnan(session).all():
        codes = np.where(np.isnan(session), -1.0, session)[rows].astype(np.int64)
    return Requests(arrival_s, inputs[rows], outputs[rows], cached[rows], codes, n - len(rows))


@dataclass(frozen=True)
class _BrokenRule:
    """The first value that breaks a rule: where it is, what is wrong, how many do."""

    field: str
    row: int
    text: str
    count: int


def _broken_rule(
    arrival_s: FloatArray | None, inputs: FloatArray, outputs: FloatArray, cached: FloatArray
) -> _BrokenRule | None:
    """The first broken rule of a set of requests, None where all hold."""
    found = [
        _first("input_tokens", inputs, (inputs >= 1) & (inputs <= MAX_TOKENS) & (inputs % 1 == 0), _TOKENS_RULE),
        _first("output_tokens", outputs, (outputs >= 1) & (outputs <= MAX_TOKENS) & (outputs % 1 == 0), _TOKENS_RULE),
        _first("cached_prefix_tokens", cached, (cached >= 0) & (cached % 1 == 0), "must be a whole number from 0"),
        _first("cached_prefix_tokens", cached, cached <= inputs, "must be at most input_tokens"),
    ]
    if arrival_s is not None:
        ordered = np.append(True, arrival_s[1:] >= arrival_s[:-1]) | np.isnan(arrival_s)
        positive = np.isfinite(arrival_s) & (arrival_s >= 0)
        found.append(_first("arrival_s", arrival_s, ordered, "must not be before the row above"))
        found.append(_first("arrival_s", arrival_s, positive, "must be zero or positive"))
    broken = [rule for rule in found if rule is not None]
    return min(broken, key=lambda rule: rule.row) if broken else None


_TOKENS_RULE = f"must be a whole number from 1 to {MAX_TOKENS}"


def _first(field: str, values: FloatArray, holds: NDArray[np.bool_], rule: str) -> _BrokenRule | None:
    bad = np.flatnonzero(~holds)
    if not bad.size:
        return None
    value = float(values[bad[0]])
    hint = ", as failed requests are logged: leave such rows out" if value == 0 and rule == _TOKENS_RULE else ""
    came = "an empty cell" if math.isnan(value) else f"{value:.10g}"
    return _BrokenRule(field, int(bad[0]), f"{rule}, got {came}{hint}", bad.size)


def without_arrivals(requests: Requests) -> Requests:
    """Return the same requests with their arrivals forgotten, as an offline run has them."""
    return dataclasses.replace(requests, arrival_s=None)
