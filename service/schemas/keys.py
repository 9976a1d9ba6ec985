"""API keys and the audit log as the API shows them."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field

from service.db.tables import ApiKey, AuditEntry
from service.schemas.moments import moment
from service.security import Scope


class KeyCreate(BaseModel):
    """A key to be made."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=200, description="Who or what the key is for", examples=["planner"])
    scope: Scope = Field("read", description="`read`, `write` (and read) or `admin` (everything)", examples=["write"])
    lifetime_s: float | None = Field(
        None, gt=0, le=1e9, description="Time after which it expires [s]; never where left out", examples=[7776000]
    )


class KeyRead(BaseModel):
    """A key without its secret."""

    id: str = Field(description="Id of the key", examples=["3f9c0a1b2d4e"])
    name: str = Field(description="Who or what the key is for", examples=["planner"])
    scope: str = Field(description="What it allows: `read`, `write` or `admin`", examples=["write"])
    created_at: datetime = Field(description="When it was made (UTC)", examples=["2026-11-30T20:00:00Z"])
    expires_at: datetime | None = Field(description="When it expires (UTC), null for never", examples=[None])
    revoked_at: datetime | None = Field(description="When it was revoked (UTC), null if not", examples=[None])
    last_used_at: datetime | None = Field(
        description="When it was last used (UTC), to the minute", examples=["2026-11-30T20:05:00Z"]
    )


class KeySecretRead(KeyRead):
    """A new key with its secret, which is shown this once."""

    key: str = Field(description="The key itself, for `Authorization: Bearer`", examples=["cf_3f9c0a1b2d4e_51b0..."])


class KeyList(BaseModel):
    """All keys."""

    items: list[KeyRead] = Field(description="Keys, newest first, revoked ones included")
    next_page_token: str | None = Field(description="Always null", examples=[None])


class AuditEntryRead(BaseModel):
    """One call that changed something or was forbidden."""

    id: int = Field(description="Number of the entry, growing", examples=[42])
    at: datetime = Field(description="When it was answered (UTC)", examples=["2026-11-30T20:05:00Z"])
    key_id: str = Field(
        description="Id of the caller's key; `command-line` for the local tool", examples=["3f9c0a1b2d4e"]
    )
    action: str = Field(description="Method and path, or what the local tool did", examples=["POST /v1/studies"])
    status: int = Field(description="HTTP status of the answer", examples=[202])
    request_id: str = Field(description="Id of the request, as in the logs", examples=["5b1f0d3a9c"])
    address: str = Field(description="Network address of the caller", examples=["192.0.2.7"])


class AuditList(BaseModel):
    """One page of the audit log."""

    items: list[AuditEntryRead] = Field(description="Entries, newest first")
    next_page_token: str | None = Field(description="Token of the next page, null on the last one", examples=[None])


def key_fields(row: ApiKey) -> dict[str, object]:
    """Fields of a key as the API shows them."""
    return {
        "id": row.id, "name": row.name, "scope": row.scope, "created_at": moment(row.created_at_s),
        "expires_at": moment(row.expires_at_s), "revoked_at": moment(row.revoked_at_s),
        "last_used_at": moment(row.last_used_at_s),
    }  # fmt: skip


def audit_fields(row: AuditEntry) -> dict[str, object]:
    """Fields of an audit entry as the API shows them."""
    return {
        "id": row.id, "at": moment(row.at_s), "key_id": row.key_id, "action": row.action, "status": row.status,
        "request_id": row.request_id, "address": row.address,
    }  # fmt: skip
