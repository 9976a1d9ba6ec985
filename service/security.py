"""API keys: how they look, what they allow, and who is calling."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Literal

from service.db import keys
from service.db.session import Database, reading, writing
from service.db.tables import ApiKey

Scope = Literal["read", "write", "admin"]

SCOPES: tuple[Scope, ...] = ("read", "write", "admin")
"""Each allows what those before it allow."""

ADMIN_PATHS = ("/v1/keys", "/v1/audit")
"""Paths that need scope `admin`, whatever the method."""

OPEN_PATHS = ("/livez",)
"""Paths that answer without a key."""

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")

_NOTE_USE_EVERY_S = 60.0


class UnauthorizedError(Exception):
    """The caller shows no key that is valid now."""


class ForbiddenError(Exception):
    """The caller's key does not allow this call."""


@dataclass(frozen=True)
class Caller:
    """Who calls: the id of a key, empty where none is asked for, and what it allows."""

    key_id: str
    scope: str


ANYONE = Caller("", "admin")
"""Whoever calls a server that asks for no keys."""


@dataclass(frozen=True)
class NewKey:
    """A key at the only moment its secret is known."""

    row: ApiKey
    token: str


def create_key(database: Database, name: str, scope: Scope, lifetime_s: float | None) -> NewKey:
    """Store a new key and return it with its secret, which is kept nowhere."""
    key_id, secret = secrets.token_hex(6), secrets.token_hex(32)
    with writing(database) as session:
        row = keys.add_key(session, key_id, name, _hash(secret), scope, lifetime_s)
    return NewKey(row, f"cf_{key_id}_{secret}")


def authenticate(database: Database, authorization: str) -> Caller:
    """
    Return the caller whose key is in an Authorization header, looked up anew each time.

    Raises
    ------
    UnauthorizedError
        If there is no key in it, or one that is unknown, expired or revoked.
    """
    key_id, secret = _split(_token(authorization))
    with reading(database) as session:
        row, now_s = keys.find_key(session, key_id)
    if row is None or not hmac.compare_digest(row.secret_sha256, _hash(secret)):
        raise UnauthorizedError("the API key is unknown")
    if row.revoked_at_s is not None:
        raise UnauthorizedError(f"API key '{key_id}' is revoked")
    if row.expires_at_s is not None and row.expires_at_s <= now_s:
        raise UnauthorizedError(f"API key '{key_id}' has expired")
    if row.last_used_at_s is None or now_s - row.last_used_at_s > _NOTE_USE_EVERY_S:
        with writing(database) as session:
            keys.note_use(session, key_id)
    return Caller(key_id, row.scope)


def require_scope(caller: Caller, method: str, path: str) -> None:
    """
    Return if the caller may make this call.

    Raises
    ------
    ForbiddenError
        If the scope of its key does not allow it.
    """
    needed = needed_scope(method, path)
    if SCOPES.index(needed) > SCOPES.index(caller.scope):
        raise ForbiddenError(f"this call needs a key with scope '{needed}', got scope '{caller.scope}'")


def needed_scope(method: str, path: str) -> Scope:
    """Scope that a call needs: `read` to look, `write` for everything else, `admin` for keys and the audit log."""
    if any(path == each or path.startswith((f"{each}/", f"{each}:")) for each in ADMIN_PATHS):
        return "admin"
    return "read" if method in SAFE_METHODS else "write"


def _token(authorization: str) -> str:
    """The key in `Bearer KEY`, or in `Basic` as the password, which is what a browser can send."""
    kind, _, value = authorization.partition(" ")
    if kind.lower() == "basic":
        try:
            value = base64.b64decode(value, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            value = ""
    elif kind.lower() != "bearer":
        value = ""
    if not value:
        raise UnauthorizedError("an API key is needed, as 'Authorization: Bearer cf_...'")
    return value.strip()


def _split(token: str) -> tuple[str, str]:
    kind, _, rest = token.partition("_")
    key_id, _, secret = rest.partition("_")
    if kind != "cf" or not key_id or not secret or not token.isascii():
        raise UnauthorizedError("an API key has the form cf_<id>_<secret>")
    return key_id[:40], secret


def _hash(secret: str) -> str:
    """SHA-256 suffices: the secret is 256 random bits, not a password."""
    return hashlib.sha256(secret.encode()).hexdigest()
