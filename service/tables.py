"""Results as tables for a terminal, with units people use."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from models.metrics import METRICS
from models.metrics.reported import REPORTED
from service.work_tables import print_work

SHOWN_METRICS = ("output_tokens_per_s", "ttft_p95_s", "tpot_p95_s", "area_mm2", "average_power_w", "unit_cost_usd")
MAX_ROWS = 20

_SCALES: Mapping[str, tuple[float, str]] = {"s": (1e3, "ms")}
"""Unit inside -> factor and unit shown."""


def print_result(result: Mapping[str, Any], console: Console | None = None) -> None:
    """Print the front and the recommendation of a study."""
    out = console or Console()
    out.print(
        f"[bold]{result['study']['name']}[/bold]: {result['evaluated']} of {result['space_designs']:.3g} designs judged"
        f" in {result['wall_s']:.1f} s, {result['feasible_designs']} feasible"
    )
    if result["recommended"] is None:
        limit = result["binding_limit"]
        out.print(f"No design is feasible: the nearest exceeds {limit['limit']} by {limit['excess_fraction']:.1%}.")
        return
    objectives = [each["metric"] for each in result["study"]["objectives"]]
    out.print(_front_table(result["pareto"], objectives))
    out.print("[bold]Recommended[/bold]")
    out.print(_point_table(result["recommended"]))
    _print_warnings(result, out)
    for entry in result["certificate"]:
        out.print(_certificate_line(entry))
    for row in result.get("robustness", {}).get("scenarios", []):
        out.print(_regret_line(row))
    if result["explanation"].get("summary"):
        out.print(result["explanation"]["summary"])


def _certificate_line(entry: Mapping[str, Any]) -> str:
    """One line on what is proven of an objective or of the front."""
    effort = f"{entry['boxes']} boxes, {entry['wall_s']:.1f} s"
    if entry["gap"] is None:
        return f"Certificate: nothing is proven of {entry['metric']} yet ({effort})"
    if entry["bound"] is None:
        volume = entry.get("hypervolume")
        shown = "" if volume is None else f"; hypervolume {volume['lower']:.4g} to {volume['upper']:.4g}"
        proven = f"no design beats the front by more than {entry['gap']:.2%} in every objective{shown}"
        return f"Certificate: {proven} ({effort})"
    return (
        f"Certificate: no design is better in {entry['metric']} than {entry['bound']:.6g}"
        f" (gap {entry['gap']:.2%}, {effort})"
    )


def _regret_line(row: Mapping[str, Any]) -> str:
    """One line on what the recommended design loses on a scenario."""
    if row["regret"] is None:
        return f"Regret on {row['name']}: no design of the space was found that serves it within its limits"
    most = "" if row["regret_at_most"] is None else f", at most {row['regret_at_most']:.1%}"
    return f"Regret on {row['name']}: {row['regret']:.1%} of the best rate found{most}"


def _front_table(front: Sequence[Mapping[str, Any]], objectives: Sequence[str]) -> Table:
    table = Table(title="Pareto front" if len(objectives) > 1 else "Best design")
    metrics = list(dict.fromkeys([*objectives, *SHOWN_METRICS]))
    present = [name for name in metrics if name in front[0]["metrics"]]
    for name in present:
        table.add_column(metric_heading(name), justify="right")
    table.add_column("design")
    for point in front[:MAX_ROWS]:
        table.add_row(*[metric_text(name, point["metrics"][name]) for name in present], design_line(point["params"]))
    return table


def metric_heading(name: str) -> str:
    """A metric's name with the unit it is shown in."""
    metric = METRICS.get(name) or REPORTED.get(name)
    return name if metric is None else escape(f"{name} [{_SCALES.get(metric.unit, (1.0, metric.unit))[1]}]")


def metric_text(name: str, value: float) -> str:
    """A metric's value in the unit it is shown in."""
    metric = METRICS.get(name)
    factor = 1.0 if metric is None else _SCALES.get(metric.unit, (1.0, ""))[0]
    return f"{value * factor:.4g}"


def design_line(params: Mapping[str, Any]) -> str:
    """One design in a line: arrays, cores, memories, links."""
    shape = "x".join(str(size) for size in params["array_shape"])
    return (
        f"{params['n_cores']} cores x {params['arrays_per_core']} x {shape}, {params['clock']:g} GHz,"
        f" {params['scratchpad_per_core']:g} KiB/core, L2 {params['l2']:g} MiB,"
        f" {params['memory_stacks']} x {params['memory_kind']}, link {params['scale_up_link']:g} GB/s"
    )


def _point_table(point: Mapping[str, Any]) -> Table:
    table = Table(show_header=False)
    for name, value in point.get("params", {}).items():
        table.add_row(name, str(value))
    for name, value in point["operating_point"].items():
        if name == "runners_up":
            for each in value:
                table.add_row("runner-up", _plan_line(each))
        else:
            table.add_row(name, _plain(value) if isinstance(value, Mapping) else str(value))
    for name, value in point["metrics"].items():
        if isinstance(value, float):
            table.add_row(metric_heading(name), metric_text(name, value))
    for name, value in point.get("percentiles", {}).items():
        if isinstance(value, bool | float | str):
            table.add_row(f"replayed {name}", f"{value:.4g}" if isinstance(value, float) else str(value))
    return table


def _plain(values: Mapping[str, Any]) -> str:
    """A small mapping in a line, those inside it in brackets."""
    return ", ".join(f"{name} {_shown(value)}" for name, value in values.items())


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"({_plain(value)})"
    return f"{value:.4g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def _plan_line(runner_up: Mapping[str, Any]) -> str:
    """One plan of a design beside the chosen one: degrees, value and what binds it."""
    beyond = "" if runner_up["feasible"] else f" exceeded by {runner_up['excess_fraction']:.0%}"
    return f"{_plain(runner_up['plan'])}: {_plain(runner_up['values'])}; bound by {runner_up['binds']}{beyond}"


def print_evaluation(result: Mapping[str, Any], console: Console | None = None) -> None:
    """Print one judged design or chip."""
    out = console or Console()
    name = result.get("chip", {}).get("name", "design")
    verdict = "does the work" if result["serves"] else "does not do the work: " + _worst(result["excess_fractions"])
    out.print(f"[bold]{name}[/bold] {verdict}")
    out.print(_point_table(result))
    print_work(result, out)
    _print_warnings(result, out)


def _print_warnings(result: Mapping[str, Any], out: Console) -> None:
    for each in result.get("warnings", []):
        out.print(f"warning: {escape(each['detail'])}")


def _worst(excess: Mapping[str, float]) -> str:
    name = max(excess, key=lambda key: excess[key])
    return f"{name} exceeded by {excess[name]:.1%}"


def print_workload(document: Mapping[str, Any], console: Console | None = None) -> None:
    """Print request statistics and operator sizes of a trace or a study."""
    out = console or Console()
    out.print(f"[bold]{escape(document['name'])}[/bold]")
    for each in document.get("scenarios", [document]):
        if "scenarios" in document:
            out.print(f"Scenario {escape(each['name'])} ({each['kind']})")
        if "requests" in each:
            out.print(_request_table(each))
        if "operators" in each:
            _print_operators(each["operators"], out)


def _request_table(document: Mapping[str, Any]) -> Table:
    requests, classes = document["requests"], document["classes"]
    table = Table("requests", "mean", "p50", "p90", "p99", "max")
    for name in ("input_tokens", "output_tokens"):
        table.add_row(name, *[f"{requests[name][key]:.5g}" for key in ("mean", "p50", "p90", "p99", "max")])
    for name in ("count", "rate_per_s", "interarrival_cv", "prefix_hit_fraction"):
        if requests[name] is not None:
            table.add_row(name, f"{requests[name]:.5g}")
    if requests["n_dropped_rows"]:
        table.add_row("rows without tokens, left out", str(requests["n_dropped_rows"]))
    errors = [classes[f"{name}_error_fraction"] for name in ("prefill", "kv_length", "total_tokens")]
    table.add_row("classes", str(classes["n_classes"]))
    table.add_row("largest error of the classes", f"{max(errors):.2%}")
    return table


def _print_operators(operators: Mapping[str, Any], out: Console) -> None:
    totals = operators["totals"]
    intensity = totals["arithmetic_intensity_flop_per_byte"] or 0.0
    out.print(
        f"One step on one {operators['reference_chip']}: {totals['flop'] / 1e12:.4g} TFLOP,"
        f" {totals['bytes'] / 1e9:.4g} GB, {intensity:.4g} FLOP/B, {totals['roofline_s'] * 1e3:.4g} ms at the roofline"
    )
    table = Table("operator", "m", "n", "k", "times", "FLOP", "bytes", "time at roofline", "FLOP/B")
    for row in operators["largest"][:MAX_ROWS]:
        sizes = [f"{row[name]:.6g}" if name in row else "" for name in ("m", "n", "k", "count")]
        shares = [f"{row[f'{name}_fraction']:.1%}" for name in ("flop", "bytes", "roofline")]
        table.add_row(row["name"], *sizes, *shares, f"{row['arithmetic_intensity_flop_per_byte'] or 0.0:.4g}")
    out.print(table)


def print_chips(documents: Iterable[Mapping[str, Any]], console: Console | None = None) -> None:
    """Print the catalogue of chips."""
    table = Table("id", "name", "vendor", "year", r"node \[nm]", r"TDP \[W]", r"memory \[GB/s]", "confidence")
    for each in documents:
        design = each["design"]
        table.add_row(
            each["id"], each["name"], each["vendor"], str(each["year"] or ""), f"{design['node_nm']:g}",
            f"{design['tdp_w']:g}", f"{design['memory_bandwidth_bytes_per_s'] / 1e9:.0f}", each["confidence"],
        )  # fmt: skip
    (console or Console()).print(table)


def print_networks(documents: Iterable[Mapping[str, Any]], console: Console | None = None) -> None:
    """Print the catalogue of networks."""
    table = Table("name", "kind", "layers", "parameters [1e9]", "active [1e9]", "KV [KiB/token, bf16]", "context")
    for each in documents:
        table.add_row(
            each["name"], each["kind"], str(each["n_layers"]), f"{each['n_parameters'] / 1e9:.3f}",
            f"{each['n_active_parameters'] / 1e9:.3f}", f"{each['kv_bytes_per_token_bf16'] / 1024:.1f}",
            str(each["max_context_tokens"]),
        )  # fmt: skip
    (console or Console()).print(table)


def print_keys(documents: Iterable[Mapping[str, Any]], console: Console | None = None) -> None:
    """Print the API keys, times in UTC."""
    table = Table("id", "name", "scope", "created", "expires", "revoked", "last used")
    for each in documents:
        names = ("created_at", "expires_at", "revoked_at", "last_used_at")
        moments = [(each[name] or "")[:16].replace("T", " ") for name in names]
        table.add_row(each["id"], escape(each["name"]), each["scope"], *moments)
    (console or Console()).print(table)


def print_presets(document: Mapping[str, Any], console: Console | None = None) -> None:
    """Print the names a study may use."""
    out = console or Console()
    requests = Table("requests", "kind", "input [tokens]", "output [tokens]")
    for each in document["requests"]:
        sides = [f"{each[f'{s}_mean_tokens']:g} ± {each[f'{s}_std_tokens']:g}" if f"{s}_mean_tokens" in each else ""
                 for s in ("input", "output")]  # fmt: skip
        requests.add_row(each["name"], each["kind"], *sides)
    out.print(requests)
    recipes = Table("precision recipe", "KL [nats/token, 32 layers]", "KV [bits]")
    for each in document["precision_recipes"]:
        recipes.add_row(each["name"], f"{each['kl_nats_32_layers']:.4f}", f"{each['kv_bits']:g}")
    out.print(recipes)
    for title, key in (("metric", "metrics"), ("reported metric", "reported_metrics")):
        metrics = Table(title, "unit", "better", "meaning")
        for each in document[key]:
            metrics.add_row(each["name"], each["unit"], each["direction"], each["description"])
        out.print(metrics)
    out.print("samplers: " + ", ".join(document["samplers"]))
    out.print("scenario kinds: " + ", ".join(document["scenario_kinds"]))


def print_amplification(document: Mapping[str, Any], console: Console | None = None) -> None:
    """Print a measured profile, the most sensitive site first."""
    out = console or Console()
    out.print(f"[bold]{escape(document['name'])}[/bold]: {document['n_layers']} layers, {document['source']}")
    table = Table("site", "amplification, floating point", "amplification, integer")
    floats, integers = document["float_amplification"], document["int_amplification"]
    for site in sorted(floats, key=lambda each: -max(floats[each], integers[each])):
        table.add_row(site, f"{floats[site]:.2f}", f"{integers[site]:.2f}")
    out.print(table)


ERROR_COLUMNS: Mapping[str, str] = {
    "mape": "error", "calibrated_mape": "profile", "leave_one_device_out_mape": "left out", "roofline_mape": "roofline",
    "bias": "bias", "interval_coverage": "inside",
}  # fmt: skip
"""Field of a group -> heading; all are fractions, shown in percent."""
RANK_COLUMNS: Mapping[str, str] = {"kendall_tau": "tau", "concordance": "pairs"}
PIPED_WIDTH = 200
"""Characters of a line where the output is no terminal."""


def print_validation(document: Mapping[str, Any], console: Console | None = None) -> None:
    """Print predicted against measured: one line per group, errors in percent."""
    groups = document["tables"]
    errors = {name: heading for name, heading in ERROR_COLUMNS.items() if any(g[name] is not None for g in groups)}
    table = Table(
        "table", "group", "device", "format", "quantity", title="Predicted against measured, mean errors in %"
    )
    for heading in ("rows", "skipped", *errors.values(), *RANK_COLUMNS.values()):
        table.add_column(heading, justify="right")
    for each in groups:
        left_over = each["out_of_scope"] + sum(skip["rows"] for skip in each["skipped"])
        table.add_row(
            *(escape(str(each[name])) for name in ("table", "group", "device", "dtype", "quantity")),
            str(each["rows"]), str(left_over or ""),
            *("" if each[name] is None else f"{100 * each[name]:.1f}" for name in errors),
            *("" if each[name] is None else f"{each[name]:.3f}" for name in RANK_COLUMNS),
        )  # fmt: skip
    out = console or Console(width=None if sys.stdout.isatty() else PIPED_WIDTH)
    out.print(table)


def print_calibration(document: Mapping[str, Any], console: Console | None = None) -> None:
    """Print how far each constant of a fitted profile moved, and the errors before and after."""
    out = console or Console()
    errors = Table(title=f"Profile {document['profile']} of {document['device']}: mean errors")
    for heading in ("family", "rows", "before", "after", "shapes left out"):
        errors.add_column(heading, justify="left" if heading == "family" else "right")
    for family, fit in document["families"].items():
        held_out = "-" if fit["mape_held_out"] is None else f"{fit['mape_held_out']:.1%}"
        errors.add_row(family, str(fit["rows"]), f"{fit['mape_before']:.1%}", f"{fit['mape_after']:.1%}", held_out)
    out.print(errors)
    moved = Table(title="Constants, over the global ones")
    for heading in ("family", "constant", "ratio"):
        moved.add_column(heading, justify="right" if heading == "ratio" else "left")
    for family, values in document["constants"].items():
        for name, ratio in values.items():
            moved.add_row(family, name, f"{ratio:.3g}")
    out.print(moved)


def print_profiles(documents: Iterable[Mapping[str, Any]], console: Console | None = None) -> None:
    """Print calibration profiles with the families each of them holds."""
    table = Table(title="Calibration profiles")
    for heading in ("name", "device", "families", "tables"):
        table.add_column(heading)
    for each in documents:
        table.add_row(each["name"], each["device"], ", ".join(each["constants"]), ", ".join(each["tables"]))
    (console or Console()).print(table)


def print_search_quality(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the gap that each sampler leaves to the certified optimum."""
    out = Console()
    for row in rows:
        certified = row["certified"]
        table = Table(
            title=f"{row['study']}: {certified['metric']} {certified['best']:.5g}, proven to {certified['gap']:.2%}"
            f" in {certified['cpu_s']:.1f} s of CPU"
        )
        for column in ("sampler", "trials", "gap, median", "gap, p90", "hypervolume", "CPU s"):
            table.add_column(column, justify="left" if column == "sampler" else "right")
        for each in row["samplers"]:
            shares = [each[name] for name in ("gap_median", "gap_p90", "hypervolume_ratio")]
            gaps = ["" if share is None else f"{share:.1%}" for share in shares]
            table.add_row(each["sampler"], str(each["trials"]), *gaps, f"{each['cpu_s']:.1f}")
        out.print(table)
