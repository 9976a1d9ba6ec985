"""Catalogues as the API shows them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class CatalogList(BaseModel):
    """A whole catalogue; it is small, so it has one page."""

    items: list[dict[str, Any]] = Field(description="Entries with their `id`")
    next_page_token: str | None = Field(description="Always null")
