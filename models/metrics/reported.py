"""Metrics that a report works out for designs at their operating points, and that no search uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class ReportedMetric:
    """What a reported metric is called by; it is neither an objective nor certified, since it bounds no box."""

    unit: str
    direction: str
    description: str


REPORTED: Mapping[str, ReportedMetric] = {
    "size_hit_rate": ReportedMetric(
        "1", "maximize", "Work, by time at the roofline, whose matrix products the arrays run at 80 % of their best"
    ),
    "size_hit_rate_binding": ReportedMetric(
        "1", "maximize", "Work whose matrix products come within 80 % of the best that the binding resource reaches"
    ),
    "typical_to_best": ReportedMetric("1", "maximize", "Rate of the arrays at the typical product over their best"),
    "typical_to_best_binding": ReportedMetric(
        "1", "maximize", "Share of the binding resource at the typical product over the best share"
    ),
    "reshape_cost": ReportedMetric("1", "minimize", "Time that moves or reshapes data without computing"),
    "reshape_energy_fraction": ReportedMetric("1", "minimize", "Energy that moves or reshapes data without computing"),
    "reshape_bytes_per_flop": ReportedMetric(
        "B/FLOP", "minimize", "Bytes moved without computing in memory, buffer and links for each useful FLOP"
    ),
}
"""Metric key -> what it is; evaluations and explanations state them beside the metrics of the search."""
