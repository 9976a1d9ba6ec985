"""Refuses request bodies above a limit before anything reads them."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import problem_response


@dataclass(frozen=True)
class BodyLimit:
    """ASGI middleware: 413 by the declared length at once, by the bytes received as they come."""

    app: ASGIApp
    max_body_bytes: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer for it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        detail = f"the request body must not exceed {self.max_body_bytes} bytes"
        if not declared.isdigit() or int(declared) > self.max_body_bytes:
            await problem_response(413, detail)(scope, receive, send)
            return
        received = 0
        answered = False

        async def limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            return {"type": "http.disconnect"} if received > self.max_body_bytes else message

        async def guarded(message: Message) -> None:
            nonlocal answered
            if received <= self.max_body_bytes:
                await send(message)
            elif not answered:
                answered = True
                await problem_response(413, detail)(scope, receive, send)

        await self.app(scope, limited, guarded)
        if received > self.max_body_bytes and not answered:
            await problem_response(413, detail)(scope, receive, send)
