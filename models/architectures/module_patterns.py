"""Patterns by which a checkpoint names modules: dotted names, names with wildcards, regular expressions."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Any

from models.architectures.fields import shown

PATTERN_LIMIT = 16384
"""Most patterns of one configuration."""

PREFIX_LIMIT = 1024
"""Most patterns that end in their only star."""

WILDCARD_LIMIT = 32
"""Most patterns that are neither plain names nor end in their only star."""

LENGTH_LIMIT = 300
"""Longest pattern [characters]."""


def require_patterns(values: Iterable[Any], path: str) -> tuple[str, ...]:
    """
    Return patterns relative to the text model, refusing what is no pattern or could take long to match.

    A regular expression may have any number of `.*` and one other repetition, none of them inside or of a group.
    """
    patterns = list(values)
    if len(patterns) > PATTERN_LIMIT:
        raise ValueError(f"{path} must name modules by at most {PATTERN_LIMIT} patterns, got {len(patterns)}")
    for pattern in patterns:
        if not isinstance(pattern, str) or len(pattern) > LENGTH_LIMIT:
            raise ValueError(f"{path}: a module must be a string of at most {LENGTH_LIMIT}, got {shown(pattern)}")
    relative = tuple(re.sub(r"^(model\.)?language_model\.(model\.)?", "", p).strip(".") for p in patterns)
    _, prefixes, others = _sorted(relative)
    if len(prefixes) > PREFIX_LIMIT or len(others) > WILDCARD_LIMIT:
        raise ValueError(
            f"{path} must have at most {WILDCARD_LIMIT} patterns with wildcards, or {PREFIX_LIMIT} at the end"
        )
    for pattern in others:
        try:
            _expression(pattern)
        except (re.error, ValueError) as error:
            raise ValueError(f"{path}: pattern {shown(pattern)} is not understood: {error}") from None
    return relative


def is_named(patterns: tuple[str, ...], name: str) -> bool:
    """Whether any pattern names the module or something that contains it."""
    plain, prefixes, others = _sorted(patterns)
    dotted = f".{name}"
    return (
        not plain.isdisjoint(_pieces(name))
        or any(prefix in dotted for prefix in prefixes)
        or any(_expression(pattern).search(name) for pattern in others)
    )


def unmatched(patterns: tuple[str, ...], names: Sequence[str]) -> tuple[str, ...]:
    """Return the patterns that name none of the modules."""
    if not patterns:
        return ()
    pieces = frozenset[str]().union(*map(_pieces, names))
    text = " ".join(f".{name}" for name in names)
    plain, _, others = _sorted(patterns)

    def matches(pattern: str) -> bool:
        if pattern in plain:
            return pattern in pieces
        if pattern in others:
            return any(_expression(pattern).search(name) for name in names)
        return f".{pattern[:-1]}" in text

    return tuple(pattern for pattern in patterns if not matches(pattern))


@functools.lru_cache(maxsize=64)
def _sorted(patterns: tuple[str, ...]) -> tuple[frozenset[str], tuple[str, ...], tuple[str, ...]]:
    """Plain names; a dot and what stands before a single final star; and all others."""
    plain = frozenset(pattern for pattern in patterns if _is_plain(pattern))
    starred = [p for p in patterns if len(p) > 1 and p.endswith("*") and _is_plain(p[:-1])]
    others = tuple(dict.fromkeys(p for p in patterns if p not in plain and p not in set(starred)))
    return plain, tuple(dict.fromkeys(f".{pattern[:-1]}" for pattern in starred)), others


def _is_plain(pattern: str) -> bool:
    return not pattern.startswith("re:") and not any(letter in pattern for letter in "*?[")


@functools.lru_cache(maxsize=65536)
def _pieces(name: str) -> frozenset[str]:
    """Runs of consecutive parts of a dotted name: what a pattern without wildcards may be."""
    parts = name.split(".")
    return frozenset(".".join(parts[i:j]) for i, j in itertools.combinations(range(len(parts) + 1), 2))


@functools.lru_cache(maxsize=1024)
def _expression(pattern: str) -> re.Pattern[str]:
    """
    Compile a pattern so that matching takes time linear in the length of the name for each `.*`.

    What follows a `.*` is taken where it fits first and never tried again (an atomic group).
    """
    if not pattern.startswith("re:"):
        wild = "".join({"*": ".*", "?": "."}.get(letter, re.escape(letter)) for letter in pattern)
        return re.compile(rf"(?<![^.]){_first_fit(wild)}(?![^.])")
    text = pattern[3:].replace(".+", "..*")
    pieces = re.split(r"(?<!\\)\.\*\??", text)
    if sum(len(re.findall(r"(?<!\\)[*+{]", piece)) for piece in pieces) > 1:
        raise ValueError("only one repetition besides .* is allowed")
    if re.search(r"\)[*+{]", text):
        raise ValueError("a group must not be repeated")
    return re.compile(rf"\A{_first_fit(text)}")


def _first_fit(text: str) -> str:
    first, *others = re.split(r"(?<!\\)\.\*\??", text)
    return first + "".join(f"(?>.*?{piece})" for piece in others)
