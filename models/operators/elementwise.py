"""Work of the vector lanes: norms, rotary embedding, activations, residual additions, gathers, softmax, conversions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from models import tables
from models.checks import FloatArray, require_known
from models.hardware.design import DesignBatch
from models.operators.axes import per_design, size_arrays
from models.operators.smooth import smooth_maximum

Constants = Mapping[str, float]

LANES_REFERENCE = 128.0
"""Vector lanes per core for which the constants in cycles are stated."""


@dataclass(frozen=True)
class ElementwiseOperator:
    """How often an operator reads and writes one element of its output, when nothing is fused."""

    name: str
    reads: float
    writes: float
    overlap_exponent: float = 2.0
    """1 where a row is reduced before it is written, so that arithmetic and traffic follow each other."""


ELEMENTWISE: dict[str, ElementwiseOperator] = {
    operator.name: operator
    for operator in (
        ElementwiseOperator("norm", 1, 1, overlap_exponent=1.0),
        ElementwiseOperator("layer_norm", 1, 1, overlap_exponent=1.0),
        ElementwiseOperator("rope", 1, 1),
        ElementwiseOperator("activation", 2, 1),
        ElementwiseOperator("residual", 2, 1),
        ElementwiseOperator("embedding", 1, 1),
        ElementwiseOperator("softmax", 1, 1, overlap_exponent=1.0),
        ElementwiseOperator("router", 1, 1),
        ElementwiseOperator("quantise", 1, 1),
        ElementwiseOperator("dequantise", 1, 1),
    )
}


def elementwise_time_s(
    designs: DesignBatch,
    op: str,
    elements: ArrayLike,
    traffic_bytes: ArrayLike,
    *,
    rows: ArrayLike = 1.0,
    start_s: ArrayLike | None = None,
    constants: Constants | None = None,
) -> FloatArray:
    """
    Return the time of one elementwise or row-wise kernel on one chip.

    The cores process elements at a rate of their own, of which a share is issue and does not grow with the lanes up to
    128; a core with more issues to each 128 of them at once, as the wide units of systolic chips do;
    the traffic crosses main memory unless it fits the shared buffer; both overlap softly.

    Parameters
    ----------
    designs : DesignBatch
        Of n_designs designs.
    op : str
        A key of `ELEMENTWISE`.
    elements : array broadcastable to (n_shapes,) or (n_designs, n_shapes)
        Output elements: tokens x width.
    traffic_bytes : array, as `elements`
        All reads and writes. [B]
    rows : array, as `elements`
        Rows (tokens) that a row-wise operator treats one by one.
    start_s : scalar or array of shape (n_designs,), optional
        Start of the kernel; the fitted one when left out, 0 where it is fused into a neighbour. [s]
    constants : mapping, optional
        Instead of `models/data/constants/elementwise.csv`.

    Returns
    -------
    array of shape (n_designs, n_shapes)
        [s]

    Raises
    ------
    UnknownNameError
        If `op` is no key of `ELEMENTWISE`.

    Examples
    --------
    >>> from models.hardware.design import reference_design
    >>> time_s = elementwise_time_s(reference_design(), "norm", 4096 * 8192, 2 * 2 * 4096 * 8192)
    >>> time_s.shape
    (1, 1)
    """
    require_known("elementwise operator", op, ELEMENTWISE)
    c = tables.constants("elementwise") if constants is None else constants
    count, traffic, n_rows = size_arrays(elements, traffic_bytes, rows)
    issue = c["issue_fraction"]
    ratio = LANES_REFERENCE / per_design(designs.vector_lanes_per_core, count)
    wide = np.minimum(ratio, 1.0)
    lanes = issue * wide + (1.0 - issue) * ratio
    cycles = c[f"{op}_cycles_per_element"] * lanes * count + c[f"{op}_cycles_per_row"] * wide * n_rows
    core_s = cycles / (per_design(designs.n_cores, count) * per_design(designs.clock_hz, count))
    resident = resident_fraction(designs, traffic, c)
    memory_s = (
        traffic
        * (1.0 - resident * (1.0 - 1.0 / c["l2_rate_ratio"]))
        / (per_design(designs.memory_bandwidth_bytes_per_s, count) * c["memory_efficiency_fraction"])
    )
    start = per_design(c[f"{op}_start_s"] if start_s is None else start_s, count)
    return np.asarray(start + smooth_maximum(core_s, memory_s, ELEMENTWISE[op].overlap_exponent))


def resident_fraction(designs: DesignBatch, traffic_bytes: ArrayLike, constants: Constants | None = None) -> FloatArray:
    """
    Return the share of a kernel's traffic that the shared buffer keeps from main memory.

    Falls smoothly from 1 where the traffic is far smaller than the buffer.

    Parameters
    ----------
    designs : DesignBatch
        Of n_designs designs.
    traffic_bytes : array broadcastable to (n_shapes,) or (n_designs, n_shapes)
        All reads and writes. [B]
    constants : mapping, optional
        Instead of `models/data/constants/elementwise.csv`.

    Returns
    -------
    array of shape (n_designs, n_shapes)
        [1]
    """
    c = tables.constants("elementwise") if constants is None else constants
    (traffic,) = size_arrays(traffic_bytes)
    kept_bytes = c["l2_share_fraction"] * per_design(designs.l2_bytes, traffic) + 1.0
    return np.asarray(1.0 / (1.0 + np.square(traffic / kept_bytes)))
