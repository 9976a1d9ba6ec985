"""Request bodies that the explorer checks: any JSON object of finite numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import Body, Depends

from service.dependencies import DatabaseOf
from service.engine import Document
from service.errors import InvalidRequestError
from service.profiles import with_stored_profiles


def _whole_document(document: Annotated[Document, Body(description="A JSON object")], database: DatabaseOf) -> Document:
    for pointer, value in _numbers(document, ""):
        if not math.isfinite(value):
            raise InvalidRequestError(pointer, f"{pointer} must be a finite number, got {value}")
    return with_stored_profiles(database, document)


def _numbers(value: Any, pointer: str) -> Iterator[tuple[str, float]]:
    """Yield every float below a value with its JSON pointer."""
    if isinstance(value, float):
        yield pointer, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _numbers(inner, f"{pointer}/{str(name).replace('~', '~0').replace('/', '~1')}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _numbers(inner, f"{pointer}/{index}")


RequestDocument = Annotated[Document, Depends(_whole_document)]
"""A JSON object of finite numbers, with the content of stored calibration profiles that it names."""
