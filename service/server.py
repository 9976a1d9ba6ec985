"""Entry points of the server and of a further worker; each returns the exit code of the process."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading

import structlog
import uvicorn

from service.app import create_app
from service.db import migrate
from service.db.session import DatabaseUnreachableError, open_database, require_reachable
from service.engine import StudyEngine
from service.http_protocol import protocol_with_header_timeout
from service.jobs.executor import JobExecutor
from service.logs import configure_logs
from service.settings import Settings

LOG = structlog.get_logger("chipfit")

BAD_INPUT = 2

LOOPBACK_NAMES = ["localhost", "127.0.0.1", "[::1]"]
"""Hosts answered where no key is asked for: a page of another name that resolves to here is turned away."""


def serve(settings: Settings, engine: StudyEngine) -> int:
    """Serve HTTP, and run studies beside it, until SIGTERM or SIGINT."""
    configure_logs()
    try:
        _require_database(settings)
        listener = _listen(settings.host, settings.port)
    except (DatabaseUnreachableError, OSError) as error:
        return _refuse(error)
    host, port = listener.getsockname()[:2]
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}{settings.root_path}"
    LOG.info("serving", url=url, database=_address(settings), keys_required=settings.keys_required)
    if not settings.keys_required and not settings.allowed_hosts:
        settings = settings.model_copy(update={"allowed_hosts": LOOPBACK_NAMES})
    config = uvicorn.Config(
        create_app(settings, engine), log_config=None, access_log=False, timeout_graceful_shutdown=5, lifespan="on",
        root_path=settings.root_path, http=protocol_with_header_timeout(settings.header_timeout_s), server_header=False,
    )  # fmt: skip
    server = uvicorn.Server(config)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _note)  # uvicorn stops on them, then raises them again
    gc.collect()
    gc.freeze()  # a collection that goes through all that start-up made stops every request for a tenth of a second
    server.run(sockets=[listener])
    return 0 if server.started else 1


def run_worker(settings: Settings, engine: StudyEngine) -> int:
    """Run studies without HTTP until SIGTERM or SIGINT."""
    configure_logs()
    try:
        _require_database(settings)
    except DatabaseUnreachableError as error:
        return _refuse(error)
    database = open_database(settings.resolved_database_url)
    if settings.migrate:
        migrate.upgrade(database)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    jobs = JobExecutor(database, engine, settings)
    jobs.start()
    LOG.info("working", executor_id=jobs.executor_id, database=_address(settings), pid=os.getpid())
    stop.wait()
    jobs.stop()
    database.close()
    return 0


def _note(number: int, _frame: object) -> None:
    LOG.info("stopped", signal=signal.Signals(number).name)


def _require_database(settings: Settings) -> None:
    database = open_database(settings.resolved_database_url)
    try:
        require_reachable(database)
    finally:
        database.close()


def _listen(host: str, port: int) -> socket.socket:
    """
    Return a bound socket, so that a port in use is known before anything starts.

    It states its protocol: asyncio turns Nagle's algorithm off for sockets that do, and with it a body would wait
    40 ms behind the head of its answer.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise OSError(f"{host}:{port} cannot be listened on: {error.strerror}") from error
    return listener


def _address(settings: Settings) -> str:
    return open_database(settings.resolved_database_url).address


def _refuse(error: Exception) -> int:
    """Say in one line on stderr why the process does not start."""
    sys.stderr.write(f"chipfit: {error}\n")
    return BAD_INPUT
