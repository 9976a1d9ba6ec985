"""Which array rate stands in for one that a machine lacks, and what its operands need before they can use it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike

from models.checks import BoolArray, FloatArray, IntArray
from models.precision.formats import FORMATS, RATE_CLASSES, Format

CLASS_CHAINS: Mapping[str, tuple[str, ...]] = MappingProxyType({f.rate_class: f.classes for f in FORMATS.values()})
"""Array rate -> rates whose operands contain all of its own, itself first, then ever wider ones."""

MIXED_CLASSES = ("fp4", "fp6")
"""Block-scaled operands that an array takes beside wider ones where it runs their own class too."""

MIXING_CLASSES = ("fp6", "fp8")
"""Rates at which such mixtures run."""

NO_CLASS = -1
"""Code of a stored form that no operand port takes as it is."""


def common_classes(first: Format, second: Format) -> tuple[str, ...]:
    """Array rates that contain both formats, narrowest first: an operation is promoted along them."""
    return tuple(name for name in first.classes if name in second.classes)


def class_code(name: str) -> int:
    """Position of a class in `RATE_CLASSES`, `NO_CLASS` for no name."""
    return RATE_CLASSES.index(name) if name else NO_CLASS


def promoted_classes(rates: FloatArray) -> IntArray:
    """
    Return the class in which each class is computed: the fastest native one that contains it, the narrowest on a tie.

    Parameters
    ----------
    rates : array of shape (n_designs, n_classes)
        Rate of each of `RATE_CLASSES` over bf16; 0 where not native. [1]

    Returns
    -------
    array of shape (n_designs, n_classes)
        Codes of `RATE_CLASSES`. A class that no native one contains is its own, at rate 0.

    Examples
    --------
    An array of bf16 and fp8 computes fp4 operands in fp8 and int8 operands in bf16.

    >>> rates = np.array([[float(name in ("bf16", "fp8")) for name in RATE_CLASSES]])
    >>> computed = promoted_classes(rates)[0]
    >>> [RATE_CLASSES[computed[class_code(name)]] for name in ("fp4", "int8")]
    ['fp8', 'bf16']
    """
    chains = [np.array([class_code(each) for each in CLASS_CHAINS[name]]) for name in RATE_CLASSES]
    return np.stack([chain[np.argmax(rates[:, chain], axis=1)] for chain in chains], axis=1)


def needs_widening(
    native_class: ArrayLike, rate_class: ArrayLike, computed: ArrayLike, runs_rate_class: ArrayLike
) -> BoolArray:
    """
    Return where a stored operand must be widened by the vector lanes before the array takes it.

    It need not where it is computed in the class whose port takes it as it is, nor where a block-scaled 4- or 6-bit
    operand meets a wider one in an array that runs the class of both.

    Parameters
    ----------
    native_class, rate_class : arrays that broadcast
        Codes of `Format.native_class` (`NO_CLASS` where empty) and of `Format.rate_class`.
    computed : array
        Code of the class that runs the operation.
    runs_rate_class : array of bool
        Whether the array runs `rate_class` natively.

    Returns
    -------
    array of bool of the broadcast shape
    """
    own = np.asarray(computed) == np.asarray(native_class)
    small = _among(rate_class, MIXED_CLASSES) & _among(computed, MIXING_CLASSES)
    return np.asarray(~(own | (small & np.asarray(runs_rate_class))))


def contains(wide: str, narrow: str) -> bool:
    """Whether every operand of the class `narrow` is one of the class `wide` too."""
    return wide in CLASS_CHAINS[narrow]


def _among(codes: ArrayLike, names: tuple[str, ...]) -> BoolArray:
    """Whether codes are those of some classes."""
    values = np.asarray(codes)
    return np.asarray(functools.reduce(np.logical_or, (values == class_code(name) for name in names)))
