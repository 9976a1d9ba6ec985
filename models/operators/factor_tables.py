"""Rows of factors that few design parameters decide, filled on demand and shared by all designs of a search."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from models.checks import BoolArray, FloatArray, IntArray
from models.hardware.design import DesignBatch, take
from models.operators.activity import TermActivity

MAX_TABLE_BYTES = 400 * 2**20
"""Memory one table may take before it starts afresh [B]."""


def compress(**columns: Any) -> tuple[dict[str, FloatArray], IntArray]:
    """
    Return the distinct rows of equally long `columns` and the index that restores the originals.

    Examples
    --------
    >>> distinct, index = compress(m=[1.0, 2.0, 1.0], n=[8.0, 8.0, 8.0])
    >>> distinct["m"], index
    (array([1., 2.]), array([0, 1, 0]))
    """
    names = list(columns)
    table = np.stack(np.broadcast_arrays(*[np.asarray(columns[name], dtype=np.float64) for name in names]), axis=-1)
    distinct, index = np.unique(np.atleast_2d(table), axis=0, return_inverse=True)
    return {name: distinct[:, i] for i, name in enumerate(names)}, index.reshape(-1).astype(np.int64)


@dataclass(frozen=True)
class KeptRun:
    """A step that was run on one design: what each term did for the alternatives, or at all columns for None."""

    designs: DesignBatch
    alternatives: IntArray | None
    activities: Sequence[TermActivity]


class _Table:
    """Rows of one table by key, and which of their blocks are built."""

    def __init__(self, blocks: IntArray) -> None:
        self.members = [np.flatnonzero(blocks == each) for each in np.unique(blocks)]
        self.block_of = np.unique(blocks, return_inverse=True)[1]
        self._position: dict[bytes, int] = {}
        self.values, self.built = np.empty((0, len(blocks))), np.zeros((0, len(self.members)), dtype=bool)

    def places(self, keys: list[bytes]) -> IntArray:
        """Position of the row of each key, of new keys too; a table that is full keeps only what is wanted now."""
        if any(key not in self._position for key in keys):
            self._add(list(dict.fromkeys(keys)))
        return np.array([self._position[key] for key in keys], dtype=np.int64)

    def _add(self, keys: list[bytes]) -> None:
        new = [key for key in keys if key not in self._position]
        needed = len(self._position) + len(new)
        if needed * self.values.shape[1] * 8 > MAX_TABLE_BYTES:
            kept = [key for key in keys if key in self._position]
            places = [self._position[key] for key in kept]
            self.values, self.built = self.values[places], self.built[places]
            self._position = {key: i for i, key in enumerate(kept)}
            needed = len(keys)
        if needed > len(self.values):
            more = max(64, 2 * needed) - len(self.values)
            self.values = np.concatenate([self.values, np.empty((more, self.values.shape[1]))])
            self.built = np.concatenate([self.built, np.zeros((more, self.built.shape[1]), dtype=bool)])
        self._position.update(zip(new, range(len(self._position), needed), strict=True))


class FactorTables:
    """
    Keeps rows of shape (width,), each keyed by the values of some design parameters.

    The rows of a table are built by the function of the caller, which must depend on nothing but those parameters,
    block by block as their entries are wanted. With `keeps_runs` the last run of each program on a single design is
    kept too, so that its alternatives are looked up where they are asked for again.
    """

    def __init__(self, *, keeps_runs: bool = False) -> None:
        self.kept_runs: dict[Hashable, KeptRun] | None = {} if keeps_runs else None
        self._tables: dict[Hashable, _Table] = {}

    def rows(
        self,
        name: Hashable,
        designs: DesignBatch,
        fields: Sequence[str],
        blocks: IntArray,
        build: Callable[[DesignBatch, FloatArray, IntArray], FloatArray],
        *,
        rate_ratio: FloatArray | float = 1.0,
        columns: IntArray | None = None,
        wanted: BoolArray | None = None,
    ) -> FloatArray:
        """
        Return one row per design, shape (n_designs, width), building what is new.

        Parameters
        ----------
        name : hashable
            Of the table.
        fields : sequence of str
            Design parameters that decide a row.
        blocks : integer array of shape (width,)
            Block of each entry of a row; entries of a block are built together.
        build : callable
            Some designs, their rate ratios and rising positions in a row -> those entries, shape (n_some, n_positions).
        rate_ratio : array of shape (n_designs,), optional
            Part of the key beside `fields`.
        columns : array of shape (n_designs, n_columns), optional
            Entries of each row that are returned in place of all.
        wanted : boolean array of shape (n_designs, n_columns), optional
            Which of those are needed; the others may hold anything.
        """
        rate = np.broadcast_to(rate_ratio, (designs.n_designs,))
        if name not in self._tables:
            self._tables[name] = _Table(blocks)
        table = self._tables[name]
        places = table.places(_keys(designs, fields, rate))
        missing = ~table.built[places]
        if columns is not None and missing.any():
            missing &= _needed(table.block_of[columns], wanted, len(table.members))
        for alike in _equal_columns(missing):
            rows = np.flatnonzero(missing[:, alike[0]])
            rows = rows[np.unique(places[rows], return_index=True)[1]]
            some = designs if np.array_equal(rows, np.arange(designs.n_designs)) else take(designs, rows)
            entries = np.sort(np.concatenate([table.members[each] for each in alike]))
            table.values[np.ix_(places[rows], entries)] = build(some, rate[rows], entries)
            table.built[np.ix_(places[rows], alike)] = True
        return np.asarray(table.values[places] if columns is None else table.values[places[:, None], columns])


def _needed(blocks: IntArray, wanted: BoolArray | None, n_blocks: int) -> BoolArray:
    """Whether a design needs each block, shape (n_designs, n_blocks), from the blocks of what it asks for."""
    needed = np.zeros((len(blocks), n_blocks), dtype=bool)
    rows, columns = np.nonzero(np.ones(blocks.shape, dtype=bool) if wanted is None else wanted)
    needed[rows, blocks[rows, columns]] = True
    return needed


def _equal_columns(mask: BoolArray) -> list[list[int]]:
    """Columns of a mask that are not empty, neighbours that are equal together."""
    groups: list[list[int]] = []
    for column in np.flatnonzero(mask.any(axis=0)).tolist():
        if groups and np.array_equal(mask[:, column], mask[:, groups[-1][-1]]):
            groups[-1].append(column)
        else:
            groups.append([column])
    return groups


def _keys(designs: DesignBatch, fields: Sequence[str], rate_ratio: FloatArray | float) -> list[bytes]:
    """Values of some fields and the rate of each design, as one key."""
    rate = np.broadcast_to(rate_ratio, (designs.n_designs,))
    keys = np.stack([*[getattr(designs, field) for field in fields], rate], axis=1)
    packed: list[bytes] = keys.view(np.dtype((np.void, keys.itemsize * keys.shape[1])))[:, 0].tolist()
    return packed
