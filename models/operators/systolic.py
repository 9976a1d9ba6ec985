"""Closed-form cycles of one systolic array: the three dataflows, folds overlapped or not."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from models.checks import FloatArray, require_at_least, require_fraction
from models.hardware.design import Stationarity


def systolic_cycles(
    rows: ArrayLike,
    columns: ArrayLike,
    m: ArrayLike,
    n: ArrayLike,
    k: ArrayLike,
    stationarity: ArrayLike,
    fold_overlap_fraction: ArrayLike = 0.0,
) -> FloatArray:
    """
    Return the stall-free cycles of C[m, n] = A[m, k] B[k, n] on one rows x columns array, one word a port and cycle.

    Weight stationary loads `rows` words, streams m and skews over rows + columns - 2; output stationary streams
    k and hides the drain; input stationary is weight stationary with m and n exchanged. With fold overlap 0
    every fold pays load and skew, which is what SCALE-Sim 3.0.0 counts; with 1 they are paid once, the weights
    of the next fold being loaded while this one streams (a stream shorter than the load waits for it).

    Parameters
    ----------
    rows, columns : arrays that broadcast with the rest
        Size of the array. [1]
    m, n, k : arrays that broadcast with the rest
        Sizes of the GEMM. [1]
    stationarity : array that broadcasts with the rest
        Codes of `Stationarity`.
    fold_overlap_fraction : array that broadcasts with the rest, optional
        0 where every fold pays fill and drain, 1 where the array pays once. [1]

    Returns
    -------
    array of the broadcast shape
        Cycles. [1]

    References
    ----------
    .. [1] A. Samajdar et al., "A systematic methodology for characterizing scalability of DNN accelerators using
       SCALE-Sim", ISPASS 2020, doi:10.1109/ISPASS48437.2020.00016.

    Examples
    --------
    >>> [float(systolic_cycles(128, 128, 512, 512, 512, kind)) for kind in Stationarity]
    [12256.0, 14304.0, 14304.0]
    """
    rows, columns, m, n, k = (
        require_at_least(name, values, 1)
        for name, values in (("rows", rows), ("columns", columns), ("m", m), ("n", n), ("k", k))
    )
    overlap = require_fraction("fold_overlap_fraction", fold_overlap_fraction)
    kind = np.asarray(stationarity)
    skew = rows + columns - 2.0
    row_folds = np.ceil(np.where(kind == Stationarity.OUTPUT, m, k) / rows)
    column_folds = np.ceil(np.where(kind == Stationarity.INPUT, m, n) / columns)
    stream = np.select([kind == Stationarity.OUTPUT, kind == Stationarity.WEIGHT], [k, m], n)
    load = np.where(kind == Stationarity.OUTPUT, 0.0, rows)
    return pipelined_folds(row_folds * column_folds, stream, load, skew, overlap)


def pipelined_folds(
    folds: FloatArray, stream: FloatArray, load: FloatArray, skew: FloatArray, overlap: FloatArray
) -> FloatArray:
    """Cycles of `folds` passes: each a load, a stream and a skew, of which `overlap` hides all but the longest."""
    exposed = folds * (stream + load + skew)
    hidden = stream + (folds - 1.0) * np.maximum(stream, load) + load + skew
    return np.asarray((1.0 - overlap) * exposed + overlap * hidden, dtype=np.float64)
