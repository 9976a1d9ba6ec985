"""One router for each resource."""

from __future__ import annotations

from service.api import (
    catalog,
    designs,
    evaluations,
    events,
    exports,
    health,
    keys,
    measurements,
    metrics,
    networks,
    profiles,
    schedules,
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
    catalog.router,
    designs.router,
    evaluations.router,
    events.router,
    exports.router,
    keys.router,
    measurements.router,
    networks.router,
    profiles.router,
    schedules.router,
    suggestions.router,
    sweeps.router,
    workloads.router,
)
