"""Opaque page tokens over the sort key of the last row."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar, cast

from fastapi import Query

from service.errors import InvalidRequestError

Row = TypeVar("Row")

PageSize = Annotated[int, Query(ge=1, le=500, description="Most items in one page", examples=[50])]
PageToken = Annotated[
    str | None, Query(alias="page_token", max_length=500, description="`next_page_token` of the page before")
]


def page_token(*key: Any) -> str:
    """Return the token of the page behind the row with this sort key."""
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode().rstrip("=")


def read_page_token(token: str, *kinds: type) -> list[Any]:
    """
    Return the sort key in a token.

    Raises
    ------
    InvalidRequestError
        If the token is none of ours.
    """
    try:
        key = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    except (ValueError, RecursionError):
        key = None
    if not isinstance(key, list) or [type(value) for value in key] != list(kinds) or not all(map(_is_storable, key)):
        raise InvalidRequestError("query.page_token", "page_token must be the next_page_token of an earlier answer")
    return key


def page_of(
    read: Callable[[Any, int], Sequence[Row]],
    key: Callable[[Row], tuple[Any, ...]],
    kinds: tuple[type, ...],
    page_size: int,
    token: str | None,
) -> tuple[Sequence[Row], str | None]:
    """
    Return the rows of one page and the token of the next one.

    Parameters
    ----------
    read : function
        Returns so many rows behind a sort key, or the first ones where it is None.
    key : function
        Sort key of a row, whose parts are of `kinds`.
    """
    rows = read(read_page_token(token, *kinds) if token else None, page_size + 1)
    page = rows[:page_size]
    return page, page_token(*key(page[-1])) if len(rows) > page_size else None


def newest_page(
    read: Callable[[Any, int], Sequence[Row]], page_size: int, token: str | None
) -> tuple[Sequence[Row], str | None]:
    """Return one page of a list that begins with what was created last."""
    return page_of(read, lambda row: (cast(Any, row).created_at_s, cast(Any, row).id), (float, str), page_size, token)


def query_digest(*parts: Any) -> str:
    """Short hash of a query, so that a token of another one is refused."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


def read_query_page_token(token: str, digest: str, *kinds: type) -> list[Any]:
    """
    Return the sort key in a token that carries the digest of its query first.

    Raises
    ------
    InvalidRequestError
        If the token is none of ours, or of another query.
    """
    found, *key = read_page_token(token, str, *kinds)
    if found != digest:
        raise InvalidRequestError("query.page_token", "page_token belongs to another query")
    return key


def _is_storable(value: Any) -> bool:
    """Whether a value of a token can be bound in every database."""
    if isinstance(value, str):
        return value.isascii() and (value == "" or value.isprintable())
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, int) or -(2**63) <= value < 2**63
