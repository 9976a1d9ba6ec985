"""The bound that no operator beats: compute or memory, whichever is slower."""

from __future__ import annotations

import numpy as np

from models.checks import FloatArray, require_positive


def roofline_time_s(
    work_flop: FloatArray,
    traffic_bytes: FloatArray,
    peak_flop_per_s: FloatArray,
    memory_bandwidth_bytes_per_s: FloatArray,
) -> FloatArray:
    """
    Return the shortest time in which an operator can finish on one chip.

    Compute and memory traffic overlap fully, so the slower of the two sets the
    time. Launch overhead and array edge loss are added by the caller.

    Parameters
    ----------
    work_flop : array of shape (n_shapes,)
        Multiplications plus additions, so a GEMM counts 2·m·n·k. [FLOP]
    traffic_bytes : array of shape (n_shapes,)
        Bytes moved between main memory and chip. [B]
    peak_flop_per_s : array of shape (n_designs,) or (n_designs, n_shapes)
        Dense peak rate of the matrix unit at the operand format. [FLOP/s]
    memory_bandwidth_bytes_per_s : array of shape (n_designs,)
        Peak main-memory bandwidth. [B/s]

    Returns
    -------
    array of shape (n_designs, n_shapes)
        Lower bound on time. [s]

    Raises
    ------
    ValueError
        If a rate is zero or negative.

    References
    ----------
    .. [1] S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful
       visual performance model for multicore architectures", Commun. ACM 52(4),
       2009, doi:10.1145/1498765.1498785.

    Examples
    --------
    A square GEMM of side 4096 in bf16 on 197 TFLOP/s and 820 GB/s is compute bound.

    >>> m = n = k = 4096
    >>> time_s = roofline_time_s(
    ...     np.array([2.0 * m * n * k]),
    ...     np.array([2.0 * (m * k + k * n + m * n)]),
    ...     np.array([1.97e14]),
    ...     np.array([8.2e11]),
    ... )
    >>> print(f"{time_s[0, 0] * 1e6:.0f} us")
    698 us
    """
    peak = require_positive("peak_flop_per_s", peak_flop_per_s, "FLOP/s")
    bandwidth = require_positive("memory_bandwidth_bytes_per_s", memory_bandwidth_bytes_per_s, "B/s")
    compute_time_s = work_flop / (peak if peak.ndim == 2 else peak[:, None])
    memory_time_s = traffic_bytes / bandwidth[:, None]
    return np.maximum(compute_time_s, memory_time_s)
