"""How much one caller may ask for."""

from __future__ import annotations

from sqlalchemy.orm import Session

from service.db import queries
from service.errors import TooManyError
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
