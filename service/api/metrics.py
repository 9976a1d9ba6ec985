"""Metrics for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST

from service.dependencies import DatabaseOf, EngineOf, MetricsOf, SettingsOf
from service.errors import problem_responses

router = APIRouter(tags=["health"])


@router.get(
    "/metrics",
    operation_id="metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={
        200: {"description": "Text form of Prometheus", "content": {"text/plain": {"schema": {"type": "string"}}}},
        **problem_responses(503),
    },
)
def metrics(found: MetricsOf, database: DatabaseOf, engine: EngineOf, settings: SettingsOf) -> Response:
    """Return counts and durations of requests, studies by state, live and stale executors, and the process's own."""
    text = found.text(database, engine.model_version, settings.stale_after_s)
    return Response(text, media_type=CONTENT_TYPE_LATEST)
