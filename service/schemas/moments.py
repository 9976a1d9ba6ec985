"""Times of the database as the API shows them."""

from __future__ import annotations

from datetime import UTC, datetime


def moment(time_s: float | None) -> datetime | None:
    """Time since 1970 [s] as a moment of UTC."""
    return None if time_s is None else datetime.fromtimestamp(time_s, UTC)
