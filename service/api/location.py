"""Ids in paths that several routers share, and the address of what a call has made."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Request, Response

StudyId = Annotated[str, Path(max_length=40, description="Id of the study")]


def set_location(request: Request, response: Response, route: str, **ids: str) -> None:
    """State where to look for what was made, below the prefix under which the server is reached."""
    response.headers["Location"] = request.url_for(route, **ids).path


def set_stored(request: Request, response: Response, is_new: bool, route: str, **ids: str) -> None:
    """State where what was sent is kept, and whether it was not there before: 201, else 200."""
    response.status_code = 201 if is_new else 200
    set_location(request, response, route, **ids)
