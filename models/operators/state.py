"""Recurrent mixers (state space, linear attention): a constant state per sequence instead of a cache."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from models import tables
from models.checks import FloatArray, require_known, require_non_negative
from models.hardware.design import DesignBatch, peak_flop_per_s
from models.operators.smooth import smooth_maximum

Constants = Mapping[str, float]

STATE_OPS = ("recurrent", "chunked")
"""Token by token, as decode does; or chunks of a prompt as matrix products."""

OVERLAP_EXPONENT = 2.0
"""Smooth maximum of arithmetic and traffic, which overlap in part, as for other row-wise kernels."""

FLOP_PER_LANE_CYCLE = 2.0
"""A lane multiplies and adds once a cycle."""


def state_time_s(
    designs: DesignBatch, op: str, flop: ArrayLike, traffic_bytes: ArrayLike, *, constants: Constants | None = None
) -> tuple[FloatArray, FloatArray]:
    """
    Return the time of the recurrent states of one layer on one chip.

    A recurrence token by token multiplies each element of the state with a scalar and adds an outer product, which
    is work of the vector lanes; a prompt is cut into chunks whose products run on the arrays [1]_. Memory efficiency
    and start are those of other row-wise kernels; no measured table of these kernels is at hand, so this is a
    bound with fitted overheads, not a fit.

    Parameters
    ----------
    designs : DesignBatch
        Of n_designs designs.
    op : {"recurrent", "chunked"}
    flop, traffic_bytes : arrays of shape (n_shapes,) or (n_designs, n_shapes)
        Work, and states read and written. [FLOP], [B]
    constants : mapping, optional
        Instead of `models/data/constants/elementwise.csv`.

    Returns
    -------
    time_s, compute_s : arrays of shape (n_designs, n_shapes)
        The time, and its arithmetic part at peak rate. [s]

    References
    ----------
    .. [1] T. Dao, A. Gu, "Transformers are SSMs: Generalized Models and Efficient Algorithms Through Structured
       State Space Duality", 2024, arXiv:2405.21060, section 6.

    Examples
    --------
    >>> from models.hardware.design import reference_design
    >>> time_s, compute_s = state_time_s(reference_design(), "recurrent", [1e9], [1e8])
    >>> bool(time_s[0, 0] > compute_s[0, 0])
    True
    """
    require_known("state operator", op, STATE_OPS)
    c = tables.constants("elementwise") if constants is None else constants
    work = np.atleast_2d(require_non_negative("flop", flop, "FLOP"))
    traffic = np.atleast_2d(require_non_negative("traffic_bytes", traffic_bytes, "B"))
    lanes_flop_per_s = FLOP_PER_LANE_CYCLE * designs.vector_lanes_per_core * designs.n_cores * designs.clock_hz
    rate = peak_flop_per_s(designs) if op == "chunked" else lanes_flop_per_s
    compute_s = work / rate[:, None]
    memory_s = traffic / (designs.memory_bandwidth_bytes_per_s[:, None] * c["memory_efficiency_fraction"])
    start_s = np.where(work > 0, c["norm_start_s"], 0.0)
    return np.asarray(start_s + smooth_maximum(compute_s, memory_s, OVERLAP_EXPONENT)), np.asarray(compute_s)
