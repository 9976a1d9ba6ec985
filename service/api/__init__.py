"""One router for each resource."""

from __future__ import annotations

from service.api import (
    catalog,
    designs,
    evaluations,
    events,
    health,
    keys,
    measurements,
    metrics,
    networks,
    profiles,
    studies,
    study_copies,
    suggestions,
    sweeps,
    workloads,
)

ROUTERS = (
    health.router,
    metrics.router,
    studies.router,
    study_copies.router,
    suggestions.router,
    sweeps.router,
    events.router,
    designs.router,
    evaluations.router,
    workloads.router,
    networks.router,
    profiles.router,
    measurements.router,
    catalog.router,
    keys.router,
)
