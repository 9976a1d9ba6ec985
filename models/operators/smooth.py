"""Smooth maxima: resources that overlap in part cost a little more than the slower of the two."""

from __future__ import annotations

import numpy as np

from models.checks import FloatArray


def smooth_maximum(first: FloatArray, second: FloatArray, exponent: float) -> FloatArray:
    """
    Return (first^p + second^p)^(1/p): never below the larger, at most 2^(1/p) times it.

    Exponents 1, 2 and 3 avoid the general power, which costs ten times as much as the rest of a GEMM's time.

    Parameters
    ----------
    first, second : arrays of any shapes that broadcast
        Non-negative values of one unit.
    exponent : float
        1 adds (no overlap), large values take the maximum (full overlap). [1]

    Returns
    -------
    array of the broadcast shape
        Monotone in both arguments, of their unit.

    Examples
    --------
    >>> float(smooth_maximum(np.array(3.0), np.array(4.0), 2.0))
    5.0
    """
    if exponent == 1.0:
        return first + second
    if exponent == 2.0:
        return np.sqrt(first * first + second * second)
    if exponent == 3.0:
        return np.cbrt(first * first * first + second * second * second)
    larger = np.maximum(first, second)
    share = np.divide(np.minimum(first, second), larger, out=np.zeros_like(larger), where=larger > 0)
    return np.asarray(larger * (1.0 + share**exponent) ** (1.0 / exponent), dtype=np.float64)


def smooth_excess(ratio: FloatArray) -> FloatArray:
    """
    Return a smooth max(1, x)^(1/3), that is (1 + x^6)^(1/18), of any shape [1].

    The cube root makes power that exceeds its cap by x lower the clock by x^(1/3), as power grows with the
    cube of clock where voltage follows.

    Examples
    --------
    >>> round(float(smooth_excess(np.array(8.0))), 3)
    2.0
    """
    square = ratio * ratio
    return np.asarray((1.0 + square * square * square) ** (1.0 / 18.0), dtype=np.float64)
