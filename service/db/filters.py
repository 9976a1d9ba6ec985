"""The filter language of the history: a closed grammar, compiled to bound SQL parameters."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

import lark
import sqlalchemy as sa

from models.checks import require_known
from service.db.tables import NUMBER_COLUMNS, TEXT_COLUMNS, designs

_LONGEST_FILTER = 1000
_MOST_COMPARISONS = 50

FILTER_COLUMNS = ("study_id", "number", "feasible", *NUMBER_COLUMNS, *TEXT_COLUMNS)
"""Fields a filter may name."""

_GRAMMAR = r"""
?start: either
?either: both ("OR" both)*
?both: term ("AND" term)*
?term: "NOT" term -> negation
     | NAME OPERATOR value -> comparison
     | NAME "IN" "(" value ("," value)* ")" -> membership
     | "(" either ")"
?value: SIGNED_NUMBER -> number
      | ESCAPED_STRING -> text
      | "true" -> true
      | "false" -> false
OPERATOR: "!=" | "<=" | ">=" | "=" | "<" | ">"
NAME: /(?!(AND|OR|NOT|IN|true|false)\b)[a-z][a-z0-9_]*/
%import common.SIGNED_NUMBER
%import common.ESCAPED_STRING
%import common.WS
%ignore WS
"""

Column = sa.ColumnElement[Any]
Condition = sa.ColumnElement[bool]

_OPERATORS: dict[str, Callable[[Column, Any], Condition]] = {
    "=": lambda column, value: column == value,
    "!=": lambda column, value: column != value,
    "<": lambda column, value: column < value,
    "<=": lambda column, value: column <= value,
    ">": lambda column, value: column > value,
    ">=": lambda column, value: column >= value,
}


class FilterError(ValueError):
    """The filter is not in the language, or names no known field."""


def compile_filter(text: str) -> Condition:
    """
    Return the SQL condition of a filter such as `area_mm2 < 600 AND memory_kind IN ("HBM3", "HBM3E")`.

    Raises
    ------
    FilterError
        If the text is too long, malformed, names an unknown field or compares a field with the wrong kind of value.
    """
    if len(text) > _LONGEST_FILTER:
        raise FilterError(f"filter must have at most {_LONGEST_FILTER} characters, got {len(text)}")
    try:
        tree = _parser().parse(text)
        if sum(1 for _ in tree.find_pred(lambda node: node.data in ("comparison", "membership"))) > _MOST_COMPARISONS:
            raise FilterError(f"filter must have at most {_MOST_COMPARISONS} comparisons")
        return cast(Condition, _ToSql().transform(tree))
    except lark.exceptions.VisitError as error:
        raise FilterError(str(error.orig_exc)) from error
    except lark.exceptions.UnexpectedInput as error:
        place = getattr(error, "column", -1)
        where = f"at character {place}" if place and place > 0 else "at its end"
        raise FilterError(f"filter is malformed {where}") from error
    except RecursionError as error:
        raise FilterError("filter is nested too deeply") from error


@functools.cache
def _parser() -> lark.Lark:
    return lark.Lark(_GRAMMAR, parser="lalr")


class _ToSql(lark.Transformer[Any, Any]):
    """Turns the parsed filter into an SQL condition, bottom up."""

    def number(self, items: list[Any]) -> float:
        return float(items[0])

    def text(self, items: list[Any]) -> str:
        return str(items[0])[1:-1]

    def true(self, _items: list[Any]) -> bool:
        return True

    def false(self, _items: list[Any]) -> bool:
        return False

    def comparison(self, items: list[Any]) -> Condition:
        column = _column(str(items[0]), [items[2]])
        compared: Condition = _OPERATORS[str(items[1])](column, items[2])
        return compared

    def membership(self, items: list[Any]) -> Condition:
        return cast(Condition, _column(str(items[0]), items[1:]).in_(items[1:]))

    def negation(self, items: list[Any]) -> Condition:
        return sa.not_(cast(Condition, items[0]))

    def both(self, items: list[Any]) -> Condition:
        return sa.and_(*items)

    def either(self, items: list[Any]) -> Condition:
        return sa.or_(*items)


def _column(name: str, values: list[Any]) -> Column:
    """The column of a field, checked to hold the kind of the values."""
    column = designs.c[require_known("field", name, FILTER_COLUMNS)]
    kind = {"study_id": str, "feasible": bool}.get(name, str if name in TEXT_COLUMNS else float)
    for value in values:
        if type(value) is not kind:
            raise FilterError(f"{name} is compared with {value!r} but holds {_KIND_NAMES[kind]}")
    return column


_KIND_NAMES = {str: "text in double quotes", bool: "true or false", float: "a number"}
