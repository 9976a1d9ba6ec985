"""Sizes of the work and the cost of moving data, as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

LEAST_FRACTION = 5e-4
"""Items below this share of time and energy are not shown."""

MAX_CHANGES = 12


def print_work(result: Mapping[str, Any], out: Console) -> None:
    """Print sizes and cost of movement of each scenario of an evaluation or an explanation."""
    for name, sizes, moved in _scenarios(result):
        if "compute" in sizes:
            out.print(_size_line(sizes["compute"]))
            out.print(_curve_table(name, sizes["compute"]["curve"]))
        out.print(_moved_table(name, moved))
        if sizes.get("lowering"):
            out.print(_lowering_table(name, sizes["lowering"]))
    if "against" in result:
        out.print(_change_table(result["against"]))
    for name, each in result.get("unrolling", {}).get("scenarios", {}).items():
        out.print(_unrolling_table(name, result["unrolling"]["shapes"], each))


def _scenarios(result: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    if "items" in result["reshape_cost"]:
        yield "", result["sizes"], result["reshape_cost"]
        return
    for name, moved in result["reshape_cost"].items():
        yield f" of {name}", result["sizes"][name], moved


def _size_line(compute: Mapping[str, Any]) -> str:
    typical, best = compute["typical"], compute["best_fraction"]["compute"]
    return (
        f"Typical product {typical['name']}: {typical['m']:.4g} x {typical['n']:.6g} x {typical['k']:.6g} in"
        f" {typical['format']} at {typical['compute_utilization']:.1%} of the peak, best of any size {best:.1%},"
        f" good from a square of {compute['curve']['smallest_good_side']:.0f} on"
    )


def _curve_table(name: str, curve: Mapping[str, Sequence[float]]) -> Table:
    table = Table(title=f"Share of the peak by side of a square product in {curve['format']}, and the work{name}")
    for column in ("side", "arrays", "binding resource", "work"):
        table.add_column(column, justify="right")
    rows = zip(
        curve["side"], curve["compute_utilization"], curve["binding_utilization"], curve["work_fraction"], strict=True
    )
    for side, compute, binding, share in rows:
        if side == int(side) or share:
            table.add_row(f"{side:.0f}", f"{compute:.1%}", f"{binding:.1%}", f"{share:.1%}" if share else "")
    return table


def _moved_table(name: str, moved: Mapping[str, Any]) -> Table:
    table = Table(
        title=f"Moving without computing{name}: {moved['time_fraction']:.1%} of the time,"
        f" {moved['energy_fraction']:.1%} of the energy, {moved['bytes_per_flop']:.2g} B/FLOP"
    )
    for column in ("item", "layer", "paid", "time", "energy"):
        table.add_column(column, justify="right" if column in ("time", "energy") else "left", no_wrap=True)
    for row in moved["items"]:
        if max(row["time_fraction"], row["energy_fraction"]) >= LEAST_FRACTION:
            shares = [f"{row[f'{part}_fraction']:.1%}" for part in ("time", "energy")]
            table.add_row(row["item"], row["layer"], row["paid"], *shares)
    for row in moved["paid_once"]:
        seconds = "" if row["seconds"] is None else f"{row['seconds']:.3g} s once"
        table.add_row(f"{row['item']}, {row['bytes'] / 1e9:.4g} GB", row["layer"], row["paid"], seconds, "")
    return table


def _change_table(against: Mapping[str, Any]) -> Table:
    other = against.get("chip", {}).get("name", "the other design")
    table = Table(title=f"Where the cost of movement went, against {other}, per unit of work")
    for column in ("item", "layer", "ms before", "ms now", "J before", "J now"):
        table.add_column(column, justify="left" if column in ("item", "layer") else "right", no_wrap=column == "item")
    for row in against["moved_cost"][:MAX_CHANGES]:
        seconds, joules = (
            [f"{scale * row[f'{part}_{when}']:.3g}" for when in ("before", "after")]
            for part, scale in (("seconds_per_unit", 1e3), ("energy_per_unit_j", 1.0))
        )
        table.add_row(row["item"], row["layer"], *seconds, *joules)
    return table


def _lowering_table(name: str, lowering: Mapping[str, Any]) -> Table:
    table = Table(
        title=f"Convolutions{name}: {1e3 * lowering['direct_s']:.3g} ms direct, {1e3 * lowering['im2col_s']:.3g} ms"
        f" through im2col, which moves {lowering['expansion_bytes'] / 1e6:.4g} MB more"
    )
    for column in ("layer", "times", "m", "n", "k", "us direct", "us im2col", "MB more"):
        table.add_column(column, justify="left" if column == "layer" else "right", no_wrap=column == "layer")
    for row in lowering["layers"]:
        table.add_row(
            row["name"], str(row["count"]), *[f"{row[size]:.6g}" for size in ("m", "n", "k")],
            f"{1e6 * row['direct_s']:.3g}", f"{1e6 * row['im2col_s']:.3g}", f"{row['expansion_bytes'] / 1e6:.3g}",
        )  # fmt: skip
    return table


def _unrolling_table(name: str, shapes: Sequence[Mapping[str, Any]], scenario: Mapping[str, Any]) -> Table:
    """Rates as percent of the best array at each scale; operands are in bf16."""
    table = Table(title=f"The same peak in other arrays on {name}: percent of the best rate by {scenario['scale']}")
    table.add_column("array", no_wrap=True)
    for column in ("mm2", "TB/s", *[f"{scale:g}" for scale in scenario["scales"]]):
        table.add_column(column, justify="right", no_wrap=True)
    best = [max(rates) for rates in zip(*scenario["units_per_s"].values(), strict=True)]
    for shape, (array, rates) in zip(shapes, scenario["units_per_s"].items(), strict=True):
        shares = [f"{100.0 * rate / most:.0f}" if most else "" for rate, most in zip(rates, best, strict=True)]
        operands = f"{shape['operand_bandwidth_bytes_per_s'] / 1e12:.3g}"
        table.add_row(array, f"{shape['area_mm2']:.0f}", operands, *shares)
    return table
