"""What a design spends on moving and reshaping data, and where that cost went between two designs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from models.architectures.lowered import weight_elements_per_module
from models.evaluation import ScenarioEvaluation
from models.hardware.design import DesignBatch
from models.hardware.energy import EnergyPerAccess
from models.metrics.phases import Phase
from models.metrics.reshape_cost import Moved, moved_bytes, moved_items, reshape_fraction
from models.serving.steady import CompiledServing
from models.technology import Technology

MAX_OPERATORS = 5
"""Operators named for each item, those with most of it first."""

OFF_ARRAY = ("second_tier", "main_memory", "shared_buffer", "scale_up", "scale_out")
"""Levels whose bytes are added up: operands on their way into the arrays are counted apart, by their energy."""

PUBLISHED_BYTES = 2.0
"""Weights are taken to be published in 16 bit."""

NOT_SEPARATE = {
    "layout_change": "operators write what the next one reads; what leaves the chip is activations_through_memory",
    "head_split_concat": "heads lie beside each other in the rows of a projection: a stride, not a copy",
    "cache_transpose": "the cache is written in the order in which decode reads it; measured kernels hold what is left",
    "activation_kernels": "norms, activations and softmax compute on what they move: their traffic is not counted",
}
"""Kinds of movement that have no item of their own, and why."""


def reshape_document(
    compiled: Any,
    phases: Sequence[Phase],
    evaluation: ScenarioEvaluation,
    designs: DesignBatch,
    access: EnergyPerAccess,
    technology: Technology,
) -> dict[str, Any]:
    """
    Return what one design spends on moving without computing at its operating point, per unit of work.

    Parameters
    ----------
    compiled : CompiledServing or CompiledWork
    phases : sequence of Phase
        Of the one design.
    evaluation : ScenarioEvaluation
        At the chosen alternative, arrays of shape (1, 1).
    designs : DesignBatch
        The one design.
    access : EnergyPerAccess
        Of the design.
    technology : Technology

    Returns
    -------
    dict
        time_fraction, energy_fraction, bytes_per_flop, items largest first, sums by_layer and by_paid, paid_once (at
        load and before, in no share), not_separate, metrics.
    """
    items = moved_items(phases, designs, access, technology)
    total_s = sum(float(phase.seconds_per_unit[0, 0]) for phase in phases)
    total_j = float(evaluation.energy_per_unit_j[0, 0])
    flop = max(sum(float(phase.flop_per_unit[0, 0]) for phase in phases), 1.0)
    per_flop = {name: _number(values) / flop for name, values in moved_bytes(items).items()}
    energy_j = sum(_number(each.energy_j) for each in items)
    whole = {
        "time_fraction": float(np.minimum(_number(reshape_fraction(items, phases)), 1.0)),
        "energy_fraction": energy_j / total_j,
        "bytes_per_flop": sum(per_flop[name] for name in OFF_ARRAY),
    }
    rows = [_row(group, total_s, total_j) for group in _grouped(items, lambda each: (each.item, each.layer, each.paid))]
    return {
        **whole,
        "seconds_per_unit": whole["time_fraction"] * total_s,
        "energy_per_unit_j": energy_j,
        "bytes_per_flop_by_level": per_flop,
        "items": sorted(rows, key=lambda row: (-row["seconds_per_unit"], -row["energy_per_unit_j"])),
        "by_layer": _sums(items, lambda each: (each.layer,), total_s, total_j),
        "by_paid": _sums(items, lambda each: (each.paid,), total_s, total_j),
        "paid_once": paid_once(compiled, evaluation, designs, access),
        "not_separate": NOT_SEPARATE,
        "metrics": {
            "reshape_cost": whole["time_fraction"],
            "reshape_energy_fraction": whole["energy_fraction"],
            "reshape_bytes_per_flop": whole["bytes_per_flop"],
        },
    }


def paid_once(
    compiled: Any, evaluation: ScenarioEvaluation, designs: DesignBatch, access: EnergyPerAccess
) -> list[dict[str, Any]]:
    """What is moved before the first request: weights brought into their format, and loaded into every chip."""
    if not isinstance(compiled, CompiledServing):
        return []
    scenario = compiled.scenario
    mix = scenario.mixes[int(_number(evaluation.choices["mix"]))]
    elements = weight_elements_per_module(scenario.network)
    stored = sum(n * (mix.weight_bits(m) if m in mix.weight_format else 16.0) / 8.0 for m, n in elements.items())
    held = _number(evaluation.choices["weight_bytes"])
    host = float(scenario.system.host_bytes_per_s or designs.host_bytes_per_s[0])
    return [
        {
            "item": "weight_conversion", "layer": "operator", "paid": "offline",
            "bytes": stored + PUBLISHED_BYTES * sum(elements.values()), "seconds": None, "energy_j": None,
        },
        {
            "item": "weight_load", "layer": "interconnect", "paid": "load",
            "bytes": held * scenario.system.n_chips, "seconds": held / host if host else None,
            "energy_j": held * scenario.system.n_chips * float(access.dram_j_per_byte[0]),
        },
    ]  # fmt: skip


def moved_cost(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    """
    Return where the cost of moving went from one design to another on the same work, largest change first.

    Parameters
    ----------
    before, after : mapping
        Of `reshape_document`, or several of them by scenario.
    """
    if "items" not in before:
        return [{"scenario": name, **row} for name, old in before.items() for row in moved_cost(old, after[name])]
    tables = [{(row["item"], row["layer"], row["paid"]): row for row in each["items"]} for each in (before, after)]
    changes = []
    for key in dict.fromkeys([*tables[0], *tables[1]]):
        old, new = (table.get(key) for table in tables)
        row = dict(zip(("item", "layer", "paid"), key, strict=True))
        for name in ("seconds_per_unit", "energy_per_unit_j"):
            first, last = (0.0 if each is None else each[name] for each in (old, new))
            row |= {f"{name}_before": first, f"{name}_after": last, f"{name}_change": last - first}
        changes.append(row)
    return sorted(
        changes, key=lambda row: (-abs(row["seconds_per_unit_change"]), -abs(row["energy_per_unit_j_change"]))
    )


def _grouped(items: Sequence[Moved], key: Callable[[Moved], tuple[str, ...]]) -> list[list[Moved]]:
    groups: dict[tuple[str, ...], list[Moved]] = {}
    for each in items:
        groups.setdefault(key(each), []).append(each)
    return list(groups.values())


def _row(group: Sequence[Moved], total_s: float, total_j: float) -> dict[str, Any]:
    """One item: what it is, its sums, and the operators with most of it."""
    first = group[0]
    largest = sorted(group, key=lambda each: (-_number(each.seconds), -_number(each.energy_j)))[:MAX_OPERATORS]
    return {
        "item": first.item,
        "layer": first.layer,
        "paid": first.paid,
        **_summed(group, total_s, total_j),
        "bytes_per_unit": {level: value for level, values in moved_bytes(group).items() if (value := _number(values))},
        "operators": [
            {"name": f"{each.phase}.{each.operator}", "time_fraction": _number(each.seconds) / total_s}
            for each in largest
            if _number(each.seconds) or _number(each.energy_j)
        ],
    }


def _sums(
    items: Sequence[Moved], key: Callable[[Moved], tuple[str, ...]], total_s: float, total_j: float
) -> dict[str, dict[str, float]]:
    return {key(group[0])[0]: _summed(group, total_s, total_j) for group in _grouped(items, key)}


def _summed(group: Sequence[Moved], total_s: float, total_j: float) -> dict[str, float]:
    seconds, energy_j = (sum(_number(getattr(each, name)) for each in group) for name in ("seconds", "energy_j"))
    return {
        "seconds_per_unit": seconds,
        "time_fraction": seconds / total_s,
        "energy_per_unit_j": energy_j,
        "energy_fraction": energy_j / total_j,
    }


def _number(values: Any) -> float:
    return float(np.broadcast_to(values, (1, 1))[0, 0])
