"""Refuses request bodies above a limit before anything reads them, and those that do not arrive in time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import problem_response

_CLOSE = {"Connection": "close"}

UPLOAD_PATH = "/v1/workloads"
FORM_BYTES = 64 * 1024


class _RefusedError(BaseException):
    """Unwinds the application while it reads the request body; nothing in between catches it."""


@dataclass(frozen=True)
class BodyLimit:
    """ASGI middleware: 413 by the declared length at once, by the bytes as they come; 408 where they come slowly."""

    app: ASGIApp
    max_body_bytes: int
    max_upload_bytes: int
    timeout_s: float

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer for it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        max_bytes = self._max_bytes(scope)
        if not declared.isdigit() or int(declared) > max_bytes:
            await _too_large(max_bytes)(scope, receive, send)
            return
        body = _BoundedBody(receive, max_bytes, asyncio.get_running_loop().time() + self.timeout_s)
        started = False

        async def noting(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self.app(scope, body.receive, noting)
        except _RefusedError:
            if not started:
                refusal = self._too_slow() if body.is_late else _too_large(max_bytes)
                await refusal(scope, receive, send)

    def _max_bytes(self, scope: Scope) -> int:
        """Largest body of a request: a workload file may be larger than a document, and has its form around it."""
        is_upload = scope["path"].rstrip("/").endswith(UPLOAD_PATH)
        return self.max_upload_bytes + FORM_BYTES if is_upload else self.max_body_bytes

    def _too_slow(self) -> Response:
        return problem_response(408, f"the request body must arrive within {self.timeout_s:g} s", headers=_CLOSE)


def _too_large(max_bytes: int) -> Response:
    return problem_response(413, f"the request body must not exceed {max_bytes} bytes", headers=_CLOSE)


@dataclass
class _BoundedBody:
    """A request body that may neither grow beyond a size nor come after a deadline."""

    source: Receive
    max_bytes: int
    deadline_s: float
    received_bytes: int = 0
    is_complete: bool = False
    is_late: bool = False

    async def receive(self) -> Message:
        """Return the next piece; behind the last one only the caller's leaving is waited for, without a limit."""
        if self.is_complete:
            return await self.source()
        try:
            async with asyncio.timeout_at(self.deadline_s):
                message = await self.source()
        except TimeoutError:
            self.is_late = True
            raise _RefusedError from None
        self.received_bytes += len(message.get("body", b""))
        self.is_complete = not message.get("more_body", False)
        if self.received_bytes > self.max_bytes:
            raise _RefusedError
        return message
