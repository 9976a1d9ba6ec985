"""Named request workloads: benchmark profiles and the traces that come with chipfit."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType

from models.checks import require_known
from models.tables import DATA, read_rows
from models.workload.parametric import LengthFormula, RequestFormula
from models.workload.requests import Requests, read_trace

TRACES = DATA / "traces"
_SUFFIX = ".csv.gz"


@functools.cache
def profiles() -> Mapping[str, RequestFormula]:
    """
    Return the length profiles of public benchmarks by name, from `models/data/traces/profiles.csv`.

    Examples
    --------
    >>> profiles()["llmperf-550-150"].output.std_tokens
    80.0
    """
    found: dict[str, RequestFormula] = {}
    for row in read_rows(TRACES / "profiles.csv"):
        found[row["preset"]] = RequestFormula(
            LengthFormula(float(row["input_mean_tokens"]), float(row["input_std_tokens"])),
            LengthFormula(float(row["output_mean_tokens"]), float(row["output_std_tokens"])),
            prefix_hit_fraction=float(row["prefix_hit_fraction"]),
        )
    return MappingProxyType(found)


def trace_names() -> list[str]:
    """Return the names of the traces that come with chipfit."""
    return sorted(path.name.removesuffix(_SUFFIX) for path in TRACES.glob(f"*{_SUFFIX}"))


def preset_names() -> list[str]:
    """Return the names of all presets: profiles and traces."""
    return [*sorted(profiles()), *trace_names()]


def preset(name: str) -> RequestFormula | Requests:
    """
    Return a preset by name: a profile as a formula, a trace as its requests.

    Raises
    ------
    UnknownNameError
        Naming the nearest known preset.

    Examples
    --------
    >>> preset("llmperf-550-150-readme").output.std_tokens
    10.0
    """
    require_known("preset", name, preset_names())
    return profiles()[name] if name in profiles() else shipped_trace(name)


@functools.cache
def shipped_trace(name: str) -> Requests:
    """
    Return the requests of a trace that comes with chipfit, by name or by file name.

    Raises
    ------
    UnknownNameError
        Naming the nearest known trace.

    Examples
    --------
    >>> shipped_trace("azure2023_conv.csv").n
    19366
    """
    stem = name.removesuffix(".gz").removesuffix(".csv")
    require_known("trace", stem, trace_names())
    return read_trace(TRACES / f"{stem}{_SUFFIX}", f"{stem}.csv")
