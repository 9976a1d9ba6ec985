"""Convolution network -> the program of one batch of images, over precision mixes and lowerings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from models.architectures.convnet import ConvLayers
from models.checks import BoolArray, FloatArray, IntArray, require_at_least
from models.operators.step import Term, step_program, term
from models.throughput.scenario import ConvnetScenario
from models.throughput.work import CompiledWork, linear_formats

LOWERINGS = ("direct", "im2col")

CHANNEL_BYTES = 16.0
"""Direct convolution pads the channels of a pixel to whole vectors of this size, as its loads and arrays take them."""

FIRST, INNER, LAST = "patch_embedding", "ffn_down", "output_head"
"""Modules of a mix that the first layer, those between and the classifier follow."""


@dataclass(frozen=True)
class _Layer:
    """One distinct layer: sizes in elements, of one image."""

    module: str
    in_pixels: float
    out_pixels: float
    in_c: float
    out_c: float
    window: float
    """Positions of the kernel."""
    groups: float
    is_matrix: bool
    """A 1 x 1 layer of stride 1, whose input is the matrix of im2col already."""
    pooled: bool
    """A pooling follows."""

    @property
    def group_channels(self) -> float:
        return self.in_c / self.groups

    @property
    def weights(self) -> float:
        return self.window * self.group_channels * self.out_c

    @property
    def expanded(self) -> float:
        """Elements of the matrix that im2col writes."""
        return 0.0 if self.is_matrix else self.out_pixels * self.window * self.in_c

    @property
    def on_lanes(self) -> bool:
        """One channel a group gives the arrays no depth: the direct form runs on the vector lanes."""
        return self.group_channels == 1 and self.groups > 1


def compile_convnet(scenario: ConvnetScenario) -> CompiledWork:
    """
    Return the program of one batch of images on one chip; chips work on batches of their own.

    Alternatives are mixes times lowerings. Direct convolution gathers its windows on the way to the arrays, with
    channels padded to whole vectors; layers of one channel a group (depthwise) run on the vector lanes. im2col
    writes the windows out and reads them back. Activations are one operation of a lane on each output on its way
    out; poolings are kernels of their own. No kernel of im2col or pooling was measured: they take the rates of others
    that compute addresses as they move data (rope) or stream it (residual). Residual additions are not in layer
    tables and are left out.

    Parameters
    ----------
    scenario : ConvnetScenario

    Raises
    ------
    ValueError
        If no mix is allowed or the batch is below 1.
    """
    if not scenario.mixes:
        raise ValueError("a convnet scenario needs at least one precision mix")
    images = float(require_at_least("batch", scenario.batch, 1, "images"))
    layers = Counter(_distinct(scenario.layers))
    lowerings = LOWERINGS if scenario.lowering is None else (scenario.lowering,)
    choices = _alternatives(len(scenario.mixes), lowerings)
    frame = _Frame(scenario, images, *choices, sum(x.weights * c for x, c in layers.items()))
    terms = [each for i, (layer, count) in enumerate(layers.items()) for each in frame.terms(i, layer, float(count))]
    return CompiledWork(
        scenario,
        "convnet",
        step_program(terms, overhead_s=0.0, calibration=scenario.calibration),
        units_per_step=images * scenario.system.n_chips,
        tokens_per_unit=1.0,
        idle_ratio=np.zeros(len(frame.mix)),
        memory_bytes=frame.memory_bytes(list(layers), list(layers.values())),
        choices={"mix": frame.mix, "im2col": frame.im2col.astype(np.int64)},
        window_key=frame.mix,
    )


def distinct_layers(layers: ConvLayers) -> list[tuple[str, int]]:
    """
    Return the distinct layers in the order of a program's terms: name of the first of each, and how often it occurs.

    Examples
    --------
    >>> from models.architectures.convnet import load_convnet
    >>> len(distinct_layers(load_convnet("resnet-50"))) < len(load_convnet("resnet-50").names)
    True
    """
    each = list(_distinct(layers))
    first: dict[_Layer, str] = {}
    for layer, name in zip(each, layers.names, strict=True):
        first.setdefault(layer, name)
    counts = Counter(each)
    return [(name, counts[layer]) for layer, name in first.items()]


def _alternatives(n_mixes: int, lowerings: Sequence[str]) -> tuple[IntArray, BoolArray]:
    """Mix of each alternative, and whether it is lowered by im2col; mix slowest."""
    is_im2col = np.array([lowering == "im2col" for lowering in lowerings])
    return np.repeat(np.arange(n_mixes), len(lowerings)), np.tile(is_im2col, n_mixes)


def _distinct(layers: ConvLayers) -> Iterator[_Layer]:
    n = len(layers.names)
    pooled = np.append(layers.in_h[1:] < layers.out_h[:-1], False)
    matrix = (layers.kernel_h * layers.kernel_w == 1) & (layers.stride == 1) & (layers.padding == 0)
    for i in range(n):
        module = FIRST if i == 0 else LAST if i == n - 1 and n > 1 else INNER
        yield _Layer(
            module,
            float(layers.in_h[i] * layers.in_w[i]),
            float(layers.out_h[i] * layers.out_w[i]),
            float(layers.in_c[i]),
            float(layers.out_c[i]),
            float(layers.kernel_h[i] * layers.kernel_w[i]),
            float(layers.groups[i]),
            bool(matrix[i]),
            bool(pooled[i]),
        )


@dataclass(frozen=True)
class _Frame:
    """The alternatives, and what every layer needs of them."""

    scenario: ConvnetScenario
    images: float
    mix: IntArray
    im2col: BoolArray
    all_weights: float

    def terms(self, position: int, layer: _Layer, count: float) -> Iterator[Term]:
        """Operators of one distinct layer, which occurs `count` times."""
        formats = linear_formats(self.scenario.mixes, layer.module)
        activation = formats.activation_bytes[self.mix]
        multiplied = np.where(self.im2col, count, 0.0) if layer.on_lanes else np.full(len(self.mix), count)
        vector = CHANNEL_BYTES / formats.code_bytes[self.mix]
        padded = np.ceil(layer.group_channels / vector) * vector
        depth = layer.window * np.where(self.im2col | layer.is_matrix, layer.group_channels, padded)
        rows = self.images * layer.out_pixels
        windows = rows * layer.window
        read = np.where(self.im2col, windows, np.minimum(self.images * layer.in_pixels, windows))
        yield term(
            f"convolution_{position}", "gemm", layer.module, multiplied,
            m=rows, n=layer.out_c / layer.groups, k=depth,
            weight_bytes=formats.weight_bytes[self.mix],
            input_bytes=activation * read * layer.group_channels / (rows * depth),
            output_bytes=activation,
            rate_class=formats.rate_class[self.mix],
            weight_native=formats.weight_native[self.mix],
            weight_class=formats.weight_class[self.mix],
            dequant_ops=formats.dequant_ops[self.mix],
            instances=layer.groups,
            copies=self.all_weights / layer.weights,
            useful_fraction=layer.window * layer.group_channels / depth,
        )  # fmt: skip
        outputs = rows * layer.out_c
        yield term(f"activation_{position}", "epilogue", "relu", count, elements=np.full(len(self.mix), outputs))
        yield from self._moving_terms(position, layer, count, activation)

    def _moving_terms(self, position: int, layer: _Layer, count: float, activation: FloatArray) -> Iterator[Term]:
        """Kernels beside the GEMM: depthwise on the lanes, the expansion of im2col, pooling."""
        inputs = self.images * layer.in_pixels * layer.in_c
        outputs = self.images * layer.out_pixels * layer.out_c
        if layer.on_lanes:
            on_lanes = np.where(self.im2col, 0.0, count)
            yield term(
                f"depthwise_{position}", "vector", "residual", on_lanes,
                elements=outputs, bytes_moved=activation * (inputs + outputs), rows=1.0,
            )  # fmt: skip
            macs = np.full(len(self.mix), outputs * layer.window)
            yield term(f"depthwise_macs_{position}", "epilogue", "multiply_add", on_lanes, elements=macs)
        if layer.expanded:
            expanded = self.images * layer.expanded
            yield term(
                f"im2col_{position}", "vector", "rope", np.where(self.im2col, count, 0.0),
                elements=expanded, bytes_moved=activation * (inputs + expanded), rows=1.0,
            )  # fmt: skip
        if layer.pooled:
            yield term(
                f"pooling_{position}", "vector", "residual", count,
                elements=outputs, bytes_moved=activation * outputs, rows=1.0,
            )  # fmt: skip

    def memory_bytes(self, layers: list[_Layer], counts: list[int]) -> FloatArray:
        """Weights of all layers, and input, expansion and output of the largest [B]."""
        weights, largest = np.zeros(len(self.mix)), np.zeros(len(self.mix))
        for layer, count in zip(layers, counts, strict=True):
            formats = linear_formats(self.scenario.mixes, layer.module)
            weights += count * layer.weights * formats.weight_bytes[self.mix]
            held = layer.in_pixels * layer.in_c + layer.out_pixels * layer.out_c + layer.expanded * self.im2col
            largest = np.maximum(largest, self.images * held * formats.activation_bytes[self.mix])
        return weights + largest
