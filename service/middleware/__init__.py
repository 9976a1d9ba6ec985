"""What surrounds every request, one ASGI middleware each, outermost first."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from service.metrics import Metrics
from service.middleware.access import Access
from service.middleware.body_limit import BodyLimit
from service.middleware.conditional import ConditionalGet
from service.middleware.idempotency import Idempotency
from service.middleware.request_log import RequestLog
from service.settings import Settings


def middlewares(app: FastAPI, settings: Settings, metrics: Metrics) -> Sequence[Middleware]:
    """Return the middlewares of the application in the order in which a request meets them."""
    cross_origin = Middleware(
        CORSMiddleware, allow_origins=settings.cors_origins, allow_methods=["*"], allow_headers=["*"],
        expose_headers=["Location", "ETag", "X-Request-ID", "Retry-After"],
    )  # fmt: skip
    return (
        Middleware(RequestLog, metrics=metrics),
        *((cross_origin,) if settings.cors_origins else ()),
        Middleware(Access, state=app.state, settings=settings),
        Middleware(
            BodyLimit,
            max_body_bytes=settings.max_body_bytes,
            max_upload_bytes=settings.max_upload_bytes,
            timeout_s=settings.body_timeout_s,
        ),
        Middleware(Idempotency, state=app.state, settings=settings),
        Middleware(ConditionalGet),
    )
