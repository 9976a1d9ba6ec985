"""ETag on every JSON answer to a GET, and 304 where the caller has that answer already."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send


@dataclass(frozen=True)
class ConditionalGet:
    """ASGI middleware: a route may set its own ETag; elsewhere it is a hash of the answer."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and hold back the start of a JSON answer until its one piece of body is there."""
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            await self.app(scope, receive, send)
            return
        wanted = Headers(scope=scope).get("if-none-match", "")
        start: Message | None = None

        async def tagging(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message
                return
            if start is not None:
                opening, start = start, None
                if _is_json(opening) and not message.get("more_body", False):
                    opening, message = _tagged(opening, message, wanted)
                await send(opening)
            await send(message)

        await self.app(scope, receive, tagging)


def _is_json(start: Message) -> bool:
    headers = Headers(raw=start["headers"])
    return start["status"] == 200 and headers.get("content-type", "").startswith("application/json")


def _tagged(start: Message, body: Message, wanted: str) -> tuple[Message, Message]:
    """The answer with its tag, or 304 without a body where that tag is wanted."""
    headers = MutableHeaders(raw=list(start["headers"]))
    tag = headers.get("etag") or f'"{hashlib.sha256(body.get("body", b"")).hexdigest()[:32]}"'
    headers["ETag"] = tag
    headers.setdefault("Cache-Control", "no-cache")
    if not matches(tag, wanted):
        return {**start, "headers": headers.raw}, body
    for name in ("content-length", "content-type"):
        del headers[name]
    return {**start, "status": 304, "headers": headers.raw}, {**body, "body": b""}


def matches(tag: str, wanted: str) -> bool:
    """Whether a tag is among those of an If-None-Match or If-Match header."""
    tags = {each.strip().removeprefix("W/") for each in wanted.split(",") if each.strip()}
    return "*" in tags or tag in tags
