"""The same Idempotency-Key twice makes one thing and gives one answer."""

from __future__ import annotations

import hashlib
from typing import Any

import anyio.to_thread
from sqlalchemy.exc import DBAPIError
from starlette.datastructures import Headers, State
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.db import idempotency
from service.db.executors import list_executors
from service.db.session import writing
from service.errors import database_problem, problem_response
from service.jobs.supervisor import is_alive
from service.settings import Settings

MOST_KEPT_BYTES = 1024**2
"""Larger answers are made again: only evaluations, which change nothing, give them."""

_KEPT_HEADERS = ("content-type", "location", "etag")


class Idempotency:
    """ASGI middleware: replays the answer of a POST, 422 for another request under its key, 409 while it runs."""

    def __init__(self, app: ASGIApp, state: State, settings: Settings) -> None:
        self.app, self.state, self.settings = app, state, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer for it."""
        key = Headers(scope=scope).get("idempotency-key") if scope["type"] == "http" else None
        if key is None or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        if not (0 < len(key) <= 200 and key.isprintable() and key.isascii()):
            detail = f"Idempotency-Key must have 1 to 200 printable ASCII characters, got {len(key)}"
            await _key_problem(detail)(scope, receive, send)
            return
        body = await _read(receive)
        if body is None:
            return
        caller = scope["state"]["caller"].key_id
        digest = _digest(scope, body)
        try:
            claimed = await anyio.to_thread.run_sync(self._claim, caller, key, digest)
        except DBAPIError as error:
            await database_problem(error)(scope, receive, send)
            return
        if claimed.began_at_s is None:
            await _known_answer(claimed.known, digest)(scope, receive, send)
            return
        seed = f"{caller}/{key}/{digest}/{claimed.began_at_s!r}"
        scope["state"]["creation_id"] = hashlib.sha256(seed.encode()).hexdigest()[:32]
        await self._run(scope, _replaying(body, receive), send, caller, key)

    async def _run(self, scope: Scope, receive: Receive, send: Send, caller: str, key: str) -> None:
        """Make the call and keep its answer before it is sent; one that failed for our sake may be made again."""
        messages: list[Message] = []
        size_bytes = 0

        async def gathering(message: Message) -> None:
            nonlocal size_bytes
            size_bytes += len(message.get("body", b""))
            messages.append(message)

        try:
            await self.app(scope, receive, gathering)
        finally:
            await anyio.to_thread.run_sync(self._settle, caller, key, messages, size_bytes)
        for message in messages:
            await send(message)

    def _claim(self, caller: str, key: str, digest: str) -> idempotency.Claim:
        executor_id, settings = self.state.jobs.executor_id, self.settings
        with writing(self.state.database) as session:
            claimed = idempotency.claim(session, caller, key, digest, executor_id, settings.idempotency_kept_s)
            known = claimed.known
            if known is None or known.status is not None or known.request_sha256 != digest:
                return claimed
            owners = {row.id: is_alive(row, age_s, settings.stale_after_s) for row, age_s in list_executors(session)}
            if known.executor_id == executor_id or owners.get(known.executor_id, False):
                return claimed
            return idempotency.take_over(session, known, executor_id)

    def _settle(self, caller: str, key: str, messages: list[Message], size_bytes: int) -> None:
        with writing(self.state.database) as session:
            status = messages[0]["status"] if messages else 500
            if status >= 500 or status in (408, 413, 429) or size_bytes > MOST_KEPT_BYTES:
                idempotency.release(session, caller, key)
                return
            headers = Headers(raw=messages[0]["headers"])
            kept = {name: headers[name] for name in _KEPT_HEADERS if name in headers}
            secret = headers.get("cache-control") == "no-store"
            body = None if secret else b"".join(m.get("body", b"") for m in messages[1:]).decode()
            idempotency.store(session, caller, key, status, kept, body)


async def _read(receive: Receive) -> bytes | None:
    """The whole body, within the limits that `BodyLimit` sets; None where the caller is gone."""
    pieces = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(pieces)


def _replaying(body: bytes, receive: Receive) -> Receive:
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _digest(scope: Scope, body: bytes) -> str:
    head = f"{scope['method']} {scope['path']}?{scope['query_string'].decode('latin-1')}\n"
    return hashlib.sha256(head.encode() + body).hexdigest()


def _known_answer(known: Any, digest: str) -> Any:
    """The answer to a call whose key was used before."""
    if known.request_sha256 != digest:
        return _key_problem("this Idempotency-Key was used for another request")
    if known.status is None:
        return problem_response(409, "a call with this Idempotency-Key is in flight", headers={"Retry-After": "1"})
    if known.body is None:
        return problem_response(409, "this call was made already, and its answer, which held a secret, was not kept")
    return _Replay(known.status, {**known.headers, "Idempotency-Replayed": "true"}, known.body.encode())


def _key_problem(detail: str) -> Any:
    return problem_response(422, detail, [{"pointer": "header.Idempotency-Key", "detail": detail}])


class _Replay:
    """The stored answer as an ASGI application."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pairs = [(name.lower().encode(), value.encode("latin-1")) for name, value in self.headers.items()]
        pairs.append((b"content-length", str(len(self.body)).encode()))
        await send({"type": "http.response.start", "status": self.status, "headers": pairs})
        await send({"type": "http.response.body", "body": self.body})
