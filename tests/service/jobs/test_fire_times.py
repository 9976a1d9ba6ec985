"""When schedules fire, above all where the clock changes."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

import pytest

from service.errors import InvalidRequestError
from service.jobs.fire_times import fire_times, require_cron
from service.jobs.schedule_clerk import judged_fires

CHANGES = {
    "America/New_York": (datetime(2026, 3, 8), datetime(2026, 11, 1)),
    "Europe/Berlin": (datetime(2026, 3, 29), datetime(2026, 10, 25)),
}
"""Days on which the clock changes in 2026."""


@pytest.mark.parametrize("zone", CHANGES)
@pytest.mark.parametrize("clock", ["30 0", "0 1", "30 1", "0 2", "30 2", "59 2", "0 3", "30 3"])
def test_a_daily_schedule_fires_exactly_once_on_every_day_of_the_year(zone: str, clock: str) -> None:
    begin = datetime(2026, 1, 1, tzinfo=ZoneInfo(zone))
    end_s = datetime(2027, 1, 1, tzinfo=ZoneInfo(zone)).timestamp()
    times = takewhile(lambda fire_s: fire_s < end_s, fire_times(f"{clock} * * *", zone, begin.timestamp() - 1))
    days = Counter(datetime.fromtimestamp(fire_s, ZoneInfo(zone)).date() for fire_s in times)
    assert days == Counter((begin + timedelta(days=i)).date() for i in range(365))


@pytest.mark.parametrize("zone", CHANGES)
def test_a_time_the_clock_skips_fires_when_it_has_jumped(zone: str) -> None:
    day = CHANGES[zone][0].replace(tzinfo=ZoneInfo(zone))
    fire = datetime.fromtimestamp(next(fire_times("30 2 * * *", zone, day.timestamp())), ZoneInfo(zone))
    assert (fire.date(), fire.hour, fire.minute) == (day.date(), 3, 0)


@pytest.mark.parametrize(("zone", "hour"), [("America/New_York", 1), ("Europe/Berlin", 2)])
def test_a_time_the_clock_repeats_fires_at_the_first_of_both(zone: str, hour: int) -> None:
    day = CHANGES[zone][1].replace(tzinfo=ZoneInfo(zone))
    first, second = islice(fire_times(f"30 {hour} * * *", zone, day.timestamp()), 2)
    assert datetime.fromtimestamp(first, ZoneInfo(zone)).fold == 0
    assert second - first == 25 * 3600


def test_times_are_those_of_the_zone() -> None:
    after = datetime(2026, 7, 1, tzinfo=UTC).timestamp()
    assert next(fire_times("0 2 * * *", "Europe/Berlin", after - 1)) == after
    assert next(fire_times("0 2 * * 1", "UTC", after)) == datetime(2026, 7, 6, 2, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("cron", "zone", "pointer", "said"),
    [
        ("0 0 31 2 *", "UTC", "/cron", "can never fire"),
        ("0 0 30 2 *", "UTC", "/cron", "can never fire"),
        ("* * * * * *", "UTC", "/cron", "5 fields"),
        ("@daily", "UTC", "/cron", "5 fields"),
        ("61 * * * *", "UTC", "/cron", "can never fire"),
        ("0 2 * * *", "Europe/Berln", "/time_zone", "did you mean 'Europe/Berlin'"),
        ("0 2 * * *", "../etc/passwd", "/time_zone", "unknown time zone"),
    ],
    ids=["31 February", "30 February", "seconds", "word", "minute", "zone", "path"],
)
def test_what_never_fires_or_has_no_zone_is_refused(cron: str, zone: str, pointer: str, said: str) -> None:
    with pytest.raises(InvalidRequestError, match=said) as refused:
        require_cron(cron, zone, 0.0)
    assert refused.value.errors[0]["pointer"] == pointer


@pytest.mark.parametrize(
    ("missed", "due", "runs"),
    [
        ("run_latest", [100.0, 200.0, 300.0], [300.0]),
        ("run_all", [100.0, 200.0, 300.0], [100.0, 200.0, 300.0]),
        ("skip", [100.0, 200.0, 300.0], []),
        ("run_latest", [100.0, 200.0, 995.0], [995.0]),
        ("skip", [100.0, 995.0], [995.0]),
        ("run_all", [100.0, 995.0], [100.0, 995.0]),
    ],
)
def test_missed_fires_follow_the_policy(missed: str, due: list[float], runs: list[float]) -> None:
    judged = judged_fires(due, 1000.0, missed, 60.0)
    assert [fire_s for fire_s, _ in judged] == due
    assert [fire_s for fire_s, reason in judged if reason is None] == runs
