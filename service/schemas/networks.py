"""Networks of the catalogue and uploaded ones as the API shows them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from service.db.tables import UploadedNetwork


class NetworkRead(BaseModel):
    """A network with its main figures."""

    id: str = Field(description="Id; that of a network of the catalogue is its name")
    name: str = Field(description="Name under which studies and results have it")
    source: Literal["catalogue", "uploaded"] = Field(description="Where it comes from")
    kind: str = Field(description="Family of the network")
    n_layers: int = Field(description="Layers")
    hidden_size: int = Field(description="Width of the residual stream")
    vocabulary_size: int = Field(description="Tokens of the vocabulary")
    max_context_tokens: int | None = Field(description="Longest context [tokens], null where it has none")
    n_parameters: float = Field(description="Parameters, exact [1]")
    n_active_parameters: float = Field(description="Parameters that one token uses [1]")
    checkpoint_bytes: float = Field(description="Size of the checkpoint in its own formats [B]")
    kv_bytes_per_token_bf16: float = Field(description="KV cache of one token in bf16 [B]")
    notes: list[str] = Field(description="What its configuration holds that these figures leave out")


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
