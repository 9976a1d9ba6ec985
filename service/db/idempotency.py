"""Queries on calls under an Idempotency-Key."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db.session import clock_s
from service.db.tables import IdempotentCall


@dataclass(frozen=True)
class Claim:
    """What became of a key: `began_at_s` is set where the caller now holds it, `known` where it was used before."""

    began_at_s: float | None
    known: IdempotentCall | None


def claim(session: Session, caller: str, key: str, request_sha256: str, executor_id: str, kept_s: float) -> Claim:
    """Take a key, unless a call under it is known or in flight."""
    now_s = clock_s(session)
    session.execute(sa.delete(IdempotentCall).where(IdempotentCall.expires_at_s <= now_s))
    _serialise(session, caller, key)
    known = session.get(IdempotentCall, (caller, key))
    if known is not None:
        return Claim(None, known)
    session.add(
        IdempotentCall(
            caller=caller, key=key, request_sha256=request_sha256, executor_id=executor_id, began_at_s=now_s,
            expires_at_s=now_s + kept_s, status=None, headers=None, body=None,
        )
    )  # fmt: skip
    session.flush()
    return Claim(now_s, None)


def take_over(session: Session, known: IdempotentCall, executor_id: str) -> Claim:
    """
    Take the key of a call in flight whose process is gone.

    It keeps its first time, from which ids are made: what the process may have created is found, not made again.
    """
    known.executor_id = executor_id
    session.flush()
    return Claim(known.began_at_s, None)


def _serialise(session: Session, caller: str, key: str) -> None:
    """Let no other transaction claim the same key before this one ends; SQLite has one writer anyway."""
    if session.get_bind().dialect.name == "postgresql":
        lock = sa.func.pg_advisory_xact_lock(sa.func.hashtextextended(f"{caller}/{key}", 0))
        session.execute(sa.select(lock))


def store(session: Session, caller: str, key: str, status: int, headers: dict[str, str], body: str | None) -> None:
    """Keep the answer of a call that has ended; without a body only that it has."""
    values = {"status": status, "headers": headers, "body": body}
    session.execute(
        sa.update(IdempotentCall).where(IdempotentCall.caller == caller, IdempotentCall.key == key).values(**values)
    )


def release(session: Session, caller: str, key: str) -> None:
    """Forget a call that changed nothing, so that it may be made again."""
    session.execute(sa.delete(IdempotentCall).where(IdempotentCall.caller == caller, IdempotentCall.key == key))
