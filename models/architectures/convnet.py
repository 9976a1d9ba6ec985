"""Convolution networks: layer tables, and their lowering to GEMMs directly or through im2col."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from models.architectures.gemm_list import GemmShapes, numbered_rows, table_name, whole_number
from models.checks import FloatArray, require_known
from models.tables import DATA

Lowering = Literal["direct", "im2col"]

CONVNETS = {"mobilenet-v2": "mobilenet_v2_layers.csv", "resnet-50": "resnet50_layers.csv"}
"""Names of the catalogue and their layer tables."""

REQUIRED = ("in_h", "in_w", "in_c", "out_c", "kernel_h", "kernel_w")
OPTIONAL = {"stride": 1, "padding": 0, "groups": 1}
CHECKED = ("out_h", "out_w", "macs")
IGNORED = ("name", "kind", "params")

SIZE_LIMIT = 2**20
LAYER_LIMIT = 10_000


@dataclass(frozen=True)
class ConvLayers:
    """
    Layers of a convolution network, arrays of shape (n_layers,) in elements; a linear layer is a 1 x 1 one.

    `parameters` are those the table states (weights and folded norms), NaN where it states none.
    """

    names: tuple[str, ...]
    in_h: FloatArray
    in_w: FloatArray
    in_c: FloatArray
    out_c: FloatArray
    kernel_h: FloatArray
    kernel_w: FloatArray
    stride: FloatArray
    padding: FloatArray
    groups: FloatArray
    parameters: FloatArray

    @property
    def out_h(self) -> FloatArray:
        """Rows of the output."""
        return np.floor((self.in_h + 2 * self.padding - self.kernel_h) / self.stride) + 1

    @property
    def out_w(self) -> FloatArray:
        """Columns of the output."""
        return np.floor((self.in_w + 2 * self.padding - self.kernel_w) / self.stride) + 1

    @property
    def macs(self) -> FloatArray:
        """Multiply-accumulates of one image."""
        window = self.in_c / self.groups * self.kernel_h * self.kernel_w
        return self.out_h * self.out_w * self.out_c * window

    @property
    def weight_elements(self) -> FloatArray:
        """Elements of the filters."""
        return self.out_c * self.in_c / self.groups * self.kernel_h * self.kernel_w


@dataclass(frozen=True)
class LoweredConvnet:
    """
    GEMMs of a batch of images with the data each moves, arrays of shape (n_layers,) in elements.

    Input, output and weights are those of the layer itself. `expansion_elements` is what im2col writes in addition
    and the GEMM then reads instead of the input: 0 for direct convolution, and for 1 x 1 layers of stride 1, whose
    input is that matrix already.
    """

    names: tuple[str, ...]
    gemms: GemmShapes
    input_elements: FloatArray
    output_elements: FloatArray
    weight_elements: FloatArray
    expansion_elements: FloatArray

    def expansion_bytes(self, bits_per_element: float) -> FloatArray:
        """Bytes that im2col moves in addition: input read, expansion written and read, less the plain read [B]."""
        return 2.0 * self.expansion_elements * bits_per_element / 8.0


def lower_convnet(
    layers: ConvLayers, batch: int, lowering: Lowering = "direct", number_format: str = "fp16"
) -> LoweredConvnet:
    """
    Return the GEMMs of one forward pass of a batch of images.

    m = batch x output pixels, n = output channels of a group, k = window of a group; groups are a batch of GEMMs.

    Parameters
    ----------
    layers : ConvLayers
        From `load_convnet` or `read_layer_table`.
    batch : int
        Images.
    lowering : {"direct", "im2col"}
        Whether the window is gathered on the fly or written out to memory first.
    number_format : str
        Format of the operands, a name of `formats.csv`.

    Examples
    --------
    >>> lowered = lower_convnet(load_convnet("resnet-50"), 1)
    >>> f"{lowered.gemms.flop.sum() / 2e9:.3f} GMAC"
    '4.089 GMAC'
    """
    require_known("lowering", lowering, ("direct", "im2col"))
    images = float(whole_number(batch, "batch"))
    window = layers.in_c / layers.groups * layers.kernel_h * layers.kernel_w
    pixels = images * layers.out_h * layers.out_w
    gemms = GemmShapes(
        m=pixels,
        n=layers.out_c / layers.groups,
        k=window,
        batch=layers.groups,
        count=np.ones_like(pixels),
        formats=(number_format,) * len(layers.names),
    )
    is_matrix = (layers.kernel_h * layers.kernel_w == 1) & (layers.stride == 1) & (layers.padding == 0)
    expanded = np.where(is_matrix | (lowering == "direct"), 0.0, pixels * window * layers.groups)
    return LoweredConvnet(
        names=layers.names,
        gemms=gemms,
        input_elements=images * layers.in_h * layers.in_w * layers.in_c,
        output_elements=pixels * layers.out_c,
        weight_elements=layers.weight_elements,
        expansion_elements=expanded,
    )


@functools.cache
def load_convnet(name: str) -> ConvLayers:
    """Return a convolution network of the catalogue by its name."""
    return read_layer_table(DATA / "networks" / CONVNETS[require_known("convolution network", name, CONVNETS)])


def read_layer_table(source: Path | bytes, name: str = "") -> ConvLayers:
    """
    Return the layers of a CSV file, or of its content.

    Columns in_h, in_w, in_c, out_c, kernel_h and kernel_w are required; stride (1), padding (0) and groups (1)
    optional; out_h, out_w and macs are checked against the others where they are given.

    Raises
    ------
    ValueError
        If a cell is missing, out of bounds or contradicts the others; the message names line and column.
    """
    name = table_name(source, name)
    rows = numbered_rows(source, name)
    if len(rows) > LAYER_LIMIT:
        raise ValueError(f"{name} must have at most {LAYER_LIMIT} layers, got {len(rows)}")
    read = [_layer(row, f"{name} line {line}") for line, row in rows]
    names = tuple(row.get("name") or f"layer {index}" for index, (_, row) in enumerate(rows))
    stated = [float(row["params"]) if row.get("params", "").isdigit() else np.nan for _, row in rows]
    columns = dict(zip((*REQUIRED, *OPTIONAL), np.asarray(read, dtype=np.float64).T, strict=True))
    layers = ConvLayers(names=names, parameters=np.asarray(stated), **columns)
    for column in CHECKED:
        _require_as_stated(name, column, rows, getattr(layers, column))
    return layers


def _layer(row: dict[str, str], place: str) -> list[int]:
    for column in row:
        if column not in (*REQUIRED, *OPTIONAL, *CHECKED, *IGNORED):
            raise ValueError(f"{place}: unknown column {column!r}")
    for column in REQUIRED:
        if not row.get(column):
            raise ValueError(f"{place}: column {column} is missing")
    sizes = {name: whole_number(row[name], f"{place}: column {name}", maximum=SIZE_LIMIT) for name in REQUIRED}
    for name, default in OPTIONAL.items():
        minimum = 0 if name == "padding" else 1
        sizes[name] = whole_number(row.get(name) or default, f"{place}: column {name}", minimum, SIZE_LIMIT)
    for column in ("in_c", "out_c"):
        if sizes[column] % sizes["groups"]:
            raise ValueError(f"{place}: column groups must divide {column} ({sizes[column]}), got {sizes['groups']}")
    for side in ("h", "w"):
        if sizes[f"kernel_{side}"] > sizes[f"in_{side}"] + 2 * sizes["padding"]:
            raise ValueError(f"{place}: column kernel_{side} must be at most the padded input in_{side}")
    return list(sizes.values())


def _require_as_stated(file: str, column: str, rows: list[tuple[int, dict[str, str]]], computed: FloatArray) -> None:
    for (line, row), value in zip(rows, computed, strict=True):
        if row.get(column) and row[column] != f"{value:.0f}":
            raise ValueError(f"{file} line {line}: column {column} must be {value:.0f}, got {row[column]}")
