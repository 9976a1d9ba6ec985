"""Metrics in Prometheus' form: what HTTP did, and what the database holds when they are asked for."""

from __future__ import annotations

from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

from service.db import executors, queries
from service.db.session import Database, reading
from service.engine import package_version
from service.jobs.supervisor import is_alive
from service.schemas.states import STUDY_STATES

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_DURATION_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


@dataclass
class Metrics:
    """The metrics of one application."""

    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def __post_init__(self) -> None:
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.requests = Counter(
            "chipfit_http_requests", "Requests answered", ["method", "route", "status"], registry=self.registry
        )
        self.durations = Histogram(
            "chipfit_http_request_duration_seconds", "Time until a request was answered", ["method", "route"],
            buckets=_DURATION_BOUNDS_S, registry=self.registry,
        )  # fmt: skip
        self.studies = Gauge("chipfit_studies", "Studies by state", ["state"], registry=self.registry)
        self.executors = Gauge("chipfit_executors", "Processes by heartbeat", ["state"], registry=self.registry)
        self.info = Gauge("chipfit_info", "Versions", ["version", "model_version"], registry=self.registry)

    def note_request(self, method: str, route: str, status: int, duration_s: float) -> None:
        """Count one answered request; a method nobody knows is `other`, so that callers make no new series."""
        method = method if method in _METHODS else "other"
        self.requests.labels(method, route, str(status)).inc()
        self.durations.labels(method, route).observe(duration_s)

    def text(self, database: Database, model_version: str, stale_after_s: float) -> bytes:
        """Return all metrics, those of the database read now."""
        with reading(database) as session:
            counts = queries.count_by_state(session)
            alive = [is_alive(row, age_s, stale_after_s) for row, age_s in executors.list_executors(session)]
        for state in STUDY_STATES:
            self.studies.labels(state).set(counts.get(state, 0))
        self.executors.labels("alive").set(sum(alive))
        self.executors.labels("stale").set(len(alive) - sum(alive))
        self.info.labels(package_version(), model_version).set(1)
        return generate_latest(self.registry)
