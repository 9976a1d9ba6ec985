"""A few plain sentences about a design, made from the numbers of its explanation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WORDS = {
    "compute": "the matrix arrays",
    "vector_lanes": "the vector lanes",
    "on_chip_port": "the ports of the cores to the shared buffer",
    "memory_bandwidth": "main-memory bandwidth",
    "memory_capacity": "main-memory capacity",
    "scale_up_link": "the links inside a node",
    "scale_out_link": "the links between nodes",
    "host_io": "the link to the host",
    "host_scheduling": "the host's scheduling",
    "power_cap": "the power cap",
    "error_budget": "the error budget",
    "fall_back": "formats that the arrays do not run",
    "latency": "starts of kernels and messages",
}


def summary_of(explanation: Mapping[str, Any], metric: str) -> str:
    """Sentences on what binds, what relief would bring, what is left of the budget, and the best chip to buy."""
    parts = (
        _waits(explanation["time_shares"]),
        _relief(explanation["bottleneck_chain"], metric),
        _movement(explanation["reshape_cost"]),
        _slack(explanation["slack_fractions"]),
        _growth(explanation["questions"]),
        _buy(explanation.get("build_or_buy"), metric),
    )
    return " ".join(each for each in parts if each)


def _waits(shares: Mapping[str, float]) -> str:
    resources = sorted((name for name in shares if name != "power_cap"), key=lambda name: -shares[name])
    named = [f"{_percent(shares[name])} for {WORDS[name]}" for name in resources[:3] if shares[name] >= 0.01]
    text = f"Of its time the design waits {', '.join(named)}."
    cap = shares["power_cap"]
    held = f" The power cap holds the clock back: a percent more power is {cap:.2f} % more rate."
    return text + held if cap > 0.01 else text


def _relief(chain: list[dict[str, Any]], metric: str) -> str:
    if not chain:
        return ""
    first = chain[0]
    amount = first.get("change") or f"{first['factor']:.2g} times as much"
    text = f"What binds {metric} is {WORDS[first['resource']]}: {amount} gains {_percent(first['gain_fraction'])}"
    if abs(first["area_mm2"]) >= 0.5 or abs(first["power_w"]) >= 0.5:
        text += f" and costs {first['area_mm2']:.0f} mm2 and {first['power_w']:.0f} W"
    following = [WORDS[each["resource"]] for each in chain[1:4]]
    return f"{text}; then come {', '.join(following)}." if following else f"{text}."


def _movement(moved: Mapping[str, Any]) -> str:
    """Time and energy that move data without computing, of the one scenario."""
    if "items" not in moved:
        return ""
    largest = moved["items"][0] if moved["items"] else None
    if largest is None or moved["time_fraction"] < 0.005:
        return ""
    name = largest["item"].replace("_", " ")
    return (
        f"Moving and reshaping data without computing takes {_percent(moved['time_fraction'])} of the time and"
        f" {_percent(moved['energy_fraction'])} of the energy, the most of the time for {name}"
        f" ({_percent(largest['time_fraction'])})."
    )


def _slack(slack: Mapping[str, float]) -> str:
    tight = sorted((name for name, left in slack.items() if left < 0.05), key=lambda name: slack[name])
    if not tight:
        return "No limit of the study is closer than 5 %."
    close = [f"{name} ({_percent(slack[name])} left)" for name in tight if slack[name] >= 0]
    broken = [f"{name} by {_percent(-slack[name])}" for name in tight if slack[name] < 0]
    parts = ["Within 5 % of a limit: " + ", ".join(close) + "."] if close else []
    return " ".join(parts + (["Over a limit: " + ", ".join(broken) + "."] if broken else []))


def _growth(questions: Mapping[str, Any]) -> str:
    rows = list(questions["growth"].values())
    if len(rows) != 1:
        return ""
    row = rows[0]
    engine = "one chip" if row["engine_chips"] == 1 else f"{row['engine_chips']} chips"
    engine += f" in {row['engine_nodes']} nodes" if row["engine_nodes"] > 1 else ""
    if not row["fits_4x_length"]:
        grown = row["engine_chips_at_4x_length"]
        needed = "more of them" if grown is None else f"{grown}"
        outside = ", more than a node has" if row["leaves_node_at_4x_length"] else ""
        return f"An engine is {engine}; requests four times as long would need {needed}{outside}."
    kept = "at the same batch" if row["keeps_batch_at_4x_length"] else "at a smaller batch"
    return f"An engine is {engine}, which also holds requests four times as long {kept}."


def _buy(chips: list[dict[str, Any]] | None, metric: str) -> str:
    if chips is None:
        return ""
    if not chips:
        return "No chip of the catalogue does this work within its limits."
    best = chips[0]
    gain = best["design_better_fraction"].get(metric)
    if gain is None:
        return ""
    verdict = f"{_percent(abs(gain))} {'better' if gain >= 0 else 'worse'} in {metric}"
    outside = "" if best["within_budget"] else " (outside the study's budget)"
    return f"Against the best chip to buy, {best['name']}{outside}, the design is {verdict}."


def _percent(fraction: float) -> str:
    return f"{100.0 * fraction:.1f} %" if abs(fraction) < 0.1 else f"{100.0 * fraction:.0f} %"
