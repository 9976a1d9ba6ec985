"""Main memory and second tier by kind: bandwidth, capacity, energy, interface area and edge, price, carbon."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike

from models.checks import FloatArray, IntArray, require_known, require_non_negative
from models.hardware.design import DesignBatch, MemoryKind, SecondTier
from models.tables import DATA, read_rows
from models.technology import MEMORY, Technology, default_technology

FIRST_SET_CODE = 16
"""From here on a code stands for a set of kinds, see `cheapest_of`."""


@functools.cache
def memory_table() -> Mapping[str, FloatArray]:
    """
    Return the columns of `memory_kinds.csv`, each an array indexed by the code of `MemoryKind`.

    Returns
    -------
    mapping of column to array of shape (n_kinds,)
        Units are in the column names; all per stack (64 data pins for kinds that are no HBM).
    """
    return _indexed_columns("memory_kinds.csv", "kind", [kind.name.lower() for kind in MemoryKind])


@functools.cache
def second_tier_table() -> Mapping[str, FloatArray]:
    """Return the columns of `second_tiers.csv`, each an array of shape (n_tiers,) indexed by `SecondTier`."""
    return _indexed_columns("second_tiers.csv", "tier", [tier.name.lower() for tier in SecondTier])


@functools.cache
def memory_aliases() -> Mapping[str, MemoryKind]:
    """Return the words of data sheets, lower case, and the kind each is read as."""
    aliases = {}
    for row in read_rows(DATA / "memory_kinds.csv"):
        for word in row["aliases"].split(";"):
            aliases[word] = MemoryKind[row["kind"].upper()]
    return MappingProxyType(aliases)


def memory_kind(name: str) -> MemoryKind:
    """
    Return the kind of that name.

    Examples
    --------
    >>> memory_kind("hbm3e").name
    'HBM3E'
    """
    return MemoryKind[require_known("memory kind", name.lower(), (k.name.lower() for k in MemoryKind)).upper()]


def second_tier(name: str) -> SecondTier:
    """Return the second tier of that name."""
    return SecondTier[require_known("second tier", name.lower(), (t.name.lower() for t in SecondTier)).upper()]


def memory_bandwidth_bytes_per_s(kind: ArrayLike, stacks: ArrayLike) -> FloatArray:
    """
    Return the peak bandwidth of `stacks` stacks of `kind`.

    Parameters
    ----------
    kind : array of shape (n_designs,)
        Codes of `MemoryKind`.
    stacks : array of shape (n_designs,)
        HBM stacks, or pairs of 32-bit channels. [1]

    Returns
    -------
    array of shape (n_designs,)
        Nominal bandwidth of the interface, both directions shared. [B/s]

    Examples
    --------
    >>> float(memory_bandwidth_bytes_per_s(MemoryKind.HBM3, 5) / 1e9)
    4096.0
    """
    return np.asarray(memory_column("bandwidth_bytes_per_s", kind) * require_non_negative("memory_stacks", stacks, ""))


def memory_capacity_bytes(kind: ArrayLike, stacks: ArrayLike) -> FloatArray:
    """Return the capacity of `stacks` stacks of `kind`, shape (n_designs,) [B]."""
    return np.asarray(memory_column("capacity_bytes", kind) * require_non_negative("memory_stacks", stacks, ""))


def cheapest_of(kinds: Iterable[float]) -> int:
    """
    Return the code of a kind that is as cheap as any of `kinds` in every respect.

    No memory is: it stands for boxes of designs that differ in kind, in the cost batch of a bound.
    """
    return FIRST_SET_CODE + sum(1 << int(kind) for kind in set(kinds))


def memory_column(column: str, kind: ArrayLike, technology: Technology | None = None) -> FloatArray:
    """
    Return one column of `memory_kinds.csv` at each code of `kind`, shape (n_designs,), unit of the column.

    At a code of `cheapest_of` the least of its kinds. With a technology, prices, energies, carbon and interface sizes
    are its own.
    """
    values = memory_table()[column]
    if technology is not None and technology is not default_technology():
        own = technology.constants[MEMORY]
        values = np.array([own.get(f"{column}:{k.name.lower()}", v) for k, v in zip(MemoryKind, values, strict=True)])
    codes = _codes("memory_kind", kind, FIRST_SET_CODE + (1 << len(MemoryKind)))
    found = _with_sets(tuple(values.tolist()))[codes]
    if np.isnan(found).any():
        raise ValueError(f"memory_kind must be a code below {len(MemoryKind)}, got {codes[np.isnan(found)].flat[0]}")
    return np.asarray(found)


@functools.lru_cache(maxsize=256)
def _with_sets(values: tuple[float, ...]) -> FloatArray:
    """Values of all kinds by code, those of `cheapest_of` after them; NaN where a code stands for nothing."""
    held = np.arange(1 << len(values))[:, None] >> np.arange(len(values)) & 1 > 0
    least = np.where(held, np.array(values), np.inf).min(axis=1)
    least[0] = np.nan
    return np.concatenate([values, np.full(FIRST_SET_CODE - len(values), np.nan), least])


def second_tier_column(column: str, tier: ArrayLike) -> FloatArray:
    """Return one column of `second_tiers.csv` at each code of `tier`, shape (n_designs,), unit of the column."""
    return np.asarray(second_tier_table()[column][_codes("second_tier", tier, len(SecondTier))])


def second_tier_bandwidth_bytes_per_s(designs: DesignBatch) -> FloatArray:
    """Return the bandwidth of the second tier, 0 without one, shape (n_designs,) [B/s]."""
    return second_tier_column("bandwidth_bytes_per_s", designs.second_tier)


def second_tier_capacity_bytes(designs: DesignBatch) -> FloatArray:
    """Return the capacity of the second tier, 0 without one, shape (n_designs,) [B]."""
    return second_tier_column("capacity_bytes", designs.second_tier)


def _codes(name: str, values: ArrayLike, n_known: int) -> IntArray:
    codes = require_non_negative(name, values, "code").astype(np.int64)
    if codes.size and codes.max() >= n_known:
        raise ValueError(f"{name} must be a code below {n_known}, got {codes.max()}")
    return codes


def _indexed_columns(file: str, key: str, names: list[str]) -> Mapping[str, FloatArray]:
    by_name = {row[key]: row for row in read_rows(DATA / file)}
    missing = [name for name in names if not by_name.get(name, {}).get("source")]
    if missing:
        raise ValueError(f"{file} lacks a row with a source for {', '.join(missing)}")
    columns = [c for c in by_name[names[0]] if c not in (key, "source", "aliases")]
    table = {column: np.array([float(by_name[name][column]) for name in names]) for column in columns}
    for values in table.values():
        values.setflags(write=False)
    return MappingProxyType(table)
