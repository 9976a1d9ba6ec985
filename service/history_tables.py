"""What the history, sweeps and fleets say, as tables for a terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from service.tables import PIPED_WIDTH, SHOWN_METRICS, design_line, metric_heading, metric_text


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else PIPED_WIDTH)


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
    (console or _console()).print(table)


def print_facets(document: Mapping[str, Any], console: Console | None = None) -> None:
    """Print how designs spread over fields."""
    out = console or _console()
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


def print_sweep(document: Mapping[str, Any], console: Console | None = None) -> None:
    """Print one matrix for each objective of a sweep."""
    out = console or _console()
    for heat_map in document["heat_maps"]:
        columns, rows = heat_map["x"], heat_map["y"] or {"name": "", "labels": [""]}
        held = ", ".join(f"{name} {index}" for name, index in heat_map["at"].items())
        title = f"{document['name']}: {metric_heading(heat_map['metric'])}" + (f" ({held})" if held else "")
        table = Table(escape(f"{rows['name']} / {columns['name']}"), title=title)
        for label in columns["labels"]:
            table.add_column(escape(label), justify="right")
        for label, values in zip(rows["labels"], heat_map["values"], strict=True):
            texts = ["none feasible" if v is None else metric_text(heat_map["metric"], v) for v in values]
            table.add_row(escape(label), *texts)
        out.print(table)


def print_fleets(document: Mapping[str, Any], console: Console | None = None) -> None:
    """Print the fleets of a weekly demand, the smallest first."""
    out = console or _console()
    table = Table("chip", title=f"{document['name']}: at most {document['peak_requests_per_s']:.4g} requests/s")
    for heading in ("systems", "chips", "mean load", "peak site power [kW]", "USD/month", "USD/million requests"):
        table.add_column(escape(heading), justify="right")
    table.add_column("fits the site")
    for each in document["fleets"]:
        table.add_row(
            each["chip"], f"{each['systems'] - each['spare_systems']} + {each['spare_systems']}", str(each["chips"]),
            f"{each['mean_load']:.0%}", f"{each['peak_site_power_w'] / 1e3:.1f}", f"{each['usd_per_month']:.0f}",
            f"{each['usd_per_million_requests']:.2f}", "yes" if each["fits_site"] else "no",
        )  # fmt: skip
    out.print(table)
    for each in document["cannot_serve"]:
        out.print(f"{each['chip']} cannot serve it: {each['limit']}")
