"""How much one caller may ask for."""

from __future__ import annotations

from sqlalchemy.orm import Session

from service.db import queries
from service.engine import Extent
from service.errors import InvalidRequestError, TooManyError
from service.security import Caller
from service.settings import Settings


def require_room(session: Session, caller: Caller, settings: Settings) -> None:
    """
    Return if the caller may have one more unfinished study.

    Raises
    ------
    TooManyError
        If it has as many as it may have.
    """
    unfinished = queries.count_unfinished(session, caller.key_id)
    if unfinished >= settings.max_unfinished_studies:
        raise TooManyError(
            f"unfinished studies of one key must be at most {settings.max_unfinished_studies}, got one more:"
            " wait for one to end, or cancel it"
        )


def require_extent(extent: Extent, settings: Settings) -> None:
    """
    Return if a study asks for no more than one may.

    Raises
    ------
    InvalidRequestError
        With a pointer to what asks for too much.
    """
    for pointer, asked, most, unit in (
        ("/search/trials", extent.trials, settings.max_trials, ""),
        ("/search/timeout", extent.search_time_s, settings.max_search_time_s, " s"),
        ("/space", extent.space_designs, settings.max_space_designs, " designs"),
    ):
        if asked > most:
            name = pointer.rpartition("/")[2]
            raise InvalidRequestError(pointer, f"{name} must be at most {most:g}{unit} on this server, got {asked:g}")
