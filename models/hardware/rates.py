"""At which rate the arrays of a design run each class of number formats, and what replaces a class they lack."""

from __future__ import annotations

import numpy as np

from models.checks import FloatArray, IntArray
from models.hardware.design import DesignBatch
from models.precision.formats import RATE_CLASSES

__all__ = ["OPERAND_BYTES", "PROMOTION", "RATE_CLASSES", "class_code", "native_signature", "rate_ratios"]

OPERAND_BYTES = np.array([4.0, 4.0, 2.0, 1.0, 1.0, 0.75, 0.5])
"""Bytes of one operand of each class between shared buffer and array; a format's definition, so not a constant."""

PROMOTION = {"fp4": "fp6", "fp6": "fp8", "fp8": "bf16", "int8": "bf16", "tf32": "fp32", "bf16": "fp32"}
"""The next wider class that holds every value of a class exactly (bf16 keeps 8 bits, so int8 fits)."""


def class_code(name: str) -> int:
    """Position of a class in `RATE_CLASSES`."""
    return RATE_CLASSES.index(name)


def rate_ratios(designs: DesignBatch) -> FloatArray:
    """Rate of each class over bf16, shape (n_designs, n_classes) [1]; 0 where not native."""
    return np.stack([getattr(designs, f"{name}_rate_ratio") for name in RATE_CLASSES], axis=1)


def native_signature(designs: DesignBatch) -> tuple[IntArray, IntArray]:
    """
    Return the distinct sets of native classes and which of them each design has.

    Returns
    -------
    promoted : array of shape (n_signatures, n_classes)
        Class that each class is computed in, as codes of `RATE_CLASSES`.
    inverse : array of shape (n_designs,)
        Row of `promoted` that holds for a design.
    """
    native, inverse = np.unique(rate_ratios(designs) > 0, axis=0, return_inverse=True)
    promoted = np.array([[_promoted(code, row) for code in range(len(RATE_CLASSES))] for row in native])
    return promoted, inverse.reshape(-1)


def _promoted(code: int, native: np.ndarray) -> int:
    """Walk up the promotions until a native class is met; without any, the array computes in its widest class."""
    name = RATE_CLASSES[code]
    while not native[class_code(name)]:
        if name not in PROMOTION:
            return int(np.flatnonzero(native)[0])
        name = PROMOTION[name]
    return class_code(name)
