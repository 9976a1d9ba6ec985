"""Typed, bounded access to the keys of a network configuration; what nobody has read is reported by its path."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from typing import Any

from models.tables import DATA, read_rows

SIZE_LIMIT = 2**24
"""Largest width, vocabulary or count that is taken as meant; above it a configuration is refused."""

LAYER_LIMIT = 2**9
"""Largest number of layers of one stack."""

CONTEXT_LIMIT = 2**31
"""Longest context [tokens]."""


class Fields:
    """
    The keys of one JSON object, read by name and type, with the path that errors name.

    Reading marks a key as understood; `require_all_understood` then names the first key that changes the shape and
    was not read. A `null` counts as a key that is not there.
    """

    def __init__(self, config: Any, path: str) -> None:
        if not isinstance(config, Mapping):
            raise ValueError(f"{path} must be a JSON object, got {type(config).__name__}")
        self.config = config
        self.path = path
        self._understood: set[str] = set()

    def has(self, key: str) -> bool:
        """Whether the key is there and not null."""
        return self.raw(key) is not None

    def raw(self, key: str) -> Any:
        """Return the value as it is, null where it is missing."""
        self._understood.add(key)
        return self.config.get(key)

    def first(self, *keys: str) -> str:
        """Return the first of several spellings of one key that is there, else the first spelling."""
        present = [key for key in keys if self.has(key)]
        for key in present[1:]:
            if self.config[key] != self.config[present[0]]:
                raise ValueError(f"{self.path}.{present[0]} and {self.path}.{key} contradict each other")
        return present[0] if present else keys[0]

    def size(self, *keys: str, default: int | None = None, minimum: int = 1, maximum: int = SIZE_LIMIT) -> int:
        """Return a whole number within its bounds, under the first of `keys` that is there."""
        key = self.first(*keys)
        value = self.raw(key)
        if value is None:
            if default is None:
                raise ValueError(f"{self.path}.{key} is missing")
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"{self.path}.{key} must be a whole number, got {shown(value)}")
        if not minimum <= value <= maximum:
            raise ValueError(f"{self.path}.{key} must be between {minimum} and {maximum}, got {shown(value)}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """Return true or false."""
        value = self.raw(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise ValueError(f"{self.path}.{key} must be true or false, got {shown(value)}")
        return value

    def text(self, *keys: str, default: str | None = None) -> str:
        """Return a string, under the first of `keys` that is there."""
        key = self.first(*keys)
        value = self.raw(key)
        if value is None:
            if default is None:
                raise ValueError(f"{self.path}.{key} is missing")
            return default
        if not isinstance(value, str):
            raise ValueError(f"{self.path}.{key} must be a string, got {shown(value)}")
        return value

    def fraction(self, key: str, default: float) -> float:
        """Return a number in 0..1."""
        value = self.raw(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise ValueError(f"{self.path}.{key} must be between 0 and 1, got {shown(value)}")
        return float(value)

    def items(self, key: str, length: int | None = None) -> list[Any]:
        """Return a list, of `length` entries where that is given; empty where it is missing."""
        value = self.raw(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise ValueError(f"{self.path}.{key} must be a list, got {shown(value)}")
        if length is not None and len(value) != length:
            raise ValueError(f"{self.path}.{key} must have {length} entries, one per layer, got {len(value)}")
        return value

    def object(self, key: str) -> Fields:
        """Return the nested object."""
        return Fields(self.raw(key), f"{self.path}.{key}")

    def require_all_understood(self) -> None:
        """Raise for the first key that was not read and is not known to leave the shape alone."""
        harmless = harmless_keys()
        for key, value in self.config.items():
            if key in self._understood or value is None or str(key).startswith("_"):
                continue
            if key not in harmless:
                raise ValueError(f"{self.path}.{key} is not understood and may change the shape, got {shown(value)}")
            allowed = harmless[key]
            if allowed and _as_json(value) not in allowed:
                raise ValueError(f"{self.path}.{key} must be {' or '.join(allowed)}, got {shown(value)}")


@functools.cache
def harmless_keys() -> Mapping[str, tuple[str, ...]]:
    """Keys that leave sizes and operators alone -> the JSON values for which that holds (none: every value)."""
    rows = read_rows(DATA / "networks" / "harmless_keys.csv")
    return {row["key"]: tuple(v for v in row["only_when"].split("|") if v) for row in rows}


def shown(value: Any) -> str:
    """Return a value as an error message shows it: short, whatever it is."""
    if isinstance(value, int) and abs(value) >= 10**20:
        return f"about 10^{int(abs(value).bit_length() * math.log10(2))}"
    try:
        text = repr(value)
    except ValueError:  # a number of too many digits inside
        return f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _as_json(value: Any) -> str | None:
    try:
        return json.dumps(value, sort_keys=True)
    except (TypeError, ValueError):
        return None
