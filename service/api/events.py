"""Progress of a study as server-sent events, replayed from the database by `Last-Event-ID`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated

import anyio
from fastapi import APIRouter, Header, Path, Query
from sse_starlette import EventSourceResponse, ServerSentEvent

from service.db import queries
from service.db.queries import FINISHED_STATES
from service.db.session import Database, reading
from service.db.tables import StudyEvent
from service.dependencies import DatabaseOf, ReadSession, SettingsOf
from service.errors import problem_responses

router = APIRouter(prefix="/v1/studies", tags=["studies"])


@router.get(
    "/{study_id}/events",
    operation_id="stream_study_events",
    summary="Stream the progress of a study",
    response_class=EventSourceResponse,
    responses={
        200: {"description": "Events `state` and `progress`", "content": {"text/event-stream": {}}},
        **problem_responses(404, 422, 503),
    },
)
def stream_study_events(
    study_id: Annotated[str, Path(max_length=40, description="Id of the study")],
    session: ReadSession,
    database: DatabaseOf,
    settings: SettingsOf,
    last_event_id: Annotated[str | None, Header(description="Id of the last event seen", max_length=20)] = None,
    follow: Annotated[bool, Query(description="Wait for further events until the study ends")] = True,
) -> EventSourceResponse:
    """Send every event after `Last-Event-ID`, then new ones as they come; the stream ends with the study."""
    queries.study_state(session, study_id)
    after = int(last_event_id) if last_event_id and last_event_id.isdigit() else 0
    events = _events(database, study_id, after, settings.event_poll_interval_s, follow)
    return EventSourceResponse(events, ping=15)


async def _events(
    database: Database, study_id: str, after: int, poll_interval_s: float, follow: bool
) -> AsyncIterator[ServerSentEvent]:
    while True:
        events, ended = await anyio.to_thread.run_sync(_new_events, database, study_id, after)
        for event in events:
            after = event.id
            yield ServerSentEvent(data=json.dumps(event.data), event=event.kind, id=str(event.id))
        if ended or not follow:
            return
        await anyio.sleep(poll_interval_s)


def _new_events(database: Database, study_id: str, after: int) -> tuple[list[StudyEvent], bool]:
    """Events after an id, and whether no more will come."""
    with reading(database) as session:
        try:
            state = queries.study_state(session, study_id)
        except queries.NotFoundError:
            return [], True
        events = queries.events_after(session, study_id, after)
    return events, state in FINISHED_STATES and len(events) < 500
