"""One router for each resource."""

from __future__ import annotations

from service.api import catalog, designs, evaluations, events, health, studies

ROUTERS = (health.router, studies.router, events.router, designs.router, evaluations.router, catalog.router)
