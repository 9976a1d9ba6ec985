"""What the shape of a matrix array asks of the memories around it: operands a cycle, accumulators, bandwidth."""

from __future__ import annotations

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
