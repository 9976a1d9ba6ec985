"""
Sets of array organisations of which every matrix product may take the best: the relaxation behind a bound.

No chip has such arrays. A box of designs that differ in stationarity and grouping is no slower than a design that
picks the best of them for every product, so this bounds them all at the price of one.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
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


def organisations(designs: DesignBatch) -> Iterator[tuple[IntArray, DesignBatch]]:
    """
    Yield designs of one organisation each that together stand for `designs`.

    Yields
    ------
    rows : array of shape (n_some,)
        Positions in `designs`.
    some : DesignBatch
        Those designs with one of their organisations; without sets, `designs` as they are.
    """
    for code in np.unique(designs.array_variants).astype(np.int64):
        rows = np.flatnonzero(designs.array_variants == code)
        some = designs if len(rows) == designs.n_designs else take(designs, rows)
        if not code:
            yield rows, some
        for stationarity, groups in sorted(_sets().members[code]):
            own = np.zeros(len(rows))
            yield rows, replace(some, stationarity=own + stationarity, array_groups=own + groups, array_variants=own)
