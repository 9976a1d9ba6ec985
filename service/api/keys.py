"""API keys and the audit log, for callers whose key has scope `admin`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from service.api.paging import PageSize, PageToken, page_of
from service.db import keys
from service.dependencies import DatabaseOf, IdempotencyKey, ReadSession, WriteSession
from service.errors import problem_responses
from service.schemas.keys import (
    AuditEntryRead,
    AuditList,
    KeyCreate,
    KeyList,
    KeyRead,
    KeySecretRead,
    audit_fields,
    key_fields,
)
from service.security import create_key

router = APIRouter(prefix="/v1", tags=["access"])


@router.post(
    "/keys",
    status_code=201,
    operation_id="create_key",
    summary="Make an API key",
    responses=problem_responses(409, 413, 422, 503),
)
def create_api_key(
    asked: KeyCreate, database: DatabaseOf, response: Response, _key: IdempotencyKey = None
) -> KeySecretRead:
    """Return a new key; its secret is in this answer only, and under an Idempotency-Key it is not repeated."""
    made = create_key(database, asked.name, asked.scope, asked.lifetime_s)
    response.headers["Cache-Control"] = "no-store"
    return KeySecretRead(**key_fields(made.row), key=made.token)


@router.get("/keys", operation_id="list_keys", summary="List the API keys", responses=problem_responses(503))
def list_api_keys(session: ReadSession) -> KeyList:
    """Return all keys without their secrets."""
    items = [KeyRead(**key_fields(row)) for row in keys.list_keys(session)]
    return KeyList(items=items, next_page_token=None)


@router.post(
    "/keys/{key_id}:revoke",
    operation_id="revoke_key",
    summary="Revoke an API key",
    responses=problem_responses(404, 422, 503),
)
def revoke_api_key(
    key_id: Annotated[str, Path(max_length=40, description="Id of the key", examples=["3f9c0a1b2d4e"])],
    session: WriteSession,
) -> KeyRead:
    """Make a key invalid at once; revoking it again changes nothing."""
    return KeyRead(**key_fields(keys.revoke_key(session, key_id)))


@router.get("/audit", operation_id="list_audit", summary="Read the audit log", responses=problem_responses(422, 503))
def list_audit(
    session: ReadSession,
    page_size: PageSize = 100,
    page_token_: PageToken = None,
) -> AuditList:
    """Return one page of the calls that changed something or were forbidden, newest first."""
    page, token = page_of(
        lambda behind, limit: keys.list_audit_entries(session, behind and behind[0], limit),
        lambda row: (row.id,), (int,), page_size, page_token_,
    )  # fmt: skip
    return AuditList(items=[AuditEntryRead(**audit_fields(row)) for row in page], next_page_token=token)
