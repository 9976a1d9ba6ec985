"""Axes of operator times: one column per design against any number of size axes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from models.checks import FloatArray


def size_arrays(*sizes: ArrayLike) -> tuple[FloatArray, ...]:
    """Return the sizes as float64 of one shape, at least (n_shapes,); a leading design axis is allowed."""
    arrays = [np.atleast_1d(np.asarray(values, dtype=np.float64)) for values in sizes]
    if all(array.shape == arrays[0].shape for array in arrays):
        return tuple(arrays)
    return tuple(np.broadcast_arrays(*arrays))


def per_design(values: ArrayLike, like: FloatArray) -> FloatArray:
    """Return `values` of shape (n_designs,) with unit axes added, so that they broadcast against sizes like `like`."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        return array
    return array.reshape(array.shape + (1,) * max(1, like.ndim - 1))
