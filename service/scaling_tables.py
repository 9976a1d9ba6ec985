"""How a design scales out, as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

PLAN_WORDS = {
    "tensor_parallel": "tensor",
    "attention_data_parallel": "groups",
    "expert_parallel": "experts",
    "pipeline_parallel": "stages",
    "data_parallel": "copies",
}
"""Degree of a plan -> how a table calls it."""


def scaling_only(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """The scaling of an evaluation, with what it is of."""
    kept = ("chip", "design", "scaling", "technology", "model_version", "profile")
    return {name: evaluation[name] for name in kept if name in evaluation}


def print_scaling(result: Mapping[str, Any], console: Console | None = None) -> None:
    """Print one table for each scenario, and below it what changed from one size to the next."""
    out = console or Console()
    scaling = result["scaling"]
    for scenario in scaling["scenarios"]:
        title = f"{escape(scenario['name'])}, nodes of {scaling['n_chips_per_node']} chips"
        out.print(_table(title, scenario["steps"]))
        for line in _remarks(scenario["steps"]):
            out.print(escape(line))
        if scenario["breaks"] is not None:
            at = scenario["breaks"]
            out.print(
                f"Scaling breaks at {at['n_chips']} chips: {at['rate_ratio']:.0%} of the best rate per chip,"
                f" {at['lost_time_fraction']:.0%} of the lost time waits for {at['resource']}"
            )


def _table(title: str, steps: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title=title)
    for name in ("chips", "nodes", "units/s", "units/s per chip", "efficiency"):
        table.add_column(name, justify="right")
    table.add_column("plan")
    table.add_column("waits most for")
    for step in steps:
        size = [str(step["n_chips"]), str(step["n_nodes"])]
        if not step["serves"]:
            why = step["refused"] if "refused" in step else f"{step['limit']} exceeded by {step['excess_fraction']:.0%}"
            table.add_row(*size, "", "", "", "", escape(why))
            continue
        binding = step["binding_resource"]
        table.add_row(
            *size, f"{step['units_per_s']:.4g}", f"{step['units_per_s_per_chip']:.4g}",
            f"{step['efficiency_ratio']:.2f}", plan_text(step.get("plan", {})),
            f"{binding} {step['time_shares'][binding]:.0%}",
        )  # fmt: skip
    return table


def plan_text(plan: Mapping[str, Any]) -> str:
    """Degrees of a plan above one, such as `tensor 8 x stages 2`."""
    parts = [f"{word} {plan[name]}" for name, word in PLAN_WORDS.items() if plan.get(name, 1) > 1]
    return " x ".join(parts) or "each chip alone"


def _remarks(steps: Sequence[Mapping[str, Any]]) -> list[str]:
    """Every change of the plan, and the first size whose tensor parallel groups would span nodes."""
    found = []
    for step in (each for each in steps if "plan_change" in each):
        change = step["plan_change"]
        names = f"from {plan_text(change['from'])} to {plan_text(change['to'])}"
        found.append(f"{step['n_chips']} chips: {names}: {change['reason']}")
    wide = [step for step in steps if "tensor_parallel_across_nodes" in step][:1]
    return found + [f"{step['n_chips']} chips: {_across(step['tensor_parallel_across_nodes'])}" for step in wide]


def _across(wide: Mapping[str, Any]) -> str:
    missed = "" if wide["serves"] else f", and exceeds {wide['limit']} by {wide['excess_fraction']:.0%}"
    plan = plan_text(wide["degrees"])
    return f"{plan} would span nodes and reach {wide['rate_ratio']:.2f} of the rate of the plan inside them{missed}"
