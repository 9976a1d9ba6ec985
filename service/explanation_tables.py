"""An explanation as text and tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from service.work_tables import print_work

LEAST_SHARE = 0.005
"""Shares below half a percent are not shown."""

MAX_CHIPS = 5


def print_explanation(document: Mapping[str, Any], console: Console | None = None) -> None:
    """Print what binds a design, what relief brings, and what stands beside it."""
    out = console or Console()
    if not document:
        out.print("No design of the study is feasible: there is nothing to explain.")
        return
    explanation = document["explanation"]
    out.print(explanation["summary"])
    out.print(_chain_table(explanation["bottleneck_chain"]))
    out.print(_share_table(explanation["time_shares"]))
    out.print(_return_table(explanation["resource_return"]))
    print_work(explanation, out)
    if "parameter_sensitivity" in explanation:
        out.print(_step_table(explanation["parameter_sensitivity"]))
    out.print(_chip_table(explanation["build_or_buy"]))
    if "next_budget" in explanation:
        for line in _budget_lines(explanation["next_budget"]):
            out.print(line)
    for flip in explanation.get("flip_distance", [])[:MAX_CHIPS]:
        if flip["relative_change"] is not None:
            out.print(f"{flip['constant']} {flip['relative_change']:+.0%} recommends trial {flip['instead']} instead")


def _chain_table(chain: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title="What binds, step after step")
    for name in ("resource", "times", "predicted gain", "gain", "with its price", "mm2", "W", "until"):
        table.add_column(name, justify="left" if name in ("resource", "until") else "right", no_wrap=name == "resource")
    for step in chain:
        table.add_row(
            step["resource"], "" if step["factor"] is None else f"{step['factor']:.2f}",
            f"{step['predicted_gain_fraction']:.1%}", f"{step['gain_fraction']:.1%}",
            f"{step['net_gain_fraction']:.1%}", f"{step['area_mm2']:.1f}", f"{step['power_w']:.1f}", step["until"],
        )  # fmt: skip
    return table


def _share_table(shares: Mapping[str, float]) -> Table:
    table = Table("waits for", title="Shares of the time")
    table.add_column("share", justify="right")
    for name in sorted((each for each in shares if shares[each] >= LEAST_SHARE), key=lambda each: -shares[each]):
        table.add_row(name, f"{shares[name]:.1%}")
    return table


def _return_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    metrics = list(rows[0]["gain_per_percent"])
    table = Table(title="Percent of gain per percent of a resource")
    table.add_column("resource", no_wrap=True)
    for name in (*metrics, "mm2", "W"):
        table.add_column(name, justify="right")
    for row in rows:
        gains = row["gain_per_percent"]
        if any(abs(value) >= LEAST_SHARE for value in gains.values()):
            shown = [f"{gains[metric]:.2f}" for metric in metrics]
            table.add_row(row["resource"], *shown, f"{row['area_mm2']:.1f}", f"{row['power_w']:.1f}")
    return table


def _step_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    metrics = list(rows[0]["gain_fraction"]) if rows else []
    table = Table(title="Every parameter one step down and up")
    for name in ("parameter", "from", "to", *metrics, "breaks"):
        table.add_column(name, justify="right" if name in metrics else "left", no_wrap=name == "parameter")
    for row in rows:
        gains = [f"{row['gain_fraction'][metric]:+.1%}" for metric in metrics]
        broken = "" if row["feasible"] else f"{row['breaks']} by {row['excess_fraction']:.0%}"
        table.add_row(row["parameter"], str(row["from"]), str(row["to"]), *gains, broken)
    return table


def _chip_table(chips: Sequence[Mapping[str, Any]]) -> Table:
    metrics = list(chips[0]["values"]) if chips else []
    table = Table(title=f"Chips to buy for this work, best first ({len(chips)} serve it)")
    for name in ("chip", *metrics, "design better by", "in budget"):
        table.add_column(name, justify="left" if name == "chip" else "right")
    for row in chips[:MAX_CHIPS]:
        better = ", ".join(f"{value:+.0%}" for value in row["design_better_fraction"].values())
        values = [f"{row['values'][metric]:.4g}" for metric in metrics]
        table.add_row(row["chip"], *values, better, "yes" if row["within_budget"] else "no")
    return table


def _budget_lines(budget: Mapping[str, Any]) -> list[str]:
    lines = []
    for name in ("area", "power"):
        row = budget[name]
        low, high = row["gain_between_fraction"]
        if row["gain_fraction"] is None or high is None:
            lines.append(f"10 % more {name}: nothing was found or proven in the time")
            continue
        gain = max(row["gain_fraction"], 0.0)
        lines.append(f"10 % more {name} buys {gain:.1%} of {budget['metric']}, proven between {low:.1%} and {high:.1%}")
    return lines
