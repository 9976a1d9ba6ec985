"""The filter language of the history: a closed grammar, compiled to bound SQL parameters."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import lark
import sqlalchemy as sa

from service.db.fields import FIELDS, FieldError, field

_LONGEST_FILTER = 1000
_MOST_COMPARISONS = 50
_DEEPEST = 30

FILTER_COLUMNS = tuple(FIELDS)
"""Fields a filter may name."""

_GRAMMAR = r"""
?start: either
?either: both (_OR both)*
?both: term (_AND term)*
?term: _NOT term -> negation
     | NAME OPERATOR value -> comparison
     | NAME _IN "(" value ("," value)* ")" -> membership
     | "(" either ")" -> group
?value: SIGNED_NUMBER -> number
      | ESCAPED_STRING -> text
      | TRUE -> true
      | FALSE -> false
OPERATOR: "!=" | "<=" | ">=" | "=" | "<" | ">"
_AND.2: /and\b/i
_OR.2: /or\b/i
_NOT.2: /not\b/i
_IN.2: /in\b/i
TRUE.2: /true\b/i
FALSE.2: /false\b/i
NAME: /(?!(and|or|not|in|true|false)\b)[a-z][a-z0-9_]*/
%import common.SIGNED_NUMBER
%import common.ESCAPED_STRING
%import common.WS
%ignore WS
"""

Condition = sa.ColumnElement[bool]

_OPERATORS: dict[str, Callable[[Any, Any], Condition]] = {
    "=": lambda column, value: column == value,
    "!=": lambda column, value: column != value,
    "<": lambda column, value: column < value,
    "<=": lambda column, value: column <= value,
    ">": lambda column, value: column > value,
    ">=": lambda column, value: column >= value,
}


class FilterError(ValueError):
    """The filter is not in the language, or names no known field."""


@dataclass(frozen=True)
class Filter:
    """A compiled filter: its SQL condition, the fields it names, and field -> what every match meets of it."""

    condition: Condition
    names: frozenset[str]
    required: dict[str, Condition]


def compile_filter(text: str) -> Filter:
    """
    Return the filter of a text such as `area_mm2 < 400 and tpot_p95_s <= "50 ms"`.

    A design without a value of a field meets no comparison of it, not even a negated one.

    Raises
    ------
    FilterError
        If the text is too long or too deep, malformed, names an unknown field or compares a field with a value that it
        does not hold.
    """
    if len(text) > _LONGEST_FILTER:
        raise FilterError(f"filter must have at most {_LONGEST_FILTER} characters, got {len(text)}")
    try:
        tree = _parser().parse(text)
    except lark.exceptions.UnexpectedInput as error:
        place = getattr(error, "column", -1)
        where = f"at character {place}" if place and place > 0 else "at its end"
        raise FilterError(f"filter is malformed {where}") from error
    except RecursionError as error:
        raise FilterError("filter is nested too deeply") from error
    names = _checked_names(tree)
    try:
        return Filter(cast(Condition, _ToSql().transform(tree)), names, _required(tree))
    except lark.exceptions.VisitError as error:
        raise FilterError(str(error.orig_exc)) from error


def _checked_names(tree: lark.Tree[Any]) -> frozenset[str]:
    """Fields named in a tree that is neither too deep nor too long."""
    names: list[str] = []
    for node, depth in _nodes(tree):
        if depth > _DEEPEST:
            raise FilterError(f"filter is nested too deeply: at most {_DEEPEST} levels")
        if node.data in ("comparison", "membership"):
            names.append(str(node.children[0]))
    if len(names) > _MOST_COMPARISONS:
        raise FilterError(f"filter must have at most {_MOST_COMPARISONS} comparisons, got {len(names)}")
    return frozenset(names)


def _required(tree: lark.Tree[Any]) -> dict[str, Condition]:
    """Field -> condition that every match meets, of a kind that an index of the field narrows down."""
    met: dict[str, list[Condition]] = {}
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if node.data in ("both", "group"):
            waiting += cast("list[lark.Tree[Any]]", node.children)
        elif node.data == "membership" or (node.data == "comparison" and node.children[1] != "!="):
            met.setdefault(str(node.children[0]), []).append(cast(Condition, _ToSql().transform(node)))
    return {name: sa.and_(*conditions) for name, conditions in met.items()}


def _nodes(tree: lark.Tree[Any]) -> Iterator[tuple[lark.Tree[Any], int]]:
    """Every node with its depth; without recursion, since the depth is what is checked."""
    waiting = [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        yield node, depth
        waiting += [(child, depth + 1) for child in node.children if isinstance(child, lark.Tree)]


@functools.cache
def _parser() -> lark.Lark:
    return lark.Lark(_GRAMMAR, parser="lalr")


class _ToSql(lark.Transformer[Any, Any]):
    """Turns the parsed filter into an SQL condition, bottom up."""

    def number(self, items: list[Any]) -> float:
        return float(items[0])

    def text(self, items: list[Any]) -> str:
        try:
            return str(json.loads(items[0]))
        except ValueError as error:
            raise FieldError(f"{items[0]} is no text in double quotes") from error

    def true(self, _items: list[Any]) -> bool:
        return True

    def false(self, _items: list[Any]) -> bool:
        return False

    def comparison(self, items: list[Any]) -> Condition:
        named = field(str(items[0]))
        return _OPERATORS[str(items[1])](named.column, named.value(items[2]))

    def membership(self, items: list[Any]) -> Condition:
        named = field(str(items[0]))
        return cast(Condition, named.column.in_([named.value(item) for item in items[1:]]))

    def group(self, items: list[Any]) -> Condition:
        return cast(Condition, items[0])

    def negation(self, items: list[Any]) -> Condition:
        return sa.not_(cast(Condition, items[0]))

    def both(self, items: list[Any]) -> Condition:
        return sa.and_(*items)

    def either(self, items: list[Any]) -> Condition:
        return sa.or_(*items)
