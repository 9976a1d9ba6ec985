"""New events of studies for any number of readers, with one look at the database for all readers of a study."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import anyio.to_thread

from service.db import queries
from service.db.queries import FINISHED_STATES
from service.db.rows import NotFoundError
from service.db.session import Database, reading
from service.db.tables import StudyEvent

PAGE_EVENTS = 500


@dataclass(frozen=True)
class Batch:
    """Events behind `after`, oldest first, and whether none will follow."""

    after: int
    events: list[StudyEvent]
    is_last: bool


@dataclass
class EventFeed:
    """Looks for events in turns of `interval_s`; readers of one study that wait at the same time share a look."""

    database: Database
    interval_s: float
    looks: dict[str, asyncio.Task[Batch]] = field(default_factory=dict)

    async def now(self, study_id: str, after: int) -> Batch:
        """Return what is there behind an event id."""
        return await anyio.to_thread.run_sync(_read, self.database, study_id, after)

    async def next(self, study_id: str, after: int) -> Batch:
        """Return what comes behind an event id within one turn, perhaps nothing."""
        look = self.looks.get(study_id)
        if look is None:
            look = self.looks[study_id] = asyncio.create_task(self._look(study_id, after))
        found = await asyncio.shield(look)
        if found.after > after:
            return await self.now(study_id, after)
        return Batch(after, [event for event in found.events if event.id > after], found.is_last)

    async def _look(self, study_id: str, after: int) -> Batch:
        try:
            await asyncio.sleep(self.interval_s)
            return await self.now(study_id, after)
        finally:
            del self.looks[study_id]  # before it is done: who waits for what is done never lets the others run


def _read(database: Database, study_id: str, after: int) -> Batch:
    with reading(database) as session:
        try:
            state = queries.study_state(session, study_id)
        except NotFoundError:
            return Batch(after, [], True)
        events = queries.events_after(session, study_id, after, PAGE_EVENTS)
    return Batch(after, events, state in FINISHED_STATES and len(events) < PAGE_EVENTS)
