"""
What routes take from the application: sessions, the engine, the settings, the background part.

What waits for nothing is declared `async`, so that it costs no way to a thread and back.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, cast

from fastapi import Depends, Header, Request
from sqlalchemy.orm import Session

from service.db.rows import VersionCheck, any_version
from service.db.session import Database, reading, writing
from service.engine import StudyEngine
from service.event_feed import EventFeed
from service.jobs.executor import JobExecutor
from service.metrics import Metrics
from service.middleware.conditional import matches
from service.security import Caller
from service.settings import Settings


def _opened(request: Request) -> Database:
    return cast(Database, request.app.state.database)


async def _database(request: Request) -> Database:
    return _opened(request)


async def _engine(request: Request) -> StudyEngine:
    return cast(StudyEngine, request.app.state.engine)


async def _settings(request: Request) -> Settings:
    return cast(Settings, request.app.state.settings)


async def _jobs(request: Request) -> JobExecutor:
    return cast(JobExecutor, request.app.state.jobs)


def _read_session(request: Request) -> Iterator[Session]:
    with reading(_opened(request)) as session:
        yield session


def _write_session(request: Request) -> Iterator[Session]:
    with writing(_opened(request)) as session:
        yield session


async def _metrics(request: Request) -> Metrics:
    return cast(Metrics, request.app.state.metrics)


async def _caller(request: Request) -> Caller:
    return cast(Caller, request.state.caller)


IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key", min_length=1, max_length=200, pattern="^[ -~]+$",
        description="A repeated call with the same key gives the first one's answer; another call with it is refused",
        examples=["plan-2026-11-30-a"],
    ),
]  # fmt: skip
"""Documents the header; `service.middleware.idempotency` does the work."""


async def _creation_id(request: Request, _key: IdempotencyKey = None) -> str:
    """The id that an Idempotency-Key stands for, so that a repeated call finds what the first one made; else new."""
    return getattr(request.state, "creation_id", None) or uuid.uuid4().hex


def version_tag(version: int) -> str:
    """ETag of a row by its version."""
    return f'"v{version}"'


async def _version_check(
    if_match: Annotated[
        str | None, Header(max_length=200, description="ETag of the version meant; 412 where it has changed")
    ] = None,
) -> VersionCheck:
    if if_match is None:
        return any_version
    return lambda version: matches(version_tag(version), if_match)


async def _event_feed(request: Request) -> EventFeed:
    return cast(EventFeed, request.app.state.event_feed)


async def _heavy_work(request: Request) -> AsyncIterator[None]:
    slots = cast(asyncio.Semaphore, request.app.state.heavy_slots)
    async with slots:
        yield


HEAVY_WORK = Depends(_heavy_work, scope="function")
"""For routes that run the model for long: they wait for a slot without holding a thread, so that others answer."""
DatabaseOf = Annotated[Database, Depends(_database)]
EngineOf = Annotated[StudyEngine, Depends(_engine)]
SettingsOf = Annotated[Settings, Depends(_settings)]
JobsOf = Annotated[JobExecutor, Depends(_jobs)]
EventFeedOf = Annotated[EventFeed, Depends(_event_feed)]
MetricsOf = Annotated[Metrics, Depends(_metrics)]
CallerOf = Annotated[Caller, Depends(_caller)]
CreationId = Annotated[str, Depends(_creation_id)]
"""Id for what a creating call makes; every such call takes it, which also documents its Idempotency-Key."""
WantedVersion = Annotated[VersionCheck, Depends(_version_check)]
"""What `If-Match` asks for, to be checked with the row locked."""
ReadSession = Annotated[Session, Depends(_read_session, scope="function")]
WriteSession = Annotated[Session, Depends(_write_session, scope="function")]
"""Committed when the route returns, before the answer is sent."""
