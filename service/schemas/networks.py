"""Networks of the catalogue and uploaded ones as the API shows them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from service.db.tables import UploadedNetwork


class NetworkRead(BaseModel):
    """A network with its main figures."""

    model_config = ConfigDict(extra="allow")

    id: str = Field(description="Id; that of a network of the catalogue is its name")
    name: str = Field(description="Name under which studies and results have it")
    source: Literal["catalogue", "uploaded"] = Field(description="Where it comes from")


class NetworkConfigRead(NetworkRead):
    """A network with the configuration it was read from."""

    config: dict[str, Any] | None = Field(description="The uploaded configuration; null for those of the catalogue")


class NetworkList(BaseModel):
    """All networks; there are few, so they have one page."""

    items: list[NetworkRead] = Field(description="The catalogue, then uploaded networks by name")
    next_page_token: str | None = Field(description="Always null")


def network_fields(row: UploadedNetwork) -> dict[str, Any]:
    """Fields of an uploaded network as the API shows them."""
    return {**row.figures, "id": row.id, "name": row.name, "source": "uploaded"}


def catalogue_fields(name: str, figures: dict[str, Any]) -> dict[str, Any]:
    """Fields of a network of the catalogue as the API shows them."""
    return {**figures, "id": name, "name": name, "source": "catalogue"}
