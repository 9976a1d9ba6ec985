"""Gives every request an id, logs it when it has been answered, and counts it."""

from __future__ import annotations

import re
import time
import uuid
from dataclasses import dataclass

import structlog
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.metrics import Metrics

LOG = structlog.get_logger("chipfit.http")

_ACCEPTED_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True)
class RequestLog:
    """ASGI middleware: `X-Request-ID` in and out, one log line and one count per request."""

    app: ASGIApp
    metrics: Metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on between two looks at the clock."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = _request_id(scope)
        scope.setdefault("state", {})["request_id"] = request_id
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=request_id)
        status, began_s = 500, time.perf_counter()

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-ID"] = request_id
            await send(message)

        try:
            await self.app(scope, receive, noting)
        finally:
            self._note(scope, status, time.perf_counter() - began_s)

    def _note(self, scope: Scope, status: int, duration_s: float) -> None:
        route = str(getattr(scope.get("route"), "path", "unmatched"))
        self.metrics.note_request(scope["method"], route, status, duration_s)
        study_id = scope.get("path_params", {}).get("study_id")
        caller = scope["state"].get("caller")
        LOG.info(
            "request", method=scope["method"], path=scope["path"], status=status, duration_s=round(duration_s, 6),
            **({"study_id": study_id} if study_id else {}), **({"key_id": caller.key_id} if caller else {}),
        )  # fmt: skip


def _request_id(scope: Scope) -> str:
    """The caller's own id where it is a plain one, else a new one."""
    stated = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
    return stated if _ACCEPTED_ID.fullmatch(stated) else uuid.uuid4().hex
