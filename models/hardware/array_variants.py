"""
Sets of array organisations of which every matrix product may take the best: the relaxation behind a bound.

No chip has such arrays. A box of designs that differ in stationarity and grouping is no slower than a design that
picks the best of them for every product, so this bounds them all at the price of one.
"""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np

from models.checks import IntArray
from models.hardware.design import DesignBatch, take

Variant = tuple[float, float]
"""Stationarity code and number of groups inside one array."""


class _Sets:
    """Known sets by code, 0 being a design's own organisation; a set keeps its code as long as the process lives."""

    def __init__(self) -> None:
        self.members: list[frozenset[Variant]] = [frozenset()]
        self.code: dict[frozenset[Variant], int] = {frozenset(): 0}

    def code_of(self, variants: frozenset[Variant]) -> int:
        if variants not in self.code:
            self.code[variants] = len(self.members)
            self.members.append(variants)
        return self.code[variants]


@functools.cache
def _sets() -> _Sets:
    return _Sets()


def variants_code(variants: frozenset[Variant]) -> int:
    """Return the code of a set for `DesignBatch.array_variants`; that of one variant or none is 0."""
    return _sets().code_of(variants) if len(variants) > 1 else 0


def organisations(designs: DesignBatch) -> tuple[IntArray, DesignBatch]:
    """
    Return designs of one organisation each that together stand for `designs`.

    Returns
    -------
    first : array of shape (n_designs,)
        Where those of each design begin.
    members : DesignBatch
        Of n_members entries, design by design; without sets `designs` as they are.
    """
    codes = designs.array_variants.astype(np.int64)
    if not codes.any():
        return np.arange(designs.n_designs), designs
    sets = {code: sorted(_sets().members[code]) for code in np.unique(codes)}
    size = np.array([max(len(sets[code]), 1) for code in codes])
    rows = np.repeat(np.arange(designs.n_designs), size)
    members = take(designs, rows)
    own = [sets[code] or [(designs.stationarity[i], designs.array_groups[i])] for i, code in enumerate(codes)]
    pairs = np.array([pair for each in own for pair in each])
    single = replace(members, stationarity=pairs[:, 0], array_groups=pairs[:, 1], array_variants=np.zeros(len(rows)))
    return np.cumsum(size) - size, single
