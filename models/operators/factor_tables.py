"""Rows of factors that few design parameters decide, filled on demand and shared by all designs of a search."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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


class Blocks:
    """
    Entries of a row that are built together; made once for all tables of a program.

    Parameters
    ----------
    block : integer array of shape (width,)
        Block of each entry, any numbers.
    """

    def __init__(self, block: IntArray) -> None:
        distinct, of_entry = np.unique(block, return_inverse=True)
        self.of_entry = of_entry.astype(np.int64)
        self.members = [np.flatnonzero(self.of_entry == each) for each in range(len(distinct))]
        self.size = np.array([len(each) for each in self.members], dtype=np.int64)
        self.offset = np.zeros(len(block), dtype=np.int64)
        for each in self.members:
            self.offset[each] = np.arange(len(each))


class _Table:
    """Blocks of the rows of one table, one after the other, and where those of each key begin."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._forget()

    def _forget(self) -> None:
        self._position: dict[bytes, int] = {}
        self._values, self._used = np.empty(64), 0
        self._start = np.full((64, len(self._blocks.members)), -1)

    def places(self, keys: list[bytes]) -> IntArray:
        """Position of each key, of new ones too."""
        position = self._position
        for key in keys:
            if key not in position:
                position[key] = len(position)
        if len(position) > len(self._start):
            self._start = _grown(self._start, len(position), -1)
        return np.array([position[key] for key in keys], dtype=np.int64)

    def missing(self, places: IntArray) -> BoolArray:
        """Whether each block is not built yet, shape (n_places, n_blocks)."""
        return np.asarray(self._start[places] < 0)

    def forget_if_full(self, missing: BoolArray) -> bool:
        """Forget everything where there is no room for so many blocks, and tell whether."""
        full = (self._used + int((missing @ self._blocks.size).sum())) * 8 > MAX_TABLE_BYTES and self._used > 0
        if full:
            self._forget()
        return full

    def fill(self, places: IntArray, blocks: list[int], build: Callable[[IntArray], FloatArray]) -> None:
        """Build some blocks at different places."""
        entries = np.concatenate([self._blocks.members[each] for each in blocks])
        order = np.argsort(entries)
        built = np.empty((len(places), len(entries)))
        built[:, order] = build(entries[order])
        end = self._used + built.size
        if end > len(self._values):
            self._values = _grown(self._values, end, np.nan)
        self._values[self._used : end] = built.reshape(-1)
        row, size = self._used + len(entries) * np.arange(len(places)), self._blocks.size[blocks]
        self._start[places[:, None], blocks] = row[:, None] + (np.cumsum(size) - size)
        self._used = end

    def entries(self, places: IntArray, columns: IntArray) -> FloatArray:
        """Entries `columns` of shape (n_places, n_columns) of the rows at some places; anything where not built."""
        begin = self._start[places[:, None], self._blocks.of_entry[columns]]
        return np.asarray(self._values[begin + self._blocks.offset[columns]])


def _grown(values: NDArray[Any], needed: int, fill: float) -> NDArray[Any]:
    """A longer array that begins with `values`."""
    grown = np.full((2 * needed, *values.shape[1:]), fill, dtype=values.dtype)
    grown[: len(values)] = values
    return grown


class FactorTables:
    """
    Keeps rows of shape (width,), each keyed by the values of some design parameters.

    The rows of a table are built by the function of the caller, which must depend on nothing but those parameters,
    block by block as their entries are wanted; several threads may ask. With `keeps_runs` the last run of each program
    on a single design is kept too, so that its alternatives are looked up where they are asked for again.
    """

    def __init__(self, *, keeps_runs: bool = False) -> None:
        self.kept_runs: dict[Hashable, KeptRun] | None = {} if keeps_runs else None
        self._tables: dict[Hashable, _Table] = {}
        self._lock = threading.Lock()

    def rows(
        self,
        name: Hashable,
        designs: DesignBatch,
        fields: Sequence[str],
        blocks: Blocks,
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
        blocks : Blocks
            Of the entries of a row.
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
        keys, width = _keys(designs, fields, rate), len(blocks.of_entry)
        some = np.broadcast_to(np.arange(width), (designs.n_designs, width)) if columns is None else columns
        with self._lock:
            if name not in self._tables:
                self._tables[name] = _Table(blocks)
            table = self._tables[name]
            places = table.places(keys)
            missing = table.missing(places)
            if missing.any():
                needed = _needed(blocks.of_entry[some], wanted, missing.shape[1])
                missing &= needed
                if table.forget_if_full(missing):
                    places, missing = table.places(keys), needed
                _fill(table, places, missing, designs, rate, build)
            return table.entries(places, some)


def _fill(
    table: _Table,
    places: IntArray,
    missing: BoolArray,
    designs: DesignBatch,
    rate: FloatArray,
    build: Callable[[DesignBatch, FloatArray, IntArray], FloatArray],
) -> None:
    """Build what is missing, each block of each row once."""
    for alike in _equal_columns(missing):
        rows = np.flatnonzero(missing[:, alike[0]])
        rows = rows[np.unique(places[rows], return_index=True)[1]]
        some = designs if np.array_equal(rows, np.arange(designs.n_designs)) else take(designs, rows)
        table.fill(places[rows], alike, functools.partial(build, some, rate[rows]))


def _needed(blocks: IntArray, wanted: BoolArray | None, n_blocks: int) -> BoolArray:
    """Whether a design needs each block, shape (n_designs, n_blocks), from the blocks of what it asks for."""
    needed = np.zeros((len(blocks), n_blocks + 1), dtype=bool)
    needed[np.arange(len(blocks))[:, None], blocks if wanted is None else np.where(wanted, blocks, n_blocks)] = True
    return needed[:, :n_blocks]


def _equal_columns(mask: BoolArray) -> list[list[int]]:
    """Columns of a mask that are not empty, neighbours that are equal together."""
    columns = np.flatnonzero(mask.any(axis=0))
    held = mask[:, columns]
    changes = np.flatnonzero((held[:, 1:] != held[:, :-1]).any(axis=0)) + 1
    return [part.tolist() for part in np.split(columns, changes) if len(part)]


def _keys(designs: DesignBatch, fields: Sequence[str], rate_ratio: FloatArray | float) -> list[bytes]:
    """Values of some fields and the rate of each design, as one key."""
    rate = np.broadcast_to(rate_ratio, (designs.n_designs,))
    keys = np.stack([*[getattr(designs, field) for field in fields], rate], axis=1)
    packed: list[bytes] = keys.view(np.dtype((np.void, keys.itemsize * keys.shape[1])))[:, 0].tolist()
    return packed
