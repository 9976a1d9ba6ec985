"""Reads GGUF files with the `gguf` package, an optional dependency, after checking what it would trust."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float32Array = NDArray[np.float32]

_HEADER = struct.Struct("<4sIQQ")
_MAX_ENTRIES = 100_000
"""More tensors or fields than any decoder has; a header that claims more is not believed."""


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
    _check_header(path)
    try:
        from gguf import GGUFReader
        from gguf.quants import dequantize
    except ImportError:
        raise ValueError("reading a .gguf file needs the Python package 'gguf' (extra 'weights')") from None
    try:
        reader = GGUFReader(path)
        fields = {name: field.contents() for name, field in reader.fields.items()}
    except Exception as error:  # the reader slices a memory map by the numbers of the file: any error means these lie
        raise ValueError(f"{path.name} is truncated or damaged: {type(error).__name__}: {error}") from None
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    shapes = {name: tuple(int(n) for n in reversed(tensor.shape)) for name, tensor in tensors.items()}

    def load(name: str) -> Float32Array:
        tensor = tensors[name]
        values = np.asarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        if values.size != int(np.prod(shapes[name])):
            raise ValueError(f"{path.name}: tensor {name} holds {values.size} values, its shape says {shapes[name]}")
        return values.reshape(shapes[name])

    return fields, shapes, load


def _check_header(path: Path) -> None:
    with path.open("rb") as file:
        raw = file.read(_HEADER.size)
    if len(raw) < _HEADER.size:
        raise ValueError(f"{path.name} must be a GGUF file, but is only {len(raw)} bytes long")
    magic, version, n_tensors, n_fields = _HEADER.unpack(raw)
    if magic != b"GGUF" or version not in (2, 3):
        raise ValueError(f"{path.name} must be a GGUF file of version 2 or 3, got {magic!r} version {version}")
    if max(n_tensors, n_fields) > _MAX_ENTRIES:
        raise ValueError(f"{path.name}: header claims {n_tensors} tensors and {n_fields} fields")
