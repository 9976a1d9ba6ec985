"""When a schedule fires: five cron fields in an IANA zone, by cronsim's rules at changes of the clock."""

from __future__ import annotations

import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime

from cronsim import CronSim, CronSimError

from models.checks import UnknownNameError, require_known
from service.errors import InvalidRequestError

N_FIELDS = 5


def read_zone(name: str) -> zoneinfo.ZoneInfo:
    """
    Return the zone of an IANA name.

    Raises
    ------
    InvalidRequestError
        With a suggestion, where there is none of that name.
    """
    try:
        return zoneinfo.ZoneInfo(require_known("time zone", name, zoneinfo.available_timezones()))
    except UnknownNameError as error:
        raise InvalidRequestError("/time_zone", str(error).partition(" known:")[0]) from error


def require_cron(cron: str, time_zone: str, now_s: float) -> None:
    """
    Return if an expression has five fields and fires some time.

    Raises
    ------
    InvalidRequestError
        With a pointer to the expression or the zone.
    """
    read_zone(time_zone)
    if len(cron.split()) != N_FIELDS:
        detail = f"cron must have 5 fields (minute hour day month weekday), got {cron!r}"
        raise InvalidRequestError("/cron", detail)
    try:
        first = next(fire_times(cron, time_zone, now_s), None)
    except CronSimError as error:
        raise InvalidRequestError("/cron", f"cron {cron!r} can never fire: {str(error).lower()}") from error
    if first is None:
        raise InvalidRequestError("/cron", f"cron {cron!r} never fires")


def fire_times(cron: str, time_zone: str, after_s: float) -> Iterator[float]:
    """
    Yield the times after `after_s` at which a schedule fires [s since 1970], each once.

    At a change of the clock a daily schedule fires once a day: a time that the clock skips fires when the clock has
    jumped, a time that it repeats fires at the first of both. Schedules with `*` or steps in minutes or hours keep
    their pace through the repeated hour.
    """
    zone = zoneinfo.ZoneInfo(time_zone)
    for moment in CronSim(cron, datetime.fromtimestamp(after_s, UTC).astimezone(zone)):
        yield moment.timestamp()
