"""What the history, sweeps and fleets say, as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from service.tables import SHOWN_METRICS, design_line, metric_heading, metric_text


def print_designs(items: Sequence[Mapping[str, Any]], console: Console | None = None) -> None:
    """Print designs of the history, one in a line."""
    present = [name for name in SHOWN_METRICS if any(name in item["metrics"] for item in items)]
    table = Table(title=f"{len(items)} designs")
    for heading in (["distance"] * ("distance" in items[0] if items else False)) + ["study", "trial"]:
        table.add_column(heading)
    for name in present:
        table.add_column(metric_heading(name), justify="right")
    table.add_column("feasible")
    table.add_column("design")
    for item in items:
        near = [f"{item['distance']:.4f}"] if "distance" in item else []
        values = [metric_text(name, item["metrics"][name]) if name in item["metrics"] else "" for name in present]
        feasible = "yes" if item["feasible"] else f"no: {item['violated']}"
        line = design_line(item["params"]) if "array_shape" in item["params"] else str(item["params"])
        table.add_row(*near, item["study_id"][:8], str(item["number"]), *values, feasible, escape(line))
    (console or Console()).print(table)


def print_facets(document: Mapping[str, Any], console: Console | None = None) -> None:
    """Print how designs spread over fields."""
    out = console or Console()
    out.print(f"{document['count']} designs")
    for facet in document["items"]:
        table = Table(escape(f"{facet['field']} [{facet['unit']}]" if facet["unit"] else facet["field"]), "designs")
        for entry in facet["values"] or []:
            table.add_row(escape(str(entry["value"])), str(entry["count"]))
        histogram = facet["histogram"]
        if histogram is not None:
            width = (histogram["highest"] - histogram["lowest"]) / len(histogram["counts"])
            for i, count in enumerate(histogram["counts"]):
                table.add_row(f"from {histogram['lowest'] + i * width:.5g}", str(count))
        out.print(table)
