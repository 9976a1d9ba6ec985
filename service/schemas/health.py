"""Health and version as the API shows them."""

from __future__ import annotations

from pydantic import BaseModel, Field


class LiveRead(BaseModel):
    """The process answers."""

    status: str = Field(description="Always `alive`")


class ReadyRead(BaseModel):
    """The service can work."""

    status: str = Field(description="Always `ready`")
    database: str = Field(description="State of the database")
    migrations: str = Field(description="Revision of the schema")
    queue: str = Field(description="State of this process's heartbeat")


class VersionRead(BaseModel):
    """Versions."""

    version: str = Field(description="Version of the package")
    model_version: str = Field(description="Version of the analytical model")
