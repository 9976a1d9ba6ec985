"""The HTTP application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from fastapi import FastAPI

from service.api import ROUTERS
from service.db import migrate
from service.db.session import open_database, require_reachable
from service.documentation import serve_documentation
from service.engine import StudyEngine, package_version
from service.errors import Problem, install_error_handlers
from service.event_feed import EventFeed
from service.jobs.executor import JobExecutor
from service.metrics import Metrics
from service.middleware import middlewares
from service.openapi import document_openapi
from service.settings import Settings

DESCRIPTION = """
Which accelerator fits the work you really have, inside this area and power, and why?
All quantities are SI with the unit at the end of the name; fractions lie between 0 and 1.
"""


def create_app(settings: Settings, engine: StudyEngine) -> FastAPI:
    """Return the application; its database is opened and its jobs run while it is served."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await anyio.to_thread.run_sync(_start, app)
        yield
        await anyio.to_thread.run_sync(_stop, app)

    app = FastAPI(
        title="chipfit", version=package_version(), description=DESCRIPTION, lifespan=lifespan,
        docs_url=None, redoc_url=None,
    )  # fmt: skip
    app.state.settings, app.state.engine, app.state.routers = settings, engine, ROUTERS
    app.state.metrics = Metrics()
    app.state.heavy_slots = asyncio.Semaphore(settings.heavy_requests)
    app.user_middleware.extend(middlewares(app, settings, app.state.metrics))
    install_error_handlers(app, engine.study_error)
    for router in ROUTERS:
        app.include_router(router)
    serve_documentation(app)
    document_openapi(app, engine, Problem, settings.keys_required)
    return app


def _start(app: FastAPI) -> None:
    """Open the database, bring its schema up to date, begin to take work."""
    settings: Settings = app.state.settings
    app.state.database = open_database(settings.resolved_database_url)
    require_reachable(app.state.database)
    if settings.migrate:
        migrate.upgrade(app.state.database)
    app.state.event_feed = EventFeed(app.state.database, settings.event_poll_interval_s)
    app.state.jobs = JobExecutor(app.state.database, app.state.engine, settings)
    app.state.jobs.start()


def _stop(app: FastAPI) -> None:
    app.state.jobs.stop()
    app.state.database.close()
