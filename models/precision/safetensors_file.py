"""Reads safetensors files: every number of the header is checked against the file before a byte is loaded."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float32Array = NDArray[np.float32]

_MAX_HEADER_BYTES = 8_000_000
"""Room for 50,000 tensors of one file; parsed, the worst JSON takes forty bytes for each of its own, 320 MB."""

_ITEM_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
_NUMPY_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


@dataclass(frozen=True)
class _Entry:
    """Where one tensor lies."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    offset_bytes: int


def safetensors_tensors(directory: Path) -> tuple[Mapping[str, tuple[int, ...]], Callable[[str], Float32Array]]:
    """
    Return the shapes of all tensors in the `*.safetensors` files of a directory, and a function that loads one.

    Raises
    ------
    ValueError
        If there is no file, a header is truncated, too long, no JSON or contradicts itself or the file size.
    """
    files = sorted(directory.glob("*.safetensors"))
    if not files:
        raise ValueError(f"directory {directory.name} must hold a .safetensors file, found none")
    entries: dict[str, _Entry] = {}
    for file in files:
        entries |= read_header(file)
    return {name: entry.shape for name, entry in entries.items()}, lambda name: _load(entries[name])


def read_header(path: Path) -> dict[str, _Entry]:
    """Return where each tensor of one file lies."""
    size = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(8)
        if len(prefix) < 8:
            raise ValueError(f"{path.name} must be a safetensors file, but is only {size} bytes long")
        (length,) = struct.unpack("<Q", prefix)
        if length > size - 8:
            raise ValueError(f"{path.name}: header of {length} bytes does not fit the file of {size} bytes")
        if length > _MAX_HEADER_BYTES:
            raise ValueError(f"{path.name}: header must be at most {_MAX_HEADER_BYTES} bytes long, got {length}")
        header = _parse(file.read(length), path.name)
    data_bytes = size - 8 - length
    entries = {
        name: _entry(path, name, row, 8 + length, data_bytes) for name, row in header.items() if name != "__metadata__"
    }
    _require_apart(entries, path.name)
    return entries


def _parse(raw: bytes, where: str) -> dict[str, Any]:
    try:
        header = json.loads(raw.decode("utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{where}: header must be JSON: {type(error).__name__}") from None
    if not isinstance(header, dict):
        raise ValueError(f"{where}: header must be a JSON object, got {type(header).__name__}")
    return header


def _entry(path: Path, name: str, row: Any, base: int, data_bytes: int) -> _Entry:
    where = f"{path.name}: tensor {name[:80]}"
    if not isinstance(row, dict):
        raise ValueError(f"{where} must be described by an object, got {type(row).__name__}")
    dtype, shape, offsets = row.get("dtype"), row.get("shape"), row.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in _ITEM_BYTES:
        raise ValueError(f"{where} must have a dtype of {', '.join(_ITEM_BYTES)}, got {str(dtype)[:40]}")
    if not isinstance(shape, list) or not _are_counts(shape) or len(shape) > 8:
        raise ValueError(f"{where} must have a shape of whole numbers, got {str(shape)[:80]}")
    if not isinstance(offsets, list) or not _are_counts(offsets) or len(offsets) != 2:
        raise ValueError(f"{where} must have two data_offsets, got {str(offsets)[:80]}")
    begin, end = offsets
    if not begin <= end <= data_bytes:
        raise ValueError(f"{where} must lie inside the {data_bytes} bytes of data, got {begin} to {end}")
    if math.prod(shape) * _ITEM_BYTES[dtype] != end - begin:
        raise ValueError(f"{where} of shape {shape} in {dtype} does not take the {end - begin} bytes it claims")
    return _Entry(path, dtype, tuple(shape), base + begin)


def _are_counts(values: list[Any]) -> bool:
    return all(type(v) is int and 0 <= v < 2**48 for v in values)


def _require_apart(entries: Mapping[str, _Entry], where: str) -> None:
    """Refuse tensors that share bytes: a small file could otherwise claim any amount of memory."""
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].offset_bytes, math.prod(item[1].shape))):
        if entry.offset_bytes < end:
            raise ValueError(f"{where}: tensor {name[:80]} overlaps another one")
        end = entry.offset_bytes + math.prod(entry.shape) * _ITEM_BYTES[entry.dtype]


def _load(entry: _Entry) -> Float32Array:
    count = math.prod(entry.shape)
    raw = np.fromfile(entry.path, dtype=_NUMPY_TYPES[entry.dtype], count=count, offset=entry.offset_bytes)
    if raw.size != count:
        raise ValueError(f"{entry.path.name} is truncated: {raw.size} of {count} values of a tensor are there")
    if entry.dtype == "BF16":
        raw = (raw.astype(np.uint32) << 16).view(np.float32)
    return np.asarray(raw.reshape(entry.shape), dtype=np.float32)
