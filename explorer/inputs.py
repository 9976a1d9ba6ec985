"""What a study names and does not hold: files beside it, or workloads and networks that were uploaded before."""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from explorer.document import StudyError
from explorer.files import MAX_BYTES, parse_json, parse_yaml
from models.architectures import Network, load_network, network_names, read_network
from models.tables import parse_rows
from models.technology import COLUMNS, technology_with
from models.workload.presets import shipped_trace
from models.workload.requests import MAX_TRACE_BYTES, Requests, ZeroRows, read_trace

WORKLOAD_ID = re.compile(r"wl_[0-9a-f]{32}")
"""Form of the id of an uploaded workload; its digits are a hash of the content."""

NAMING_KEYS = ("trace", "replay", "file", "network", "workload")
"""Fields of a document whose text may name an input."""


@dataclass(frozen=True)
class InputFile:
    """Content under the name that messages call it by; `zero_token_rows` says how its requests are to be read."""

    name: str
    content: bytes
    zero_token_rows: ZeroRows = "refuse"


@dataclass(frozen=True)
class NamedConfig:
    """Configuration of a network under the name it has in results."""

    name: str
    config: Mapping[str, Any]


@dataclass(frozen=True)
class Uploads:
    """Workload files and networks that callers sent, by what a document calls them."""

    files: Mapping[str, InputFile] = field(default_factory=dict)
    networks: Mapping[str, NamedConfig] = field(default_factory=dict)


Inputs = Path | Uploads | None
"""Where what a study names lies: a folder, uploads, or nowhere, so that only what is shipped is known."""


def open_input(name: str, inputs: Inputs) -> InputFile | None:
    """Return the file of a name, None where there is none."""
    if isinstance(inputs, Uploads):
        return inputs.files.get(name)
    if inputs is None or not (inputs / name).is_file():
        return None
    path = inputs / name
    if path.stat().st_size > MAX_TRACE_BYTES:
        raise ValueError(f"{name} must be at most {MAX_TRACE_BYTES} B, got {path.stat().st_size}")
    return InputFile(path.name, path.read_bytes())


def required_input(name: str, inputs: Inputs) -> InputFile:
    """Return the file of a name, or raise LookupError."""
    found = open_input(name, inputs)
    if found is None:
        raise LookupError(f"unknown file '{name}': neither beside the study nor an uploaded workload")
    return found


def named_trace(name: str, inputs: Inputs, zero_token_rows: ZeroRows | None = None) -> Requests:
    """Return the requests of a trace: a file beside the study, an upload, or one that comes with chipfit."""
    found = open_input(name, inputs)
    if found is None:
        return shipped_trace(name)
    return _parsed(found, zero_token_rows or found.zero_token_rows)


@functools.lru_cache(maxsize=2)
def _parsed(file: InputFile, zero_token_rows: ZeroRows) -> Requests:
    """A study looks at its trace several times: for moments, statistics and replays."""
    return read_trace(file.content, file.name, zero_token_rows=zero_token_rows)


def named_network(document: str | Mapping[str, Any], inputs: Inputs) -> Network:
    """Return the network that a scenario carries or names: of the catalogue, uploaded, or a JSON file beside it."""
    if isinstance(document, Mapping):
        return read_network(document, "uploaded")
    found = network_config(document, inputs)
    return load_network(document) if found is None else read_network(found.config, found.name)


def network_config(name: str, inputs: Inputs) -> NamedConfig | None:
    """Return the configuration of a network that is not of the catalogue, None where there is none of that name."""
    if name in network_names():
        return None
    if isinstance(inputs, Uploads):
        return inputs.networks.get(name)
    found = open_input(name, inputs) if name.endswith(".json") else None
    if found is None:
        return None
    config = read_plain_document(found)
    if not isinstance(config, dict):
        raise ValueError(f"{name} must hold a JSON object")
    return NamedConfig(name.removesuffix(".json"), config)


def read_plain_document(file: InputFile) -> Any:
    """Return the parsed JSON or YAML of a file."""
    try:
        text = file.content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file.name} must be UTF-8 text, byte {error.start} is not") from None
    if len(text) > MAX_BYTES:
        raise ValueError(f"{file.name} must be at most {MAX_BYTES} bytes as a document, got {len(text)}")
    return parse_json(text, file.name) if text.lstrip()[:1] in ("{", "[") else parse_yaml(text, file.name)


def with_named_workload(document: Any, inputs: Inputs) -> Any:
    """Return a study whose workload and technology overlay are written out where it only named them."""
    document = _with_named_overlay(document, inputs)
    name = document.get("workload") if isinstance(document, dict) else None
    found = open_input(name, inputs) if isinstance(name, str) else None
    if found is None:
        return document
    try:
        stored = read_plain_document(found)
    except StudyError as error:
        raise StudyError([{"pointer": "/workload", "detail": each["detail"]} for each in error.errors]) from None
    inner = stored.get("workload", stored) if isinstance(stored, dict) else stored
    return {**document, "workload": inner}


def _with_named_overlay(document: Any, inputs: Inputs) -> Any:
    """A study whose overlay is a list of rows, checked with file and row in the message."""
    technology = document.get("technology") if isinstance(document, dict) else None
    name = technology.get("overlay") if isinstance(technology, dict) else None
    if not isinstance(name, str):
        return document
    try:
        text = required_input(name, inputs).content.decode("utf-8-sig")
        rows = parse_rows(text)
        technology_with(rows, name)
    except (ValueError, LookupError) as error:
        raise StudyError([{"pointer": "/technology/overlay", "detail": str(error)}]) from None
    kept = [{column: row[column] for column in COLUMNS if (row.get(column) or "").strip()} for row in rows]
    return {**document, "technology": dict(technology or {}) | {"overlay": kept}}


@dataclass(frozen=True)
class NamedInput:
    """A field of a document whose text may name an input, and how its requests are to be read."""

    key: str
    name: str
    zero_token_rows: ZeroRows | None = None


def names_in(document: Any) -> Iterator[NamedInput]:
    """Yield everything in a document that may name an input."""
    if isinstance(document, dict):
        for key, value in document.items():
            if key in NAMING_KEYS and isinstance(value, str):
                yield NamedInput(key, value, document.get("zero_token_rows"))
            else:
                yield from names_in(value)
    elif isinstance(document, list):
        for value in document:
            yield from names_in(value)


def inputs_of(document: Mapping[str, Any], inputs: Inputs) -> list[dict[str, Any]]:
    """
    Return what a checked study reads from outside, each with the hash of its content.

    A trace is hashed by its requests, so that the same ones in another format are the same work.
    """
    named = dict.fromkeys(names_in(document))
    return [described for each in named if (described := _described(each, inputs))]


def _described(named: NamedInput, inputs: Inputs) -> dict[str, Any]:
    if named.key == "trace":
        trace = named_trace(named.name, inputs, named.zero_token_rows)
        counts = {"n_requests": trace.n, "n_dropped_rows": trace.n_dropped_rows}
        return {"name": named.name, "kind": "trace", "sha256": requests_sha256(trace), **counts}
    network = network_config(named.name, inputs) if named.key == "network" else None
    if network is not None:
        return {"name": named.name, "kind": "network", "sha256": document_sha256([network.name, network.config])}
    file = open_input(named.name, inputs) if named.key in ("file", "network") else None
    if file is None:
        return {}
    return {"name": named.name, "kind": "table", "sha256": hashlib.sha256(file.content).hexdigest()}


def requests_sha256(requests: Requests) -> str:
    """Hash of observed requests, whatever file they came from."""
    digest = hashlib.sha256()
    for name in ("arrival_s", "input_tokens", "output_tokens", "cached_prefix_tokens", "session_id"):
        values = getattr(requests, name)
        digest.update(name.encode() if values is None else np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()


def document_sha256(document: Any) -> str:
    """Hash of a JSON document, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
