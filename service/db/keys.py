"""Queries on API keys and the audit log."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db.rows import NotFoundError
from service.db.session import clock_s
from service.db.tables import ApiKey, AuditEntry


def add_key(
    session: Session, key_id: str, name: str, secret_sha256: str, scope: str, lifetime_s: float | None
) -> ApiKey:
    """Add a key that expires after its lifetime, if it has one."""
    now_s = clock_s(session)
    row = ApiKey(
        id=key_id, name=name, secret_sha256=secret_sha256, scope=scope, created_at_s=now_s,
        expires_at_s=None if lifetime_s is None else now_s + lifetime_s, revoked_at_s=None, last_used_at_s=None,
    )  # fmt: skip
    session.add(row)
    session.flush()
    return row


def find_key(session: Session, key_id: str) -> tuple[ApiKey | None, float]:
    """Return the key, if there is one, and the time [s]."""
    return session.get(ApiKey, key_id), clock_s(session)


def list_keys(session: Session) -> list[ApiKey]:
    """Return all keys, newest first, revoked ones included."""
    return list(session.scalars(sa.select(ApiKey).order_by(ApiKey.created_at_s.desc(), ApiKey.id)))


def revoke_key(session: Session, key_id: str) -> ApiKey:
    """Make a key invalid from now on; revoking it again changes nothing."""
    row = session.get(ApiKey, key_id)
    if row is None:
        raise NotFoundError(f"unknown key '{key_id}'")
    if row.revoked_at_s is None:
        row.revoked_at_s = clock_s(session)
        session.flush()
    return row


def note_use(session: Session, key_id: str) -> None:
    """Note that a key was used now."""
    session.execute(sa.update(ApiKey).where(ApiKey.id == key_id).values(last_used_at_s=clock_s(session)))


def add_audit_entry(session: Session, key_id: str, action: str, status: int, request_id: str, address: str) -> None:
    """Note a call."""
    session.add(
        AuditEntry(
            at_s=clock_s(session), key_id=key_id, action=action[:300], status=status, request_id=request_id,
            address=address[:80],
        )
    )  # fmt: skip


def list_audit_entries(session: Session, before_id: int | None, limit: int) -> list[AuditEntry]:
    """Return entries older than an id, newest first."""
    query = sa.select(AuditEntry).order_by(AuditEntry.id.desc()).limit(limit)
    return list(session.scalars(query if before_id is None else query.where(AuditEntry.id < before_id)))
