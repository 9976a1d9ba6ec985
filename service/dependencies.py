"""What routes take from the application: sessions, the engine, the settings, the background part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, cast

from fastapi import Depends, Request
from sqlalchemy.orm import Session

from service.db.session import Database, reading, writing
from service.engine import StudyEngine
from service.jobs.executor import JobExecutor
from service.settings import Settings


def _database(request: Request) -> Database:
    return cast(Database, request.app.state.database)


def _engine(request: Request) -> StudyEngine:
    return cast(StudyEngine, request.app.state.engine)


def _settings(request: Request) -> Settings:
    return cast(Settings, request.app.state.settings)


def _jobs(request: Request) -> JobExecutor:
    return cast(JobExecutor, request.app.state.jobs)


def _read_session(request: Request) -> Iterator[Session]:
    with reading(_database(request)) as session:
        yield session


def _write_session(request: Request) -> Iterator[Session]:
    with writing(_database(request)) as session:
        yield session


DatabaseOf = Annotated[Database, Depends(_database)]
EngineOf = Annotated[StudyEngine, Depends(_engine)]
SettingsOf = Annotated[Settings, Depends(_settings)]
JobsOf = Annotated[JobExecutor, Depends(_jobs)]
ReadSession = Annotated[Session, Depends(_read_session, scope="function")]
WriteSession = Annotated[Session, Depends(_write_session, scope="function")]
"""Committed when the route returns, before the answer is sent."""
