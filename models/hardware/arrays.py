"""What the shape of a matrix array asks of the memories around it: operands a cycle, accumulators, bandwidth."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from models.checks import FloatArray
from models.hardware.design import DesignBatch


def operands_per_cycle_per_array(designs: DesignBatch) -> FloatArray:
    """
    Return the operands that enter one array in a cycle when nothing stays in it.

    An m x n x k array multiplies an m x k by a k x n block, so it takes (m + n) k operands for m n k products:
    dot products (k > 1) ask for more operands and fewer accumulators than an outer product of equal rate.

    Returns
    -------
    array of shape (n_designs,)
        [1/cycle]

    Examples
    --------
    >>> from models.hardware.design import reference_design
    >>> float(operands_per_cycle_per_array(reference_design())[0])
    512.0
    """
    return (designs.array_m + designs.array_n) * designs.array_k


def accumulators_per_array(designs: DesignBatch) -> FloatArray:
    """Return the partial sums that one array holds, m n, shape (n_designs,) [1]."""
    return designs.array_m * designs.array_n


def operand_bandwidth_bytes_per_s(designs: DesignBatch, operand_bytes: float = 2.0) -> FloatArray:
    """
    Return the operand bandwidth of all arrays of the chip at the highest clock.

    Parameters
    ----------
    designs : DesignBatch
        Of n_designs entries.
    operand_bytes : float
        Size of one operand. [B]

    Returns
    -------
    array of shape (n_designs,)
        [B/s]
    """
    n_arrays = designs.arrays_per_core * designs.n_cores
    return operand_bytes * operands_per_cycle_per_array(designs) * n_arrays * designs.clock_hz


def outputs_to_fill(designs: DesignBatch) -> FloatArray:
    """
    Return the outputs of a product that give every array of the chip something to do, shape (n_designs,) [1].

    A product with fewer leaves arrays idle unless it is split along k.

    Examples
    --------
    >>> from models.hardware.design import reference_design, replace
    >>> two_large = replace(reference_design(), array_m=256, array_n=256, array_k=1, n_cores=2)
    >>> float(outputs_to_fill(two_large)[0])
    131072.0
    """
    return accumulators_per_array(designs) * designs.arrays_per_core * designs.n_cores


def tile_quantisation_fraction(
    n_units: ArrayLike, tile_rows: ArrayLike, tile_columns: ArrayLike, m: ArrayLike, n: ArrayLike
) -> FloatArray:
    """
    Return the share of the peak that remains when m x n outputs are dealt in whole tiles to equal units.

    Parameters
    ----------
    n_units : array
        Arrays or cores that each work on one tile at a time. [1]
    tile_rows, tile_columns, m, n : arrays that broadcast with it
        Outputs of a tile, and of the product. [1]

    Examples
    --------
    64 tiles on 108 cores leave 44 of them idle.

    >>> float(tile_quantisation_fraction(108, 128, 128, 1024, 1024).round(2))
    0.59
    """
    units, rows, columns, m, n = (
        np.asarray(values, dtype=np.float64) for values in (n_units, tile_rows, tile_columns, m, n)
    )
    tiles = np.ceil(m / rows) * np.ceil(n / columns)
    return np.asarray(m * n / (np.ceil(tiles / units) * units * rows * columns))
