"""What one operator of a step does on many designs, and the conversions of operands that come with its formats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from models.checks import BoolArray, FloatArray, IntArray
from models.hardware.design import DesignBatch
from models.hardware.rates import RATE_CLASSES, NativeClasses, rate_ratios
from models.operators.attention import FOLD_EXPONENT
from models.operators.smooth import smooth_maximum
from models.precision.promotion import needs_widening

Columns = Mapping[str, FloatArray]
"""Sizes of a term: arrays of shape (n_columns,), or (n_designs, n_kept) where each design has its own."""

DEQUANTISED_ROWS = 256
"""Rows of a GEMM that share one conversion of the weights: the tallest tile that keeps them on chip."""


@dataclass(frozen=True)
class TermActivity:
    """
    What one term does, shape (n_designs or 1, n_alternatives) each.

    `compute_s` and `memory_s` are its two bounds: work at the peak, and the least traffic at the bandwidth, which is
    that of `dram_bytes` unless a kernel moves more.
    """

    time_s: FloatArray
    compute_s: FloatArray
    memory_s: FloatArray
    macs: Mapping[str, FloatArray]
    dram_bytes: FloatArray
    vector_ops: FloatArray
    link_bytes: FloatArray
    buffer_bytes: FloatArray = field(default_factory=lambda: np.zeros((1, 1)))
    """Fetched from the shared buffer over and over by the tiles of a GEMM, first time included."""
    covered_s: FloatArray | None = None
    """Beyond `time_s`, while other work runs; None for what never runs beside other work."""
    conversion_ops: FloatArray = field(default_factory=lambda: np.zeros((1, 1)))
    """Those of `vector_ops` that widen or round operands."""

    def take(self, index: IntArray) -> TermActivity:
        """What it does at some columns; a single one stands for all."""

        def pick(values: FloatArray) -> FloatArray:
            return values if values.shape[-1] == 1 else np.take(values, index, axis=-1)

        return TermActivity(
            pick(self.time_s), pick(self.compute_s), pick(self.memory_s),
            {name: pick(values) for name, values in self.macs.items()},
            pick(self.dram_bytes), pick(self.vector_ops), pick(self.link_bytes), pick(self.buffer_bytes),
            covered_s=None if self.covered_s is None else pick(self.covered_s),
            conversion_ops=pick(self.conversion_ops),
        )  # fmt: skip


def codes(column: FloatArray) -> IntArray:
    """A column of class codes as integers."""
    return column.astype(np.int64)


def widened(native: FloatArray, stored: FloatArray, computed: IntArray, classes: NativeClasses) -> BoolArray:
    """Whether operands of the port `native` and the rate `stored` are widened where `computed` runs them."""
    return needs_widening(native, stored, computed, classes.native[codes(stored)])


def class_rates(designs: DesignBatch, computed: IntArray) -> FloatArray:
    """Rate of the class of each column on each design, (n_designs, n_columns) [1]."""
    rates = rate_ratios(designs)
    return rates[:, computed] if computed.ndim == 1 else np.take_along_axis(rates, computed, axis=1)


def beside_conversions(designs: DesignBatch, time_s: FloatArray, conversions: FloatArray | float) -> FloatArray:
    """Time of an operator beside which the vector lanes convert operands [s]."""
    if not np.any(conversions):
        return time_s
    lanes_per_s = designs.vector_lanes_per_core * designs.n_cores * designs.clock_hz
    return smooth_maximum(time_s, np.atleast_2d(conversions) / lanes_per_s[:, None], FOLD_EXPONENT)


def macs_by_class(*parts: tuple[FloatArray, IntArray]) -> dict[str, FloatArray]:
    """Multiplications of several products, summed by the class that runs them, (1 or n_designs, n_columns) each."""
    found: dict[str, FloatArray] = {}
    for macs, computed in parts:
        for code in np.unique(computed):
            name = RATE_CLASSES[code]
            found[name] = found.get(name, 0.0) + macs * (computed == code)
    return found
