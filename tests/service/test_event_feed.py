"""Looks at the database that the readers of a study share."""

from __future__ import annotations

import asyncio

from service.db import queries
from service.db.session import Database, writing
from service.event_feed import EventFeed


def test_a_look_that_has_ended_is_never_waited_for_again(database: Database) -> None:
    with writing(database) as session:
        queries.create_study(session, "s1", "s", {"name": "s"}, "fake-1")

    async def follow() -> bool:
        feed = EventFeed(database, 0.01)
        reader = asyncio.create_task(feed.next("s1", 0))
        await asyncio.sleep(0)
        look = feed.looks["s1"]
        while not look.done():
            await asyncio.sleep(0)
        found = "s1" in feed.looks  # asked in the very turn in which it is done
        assert len((await reader).events) == 1
        return found

    assert not asyncio.run(follow())
