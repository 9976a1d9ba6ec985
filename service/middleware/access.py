"""Lets in who may call: API keys, their scopes and request rate, and the names under which the server answers."""

from __future__ import annotations

import time
from typing import Any

import anyio.to_thread
import limits
import structlog
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter
from sqlalchemy.exc import DBAPIError
from starlette.datastructures import Headers, State
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.db import keys
from service.db.session import writing
from service.errors import database_problem, problem_response
from service.security import (
    ANYONE,
    OPEN_PATHS,
    SAFE_METHODS,
    Caller,
    ForbiddenError,
    UnauthorizedError,
    authenticate,
    require_scope,
)
from service.settings import Settings

LOG = structlog.get_logger("chipfit.access")

UNAUDITED_PATHS = ("/v1/evaluations",)
"""Paths whose calls change nothing that lasts, and come by the thousand."""


class Access:
    """ASGI middleware: 401 without a valid key, 403 beyond its scope, 429 above its rate, 421 for a foreign host."""

    def __init__(self, app: ASGIApp, state: State, settings: Settings) -> None:
        self.app, self.state, self.settings = app, state, settings
        self.rate = limits.parse(settings.rate_limit)
        self.limiter = SlidingWindowCounterRateLimiter(MemoryStorage())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer for it."""
        if scope["type"] != "http" or _path(scope) in OPEN_PATHS:
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if self.settings.allowed_hosts and _host(headers) not in self.settings.allowed_hosts:
            await problem_response(421, f"host '{_host(headers)}' is not served here")(scope, receive, send)
            return
        if scope["method"] not in SAFE_METHODS and self._is_foreign(headers):
            await problem_response(403, "pages of other origins may not call this")(scope, receive, send)
            return
        if not self.settings.keys_required:
            scope["state"]["caller"] = ANYONE
            await self.app(scope, receive, send)
            return
        await self._with_key(scope, receive, send, headers)

    async def _with_key(self, scope: Scope, receive: Receive, send: Send, headers: Headers) -> None:
        try:
            given = headers.get("authorization", "")
            caller = await anyio.to_thread.run_sync(authenticate, self.state.database, given)
        except UnauthorizedError as error:
            await self._refuse_stranger(scope, receive, send, str(error))
            return
        except DBAPIError as error:
            await database_problem(error)(scope, receive, send)
            return
        wait_s = self._wait_s(f"key/{caller.key_id}")
        if wait_s is not None:
            await _too_many(wait_s, self.settings.rate_limit)(scope, receive, send)
            return
        scope["state"]["caller"] = caller
        try:
            require_scope(caller, scope["method"], _path(scope))
        except ForbiddenError as error:
            await problem_response(403, str(error))(scope, receive, send)
            await self._audit(scope, caller, 403)
            return
        await self._audited(scope, receive, send, caller)

    async def _audited(self, scope: Scope, receive: Receive, send: Send, caller: Caller) -> None:
        """Pass the request on, and note it where it may have changed something."""
        status = 500

        async def noting(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self.app(scope, receive, noting)
        finally:
            if scope["method"] not in SAFE_METHODS and _path(scope) not in UNAUDITED_PATHS:
                await self._audit(scope, caller, status)

    async def _audit(self, scope: Scope, caller: Caller, status: int) -> None:
        def note() -> None:
            with writing(self.state.database) as session:
                action = f"{scope['method']} {_path(scope)}"
                keys.add_audit_entry(session, caller.key_id, action, status, scope["state"]["request_id"], address)

        address = _address(scope)
        try:
            await anyio.to_thread.run_sync(note)
        except DBAPIError as error:
            LOG.error("call could not be noted in the audit log", reason=" ".join(str(error.orig).split()))

    async def _refuse_stranger(self, scope: Scope, receive: Receive, send: Send, detail: str) -> None:
        wait_s = self._wait_s(f"address/{_address(scope)}")
        if wait_s is not None:
            await _too_many(wait_s, self.settings.rate_limit)(scope, receive, send)
            return
        headers = {"WWW-Authenticate": 'Bearer realm="chipfit", Basic realm="chipfit"'}
        await problem_response(401, detail, headers=headers)(scope, receive, send)

    def _wait_s(self, who: str) -> int | None:
        """Time after which a caller may come again [s], None where it may now."""
        if self.limiter.hit(self.rate, who):
            return None
        reset_s = self.limiter.get_window_stats(self.rate, who).reset_time
        return max(1, int(reset_s - time.time()) + 1)

    def _is_foreign(self, headers: Headers) -> bool:
        """Whether a page of another origin, which is none of those allowed, makes a browser send this."""
        return (
            headers.get("sec-fetch-site") in ("cross-site", "same-site")
            and headers.get("origin", "") not in self.settings.cors_origins
        )


def _too_many(wait_s: int, rate: str) -> Any:
    return problem_response(429, f"at most {rate} requests are answered", headers={"Retry-After": str(wait_s)})


def _path(scope: Scope) -> str:
    """Path without the prefix of a proxy."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path.removeprefix(root) if root and path.startswith(f"{root}/") else path


def _host(headers: Headers) -> str:
    """Name in the Host header, without its port."""
    host = headers.get("host", "").lower()
    return host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]


def _address(scope: Scope) -> str:
    return str((scope.get("client") or ("unknown", 0))[0])
