"""Formats of request traces, recognised by their columns, and the raw columns that the readers return."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from models.checks import FloatArray

Clock = Literal["s", "ms", "ns", "datetime"]


@dataclass(frozen=True)
class TraceFormat:
    """
    Column names of one publisher: `columns` must all be there, `optional` may be.

    Both map the name of a field of `Requests` to the publisher's column; `markers` are further columns that tell the
    format from another. `clock` is the unit of the arrivals; `absolute` says that their zero means nothing, so they
    are counted from the first request, and `ordered` that rows come in order of arrival. A prefix block, one entry
    of `prefix_blocks`, is `block_tokens` long.
    """

    name: str
    columns: Mapping[str, str]
    optional: Mapping[str, str]
    clock: Clock = "s"
    absolute: bool = False
    ordered: bool = True
    markers: tuple[str, ...] = ()
    block_tokens: int = 512


FORMATS: tuple[TraceFormat, ...] = (
    TraceFormat(
        "chipfit",
        {"input_tokens": "input_tokens", "output_tokens": "output_tokens"},
        {"arrival_s": "arrival_s", "cached_prefix_tokens": "cached_prefix_tokens", "session_id": "session_id"},
    ),
    TraceFormat(
        "azure",
        {"arrival_s": "TIMESTAMP", "input_tokens": "ContextTokens", "output_tokens": "GeneratedTokens"},
        {},
        clock="datetime",
        absolute=True,
    ),
    TraceFormat(
        "burstgpt",
        {"arrival_s": "Timestamp", "input_tokens": "Request tokens", "output_tokens": "Response tokens"},
        {"session_id": "Session ID"},
    ),
    TraceFormat(
        "bailian",  # alibaba-edu/qwen-bailian-usagetraces-anon, README.md: seconds, blocks of 16 tokens
        {"arrival_s": "timestamp", "input_tokens": "input_length", "output_tokens": "output_length"},
        {"prefix_blocks": "hash_ids"},
        markers=("chat_id",),
        block_tokens=16,
    ),
    TraceFormat(
        "mooncake",  # kvcache-ai/Mooncake, FAST25-release/README.md: blocks of 512 tokens
        {"arrival_s": "timestamp", "input_tokens": "input_length", "output_tokens": "output_length"},
        {"prefix_blocks": "hash_ids"},
        clock="ms",
    ),
    TraceFormat(
        "vidur",
        {"input_tokens": "num_prefill_tokens", "output_tokens": "num_decode_tokens"},
        {"arrival_s": "arrived_at"},
    ),
    TraceFormat(
        "llmservingsim",
        {"arrival_s": "arrival_time_ns", "input_tokens": "input_toks", "output_tokens": "output_toks"},
        {},
        clock="ns",
        absolute=True,
    ),
    TraceFormat("llmperf", {"input_tokens": "number_input_tokens", "output_tokens": "number_output_tokens"}, {}),
    TraceFormat("prompt-lengths", {"input_tokens": "prompt_len", "output_tokens": "output_len"}, {}),
    TraceFormat("prompt-tokens", {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens"}, {}),
    TraceFormat(
        "benchmark-result",
        {"input_tokens": "input_lens", "output_tokens": "output_lens"},
        {"arrival_s": "start_times"},
        absolute=True,
        ordered=False,
    ),
)


@dataclass(frozen=True)
class TraceColumns:
    """
    What a reader found: one float array of shape (n,) per field, NaN where a cell is empty.

    `labels` are the publisher's column names, `place` turns a row into the words "line 7" of the file.
    """

    values: Mapping[str, FloatArray]
    labels: Mapping[str, str]
    place: Callable[[int], str]
    absolute: bool


def matched_columns(fmt: TraceFormat, found: Iterable[str]) -> dict[str, str] | None:
    """Field -> column as it is spelt in `found`, or None where a required column is missing."""
    spelling = {column.strip().lower(): column for column in found}
    if not all(column.lower() in spelling for column in (*fmt.columns.values(), *fmt.markers)):
        return None
    wanted = {**fmt.columns, **fmt.optional}
    return {field: spelling[column.lower()] for field, column in wanted.items() if column.lower() in spelling}


def recognise(found: Iterable[str], name: str) -> tuple[TraceFormat, dict[str, str]]:
    """Return the format whose required columns are all in `found`, with field -> column as it is spelt there."""
    columns = [str(column) for column in found]
    for fmt in FORMATS:
        matched = matched_columns(fmt, columns)
        if matched is not None:
            return fmt, matched
    known = "; ".join(f"{fmt.name} ({', '.join(fmt.columns.values())})" for fmt in FORMATS)
    listed = ", ".join(column.strip()[:40] for column in columns[:12]) or "none"
    raise ValueError(f"{name}: columns of no known trace format: {listed}; known formats: {known}")


SECONDS_PER_CLOCK: Mapping[str, float] = {"s": 1.0, "ms": 1e-3, "ns": 1e-9, "datetime": 1.0}
