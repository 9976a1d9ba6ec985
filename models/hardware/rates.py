"""At which rate the arrays of a design run each class of number formats, and what replaces a class they lack."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from models.checks import BoolArray, FloatArray, IntArray
from models.hardware.design import DesignBatch
from models.precision.formats import RATE_CLASSES
from models.precision.promotion import class_code, promoted_classes

__all__ = ["OPERAND_BYTES", "RATE_CLASSES", "class_code", "native_signature", "rate_ratios"]

OPERAND_BYTES = np.array([4.0, 4.0, 2.0, 1.0, 1.0, 0.75, 0.5])
"""Bytes of one operand of each class between shared buffer and array; a format's definition, so not a constant."""


@dataclass(frozen=True)
class NativeClasses:
    """What the arrays of designs with one set of native classes do; arrays of shape (n_classes,)."""

    promoted: IntArray
    """Class that each class is computed in, as codes of `RATE_CLASSES`."""
    native: BoolArray


def rate_ratios(designs: DesignBatch) -> FloatArray:
    """Rate of each class over bf16, shape (n_designs, n_classes) [1]; 0 where not native."""
    return np.stack([getattr(designs, f"{name}_rate_ratio") for name in RATE_CLASSES], axis=1)


def native_signature(designs: DesignBatch) -> tuple[list[NativeClasses], IntArray]:
    """
    Return the distinct sets of native classes and which of them each design has.

    Returns
    -------
    signatures : list of NativeClasses
        One for each distinct set. Without any class that contains another, that one is computed in the widest native.
    inverse : array of shape (n_designs,)
        Signature of each design.
    """
    rates = rate_ratios(designs)
    if (rates == rates[:1]).all():
        return [_classes_of(tuple(rates[0]))], np.zeros(designs.n_designs, dtype=np.int64)
    native, promoted = _native_and_promoted(rates)
    n = len(RATE_CLASSES)
    digits = np.concatenate([promoted, native], axis=1).T
    _, first, inverse = np.unique(
        np.ravel_multi_index(tuple(digits), (n,) * n + (2,) * n), return_index=True, return_inverse=True
    )
    return [NativeClasses(promoted[row], native[row]) for row in first], inverse


@functools.lru_cache(maxsize=256)
def _classes_of(rates: tuple[float, ...]) -> NativeClasses:
    """Classes of designs that all have these rates."""
    native, promoted = _native_and_promoted(np.array([rates]))
    return NativeClasses(promoted[0], native[0])


def _native_and_promoted(rates: FloatArray) -> tuple[BoolArray, IntArray]:
    """Whether each class is native, and the class it is computed in, shape (n_designs, n_classes)."""
    native, promoted = rates > 0, promoted_classes(rates)
    computable = np.take_along_axis(native, promoted, axis=1)
    return native, np.where(computable, promoted, np.argmax(native, axis=1)[:, None])
