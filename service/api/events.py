"""Progress of a study as server-sent events, replayed from the database by `Last-Event-ID`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query
from sse_starlette import EventSourceResponse, ServerSentEvent

from service.api.location import StudyId
from service.db import queries
from service.dependencies import EventFeedOf, ReadSession
from service.errors import problem_responses
from service.event_feed import EventFeed

_LARGEST_ID = 2**31 - 1

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
    study_id: StudyId,
    session: ReadSession,
    feed: EventFeedOf,
    last_event_id: Annotated[str | None, Header(description="Id of the last event seen", max_length=20)] = None,
    follow: Annotated[bool, Query(description="Wait for further events until the study ends")] = True,
) -> EventSourceResponse:
    """Send every event after `Last-Event-ID`, then new ones as they come; the stream ends with the study."""
    queries.study_state(session, study_id)
    after = min(int(last_event_id), _LARGEST_ID) if last_event_id and last_event_id.isdecimal() else 0
    return EventSourceResponse(_events(feed, study_id, after, follow), ping=15)


async def _events(feed: EventFeed, study_id: str, after: int, follow: bool) -> AsyncIterator[ServerSentEvent]:
    batch = await feed.now(study_id, after)
    while True:
        for event in batch.events:
            after = event.id
            yield ServerSentEvent(data=json.dumps(event.data), event=event.kind, id=str(event.id))
        if batch.is_last or not follow:
            return
        batch = await feed.next(study_id, after)
