"""Reads GGUF files: the header with our own bounded parser, the block formats with the optional `gguf` package."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float32Array = NDArray[np.float32]
_ByteArray = NDArray[np.uint8]

_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_MAX_ENTRIES = 100_000
"""More tensors or fields than any decoder has; a header that claims more is not believed."""
_PLAIN = {0: "<f4", 1: "<f2", 30: "<u2"}
"""Tensor types that need no block arithmetic: fp32, fp16 and bf16."""
_LONG_ROWS = 16
"""Rows that the block reader converts in one go; a tensor is handed over as this many long ones."""


@dataclass(frozen=True)
class _Entry:
    """Where one tensor lies, with its shape as (n_out, n_in)."""

    kind: int
    shape: tuple[int, ...]
    offset_bytes: int


class _Cursor:
    """Reads numbers and strings of a header one after the other, never beyond the end of the file."""

    def __init__(self, raw: _ByteArray, name: str) -> None:
        self.raw = raw
        self.name = name
        self.position = 0

    def take(self, n_bytes: int) -> bytes:
        """Next `n_bytes` bytes."""
        end = self.position + n_bytes
        if end > len(self.raw):
            raise ValueError(f"{self.name} is truncated: the header asks for byte {end} of {len(self.raw)}")
        piece = self.raw[self.position : end].tobytes()
        self.position = end
        return piece

    def number(self, code: str) -> Any:
        """Next number of a `struct` code."""
        return struct.unpack(code, self.take(struct.calcsize(code)))[0]

    def text(self) -> str:
        """Next string."""
        return self.take(self.number("<Q")).decode("utf-8", errors="replace")

    def value(self, kind: int) -> Any:
        """Next value of a GGUF type; arrays nest no deeper than one level, as in every file llama.cpp writes."""
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            if kind not in _SCALARS:
                raise ValueError(f"{self.name}: unknown field type {kind}")
            return self.number(_SCALARS[kind])
        inner, length = self.number("<I"), self.number("<Q")
        if inner == _STRING:
            self._require_room(8 * length)
            return [self.text() for _ in range(length)]
        if inner not in _SCALARS:
            raise ValueError(f"{self.name}: unknown array type {inner}")
        width = struct.calcsize(_SCALARS[inner])
        self._require_room(width * length)
        return np.frombuffer(self.take(width * length), dtype=_SCALARS[inner].replace("<B", "<u1").replace("<b", "<i1"))

    def _require_room(self, n_bytes: int) -> None:
        if n_bytes > len(self.raw) - self.position:
            raise ValueError(f"{self.name} is truncated: an array of {n_bytes} bytes does not fit the file")


def gguf_tensors(
    path: Path,
) -> tuple[Mapping[str, Any], Mapping[str, tuple[int, ...]], Callable[[str], Float32Array]]:
    """
    Return the fields of a GGUF file, the shapes of its tensors as (n_out, n_in), and a function that loads one.

    Raises
    ------
    ValueError
        If the file is truncated, its header lies, or the `gguf` package is missing.
    """
    size = path.stat().st_size
    raw: _ByteArray = np.memmap(path, dtype=np.uint8, mode="r") if size else np.zeros(0, dtype=np.uint8)
    cursor = _Cursor(raw, path.name)
    if cursor.take(4) != b"GGUF" or (version := cursor.number("<I")) not in (2, 3):
        raise ValueError(f"{path.name} must be a GGUF file of version 2 or 3")
    n_tensors, n_fields = cursor.number("<Q"), cursor.number("<Q")
    if max(n_tensors, n_fields) > _MAX_ENTRIES:
        raise ValueError(f"{path.name}: header of version {version} claims {n_tensors} tensors and {n_fields} fields")
    fields = {cursor.text(): cursor.value(cursor.number("<I")) for _ in range(n_fields)}
    entries = {cursor.text(): _read_entry(cursor) for _ in range(n_tensors)}
    alignment = fields.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 1 <= alignment <= 65536:
        raise ValueError(f"{path.name}: general.alignment must be a small whole number, got {alignment!r}")
    base = -(-cursor.position // alignment) * alignment

    def load(name: str) -> Float32Array:
        return _load(raw, base, entries[name], f"{path.name}: tensor {name[:80]}")

    return fields, {name: entry.shape for name, entry in entries.items()}, load


def _read_entry(cursor: _Cursor) -> _Entry:
    n_dimensions = cursor.number("<I")
    if n_dimensions > 4:
        raise ValueError(f"{cursor.name}: a tensor claims {n_dimensions} dimensions")
    shape = tuple(cursor.number("<Q") for _ in range(n_dimensions))
    kind, offset_bytes = cursor.number("<I"), cursor.number("<Q")
    return _Entry(kind, tuple(reversed(shape)), offset_bytes)


def _load(raw: _ByteArray, base: int, entry: _Entry, where: str) -> Float32Array:
    count = math.prod(entry.shape)
    n_bytes = _stored_bytes(entry, count, where)
    start = base + entry.offset_bytes
    if start + n_bytes > len(raw):
        raise ValueError(f"{where} must lie inside the file of {len(raw)} bytes, got {start} to {start + n_bytes}")
    data = raw[start : start + n_bytes]
    if entry.kind not in _PLAIN:
        return _from_blocks(data, entry)
    values = data.view(_PLAIN[entry.kind])
    if entry.kind == 30:
        values = (values.astype(np.uint32) << 16).view(np.float32)
    return np.asarray(values.reshape(entry.shape), dtype=np.float32)


def _stored_bytes(entry: _Entry, count: int, where: str) -> int:
    """Bytes of a tensor, from its type and shape."""
    if entry.kind in _PLAIN:
        return count * np.dtype(_PLAIN[entry.kind]).itemsize
    try:
        from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
    except ImportError:
        raise ValueError("block formats of a .gguf file need the Python package 'gguf' (extra 'weights')") from None
    try:
        block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(entry.kind)]
    except (ValueError, KeyError):
        raise ValueError(f"{where} has the unknown type {entry.kind}") from None
    if not entry.shape or entry.shape[-1] % block:
        raise ValueError(f"{where} of shape {entry.shape} must have rows of whole blocks of {block}")
    return int(count // block * block_bytes)


def _from_blocks(data: _ByteArray, entry: _Entry) -> Float32Array:
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
    from gguf.quants import dequantize

    kind = GGMLQuantizationType(entry.kind)
    n_blocks = len(data) // GGML_QUANT_SIZES[kind][1]
    rows = next(rows for rows in range(_LONG_ROWS, 0, -1) if n_blocks % rows == 0)
    try:
        values = dequantize(np.array(data).reshape(rows, -1), kind)
    except NotImplementedError:  # how gguf says that it has no conversion for a block type
        raise ValueError(f"tensors of type {kind.name} cannot be converted") from None
    return np.asarray(values, dtype=np.float32).reshape(entry.shape)
