"""Calibration profiles as the API shows them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from service.db.tables import StoredProfile
from service.schemas.moments import moment


class ProfileRead(BaseModel):
    """A calibration profile: at most eight positive ratios an operator family."""

    id: str = Field(description="Id under which studies and evaluations name it; the name of a shipped one")
    name: str = Field(description="Name of the profile")
    device: str = Field(description="Device that was measured")
    constants: dict[str, dict[str, float]] = Field(
        description="Operator family -> constant -> ratio over the global constants of the model [1]"
    )
    tables: list[str] = Field(description="Measured tables it was fitted to")
    fit: dict[str, Any] = Field(description="Family -> rows and mean errors before, after and on shapes left out [1]")
    note: str = Field(description="What its sender says of it")
    shipped: bool = Field(description="Whether it comes with the model")
    created_at: datetime | None = Field(description="When it was first sent (UTC), null for a shipped one")


class ProfileList(BaseModel):
    """One page of profiles."""

    items: list[ProfileRead] = Field(description="Stored profiles, newest first; the first page ends with shipped ones")
    next_page_token: str | None = Field(description="Token of the next page, null on the last one")


def stored_fields(row: StoredProfile) -> dict[str, Any]:
    """Fields of a stored profile as the API shows them."""
    return {**row.document, "id": row.id, "shipped": False, "created_at": moment(row.created_at_s)}


def shipped_fields(document: dict[str, Any]) -> dict[str, Any]:
    """Fields of a shipped profile as the API shows them."""
    return {**document, "id": document["name"], "shipped": True, "created_at": None}
