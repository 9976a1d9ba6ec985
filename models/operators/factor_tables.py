"""Rows of factors that few design parameters decide, filled on demand and shared by all designs of a search."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from models.checks import FloatArray, IntArray
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


class FactorTables:
    """
    Keeps rows of shape (width,), each keyed by the values of some design parameters.

    The rows of a table are built by the function of the caller, which must depend on nothing but those parameters.
    With `keeps_runs` the last run of each program on a single design is kept too, so that its alternatives are looked
    up where they are asked for again.
    """

    def __init__(self, *, keeps_runs: bool = False) -> None:
        self.kept_runs: dict[Hashable, KeptRun] | None = {} if keeps_runs else None
        self._position: dict[Hashable, dict[bytes, int]] = {}
        self._rows: dict[Hashable, FloatArray] = {}

    def rows(
        self,
        name: Hashable,
        designs: DesignBatch,
        fields: Sequence[str],
        build: Callable[[DesignBatch, FloatArray], FloatArray],
        *,
        rate_ratio: FloatArray | float = 1.0,
        columns: IntArray | None = None,
    ) -> FloatArray:
        """
        Return one row per design, shape (n_designs, width), building those whose key is new.

        `rate_ratio` of shape (n_designs,) is part of the key beside `fields` and is passed to `build`. With
        `columns` of shape (n_designs, n_wanted) only those entries of each row are returned.
        """
        rate = np.broadcast_to(rate_ratio, (designs.n_designs,))
        packed = _keys(designs, fields, rate)
        position = self._position.setdefault(name, {})
        missing = {key: i for i, key in enumerate(packed) if key not in position}
        if missing:
            new = list(missing.values())
            same = new == list(range(designs.n_designs))
            built = build(designs if same else take(designs, new), rate[new])
            self._append(name, list(missing), built, packed)
        position = self._position[name]
        index = np.array([position[key] for key in packed])
        rows = self._rows[name]
        return np.asarray(rows[index] if columns is None else rows[index[:, None], columns])

    def holds(
        self, name: Hashable, designs: DesignBatch, fields: Sequence[str], *, rate_ratio: FloatArray | float = 1.0
    ) -> bool:
        """Whether a table has the rows of all designs already."""
        position = self._position.get(name, {})
        return bool(position) and all(key in position for key in _keys(designs, fields, rate_ratio))

    def _append(self, name: Hashable, keys: list[bytes], built: FloatArray, wanted: list[bytes]) -> None:
        """Store new rows, growing by doubling; a table that is full keeps only what is wanted now."""
        position, rows = self._position[name], self._rows.get(name)
        if rows is not None and (len(position) + len(keys)) * rows.shape[1] * 8 > MAX_TABLE_BYTES:
            kept = [key for key in dict.fromkeys(wanted) if key in position]
            rows = rows[[position[key] for key in kept]] if kept else None
            position = {key: i for i, key in enumerate(kept)}
            self._position[name] = position
        used, needed = len(position), len(position) + len(keys)
        if rows is None or needed > len(rows):
            grown = np.empty((max(64, 2 * needed), built.shape[1]))
            if rows is not None:
                grown[:used] = rows[:used]
            rows = grown
        rows[used:needed] = built
        position.update(zip(keys, range(used, needed), strict=True))
        self._rows[name] = rows


def _keys(designs: DesignBatch, fields: Sequence[str], rate_ratio: FloatArray | float) -> list[bytes]:
    """Values of some fields and the rate of each design, as one key."""
    rate = np.broadcast_to(rate_ratio, (designs.n_designs,))
    keys = np.stack([*[getattr(designs, field) for field in fields], rate], axis=1)
    packed: list[bytes] = keys.view(np.dtype((np.void, keys.itemsize * keys.shape[1])))[:, 0].tolist()
    return packed
