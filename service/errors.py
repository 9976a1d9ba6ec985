"""Problem documents (RFC 9457): the one place that turns exceptions into HTTP answers."""

from __future__ import annotations

import http
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from sqlalchemy.exc import DataError, DBAPIError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from explorer.document import StudyError
from models.checks import UnknownNameError
from service.db.rows import ConflictError, NotFoundError, StaleError

LOG = structlog.get_logger("chipfit.http")

MEDIA_TYPE = "application/problem+json"


class FieldProblem(BaseModel):
    """One broken rule of the request."""

    pointer: str = Field(description="JSON pointer to the field, empty for the whole body")
    detail: str = Field(description="The rule and what came instead")


class Problem(BaseModel):
    """A problem document after RFC 9457."""

    type: str = Field(description="Relative URI of the kind of problem")
    title: str = Field(description="Name of the HTTP status")
    status: int = Field(description="HTTP status")
    detail: str = Field(description="What is wrong, in one sentence")
    errors: list[FieldProblem] = Field(description="The broken rules, one for each field")


class InvalidRequestError(ValueError):
    """The request breaks a rule that its schema does not say."""

    def __init__(self, pointer: str, detail: str) -> None:
        super().__init__(detail)
        self.errors = [{"pointer": pointer, "detail": detail}]

    @classmethod
    def of(cls, errors: Sequence[dict[str, str]], detail: str) -> InvalidRequestError:
        """Return one error for several broken rules."""
        made = cls("", detail)
        made.errors = list(errors)
        return made


class TooManyError(Exception):
    """The caller has as much unfinished work as it may have."""


class TooLargeError(Exception):
    """The content of a request is larger than the operator allows."""


class NotReadyError(Exception):
    """The service cannot do its work now; each error names the part that fails."""

    def __init__(self, errors: Sequence[dict[str, str]]) -> None:
        super().__init__("; ".join(error["detail"] for error in errors))
        self.errors = list(errors)


def problem_response(
    status: int, detail: str, errors: Iterable[dict[str, str]] = (), headers: dict[str, str] | None = None
) -> JSONResponse:
    """Return one problem document as a response."""
    title = http.HTTPStatus(status).phrase
    document = {
        "type": "/problems/" + title.lower().replace(" ", "-"), "title": title, "status": status, "detail": detail,
        "errors": list(errors),
    }  # fmt: skip
    return JSONResponse(document, status_code=status, headers=headers, media_type=MEDIA_TYPE)


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI entries of the problems a route may answer with."""
    return {
        status: {
            "description": http.HTTPStatus(status).phrase,
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status in statuses
    }


def install_error_handlers(app: FastAPI, study_error: type[Exception]) -> None:
    """Answer every exception of the table, and every other one, with a problem document."""
    for kind, status in {study_error: 422, **STATUS_OF}.items():
        app.add_exception_handler(kind, _handler(status))
    app.add_exception_handler(RequestValidationError, _on_invalid_request)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(DBAPIError, _on_database_error)
    app.add_exception_handler(Exception, _on_unexpected)


STATUS_OF: dict[type[Exception], int] = {
    StudyError: 422,
    InvalidRequestError: 422,
    UnknownNameError: 404,
    NotFoundError: 404,
    ConflictError: 409,
    StaleError: 412,
    TooManyError: 429,
    TooLargeError: 413,
    NotReadyError: 503,
}
"""Exception class -> HTTP status."""


def _handler(status: int) -> Callable[[Request, Exception], Response]:
    def handle(_request: Request, error: Exception) -> Response:
        return problem_response(status, str(error), getattr(error, "errors", ()))

    return handle


def _on_invalid_request(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    errors = [{"pointer": _pointer(entry["loc"]), "detail": _detail(entry)} for entry in error.errors()]
    return problem_response(422, errors[0]["detail"] if errors else "invalid request", errors)


def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(sorted(_allowed_methods(request)))
    return problem_response(error.status_code, str(error.detail), headers=headers)


def _on_database_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, DBAPIError)
    return database_problem(error)


def database_problem(error: DBAPIError) -> JSONResponse:
    """Return the problem of a database that refuses a value, or cannot work now."""
    reason = " ".join(str(getattr(error, "orig", error)).split())
    if isinstance(error, DataError):
        detail = f"a value cannot be stored: {reason}"
        return problem_response(422, detail, [{"pointer": "", "detail": detail}])  # which one, no database says
    LOG.error("database error", reason=reason)
    return problem_response(503, f"the database cannot do this now: {reason}", headers={"Retry-After": "2"})


def _on_unexpected(_request: Request, error: Exception) -> Response:
    LOG.error("unexpected error", exc_info=error)
    return problem_response(500, "unexpected error; the server's log has the details")


def _detail(entry: Mapping[str, Any]) -> str:
    """The rule in pydantic's words, and what came instead where it is a plain value."""
    value = entry.get("input")
    came = f", got {value!r}"[:100] if isinstance(value, str | int | float | bool) else ""
    return f"{entry['msg']}{came}"


def _pointer(location: Sequence[int | str]) -> str:
    """JSON pointer of a body field; a query or path parameter is named plainly."""
    where, *rest = location
    steps = [str(step).replace("~", "~0").replace("/", "~1") for step in rest]
    return "".join(f"/{step}" for step in steps) if where == "body" else ".".join([str(where), *steps])


def _allowed_methods(request: Request) -> set[str]:
    """Methods of all routes at this path, which one route alone does not know."""
    allowed: set[str] = set()
    for router in request.app.state.routers:
        for route in router.routes:
            match, _ = route.matches(request.scope)
            if match is not Match.NONE:
                allowed |= route.methods
    return allowed
