"""Catalogues as the API shows them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field


class ChipRead(BaseModel):
    """A real chip."""

    id: str = Field(description="Id of the chip")
    name: str = Field(description="Name its vendor gives it")
    vendor: str = Field(description="Who makes it")
    year: int = Field(description="Year of its release")
    design: dict[str, float] = Field(description="Its design parameters (SI units), choices as codes")
    inferred_fields: dict[str, str] = Field(description="Parameters that no source states, and how they are inferred")
    fields: dict[str, Any] = Field(description="Stated field -> value, confidence and source")
    unverified_fields: list[str] = Field(description="Stated fields without a source that can be looked up")
    confidence: str = Field(description="`verified`, or what is less than that")
    source: str = Field(description="Where most of it comes from")
    note: str = Field(description="What else is to be known")


class ChipList(BaseModel):
    """The whole catalogue; it is small, so it has one page."""

    items: list[ChipRead] = Field(description="Chips of the catalogue")
    next_page_token: str | None = Field(description="Always null")


class TechnologyValue(BaseModel):
    """One value of a quantity."""

    node_nm: float | None = Field(description="Process node [nm], null where it does not depend on one")
    variant: str | None = Field(description="Kind of memory, null where it does not depend on one")
    value: float = Field(description="The value [as `unit` says]")


class TechnologyRead(BaseModel):
    """A technology quantity: what a row of `technology.overlay` may replace."""

    id: str = Field(description="Name of the quantity or constant")
    group: Literal["by_node", "by_memory_kind", "area", "energy", "power", "cost"] = Field(
        description="What its values depend on, or the group of a constant"
    )
    unit: str = Field(description="Unit of its values")
    values: list[TechnologyValue] = Field(description="Its values, rising with the node")
    sources: list[str] = Field(description="Where they come from")
    note: str = Field(description="What it is, where its name does not say so")


class TechnologyList(BaseModel):
    """All quantities; they have one page."""

    items: list[TechnologyRead] = Field(description="Technology quantities and constants")
    next_page_token: str | None = Field(description="Always null")
