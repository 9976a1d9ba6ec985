"""What a chip is made of and how sure its figures are: breakdowns, 90 % intervals, warnings, technology used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from explorer.problem import Judgement, Problem
from models.checks import FloatArray
from models.evaluation import ScenarioEvaluation
from models.hardware.area import area_breakdown_mm2, area_interval_mm2
from models.hardware.cost import system_cost_breakdown_usd, unit_cost_breakdown_usd
from models.hardware.design import DesignBatch, macs_per_cycle_per_core, one_of
from models.hardware.energy import energy_per_access
from models.hardware.intervals import (
    energy_interval_j,
    power_interval_w,
    unit_cost_interval_usd,
    work_cost_interval_usd,
)
from models.hardware.power import full_rate_breakdown_w, power_density_w_per_mm2
from models.hardware.rates import RATE_CLASSES, rate_ratios
from models.operators.step import StepActivity
from models.technology import Technology

Interval = tuple[FloatArray, FloatArray]


def figures_document(problem: Problem, designs: DesignBatch, index: int, work: ScenarioEvaluation) -> dict[str, Any]:
    """
    Return value, 90 % interval and parts of area, power, cost and energy of one design.

    Times count as known: what the interval of a rate adds to energy and cost of the work is not in it.
    """
    used, one = problem.technology, one_of(designs, index)
    area, full_rate_w = work.figures.area_mm2[index], work.figures.full_rate_power_w[index]
    full_rate = full_rate_breakdown_w(one, used, energy_per_access(one, used, area))
    energy_j = _energy_parts_j(work, index)
    per_unit_usd = work.figures.usd_per_s[index] * work.n_chips / work.units_per_s[index]
    electricity_usd = work.energy_per_unit_j[index] * work.figures.usd_per_j[index]
    area_mm2 = area_interval_mm2(one, used, area_mm2=area)
    unit_cost = unit_cost_interval_usd(one, used, (area, *area_mm2))
    cost_parts, system_parts = unit_cost_breakdown_usd(one, used, area), system_cost_breakdown_usd(one, used, area)
    return {
        "area_mm2": _figure(area, area_mm2, area_breakdown_mm2(one, used)),
        "full_rate_power_w": _figure(full_rate_w, power_interval_w(full_rate, used), full_rate),
        "static_power_w": _figure(full_rate["static"], power_interval_w({"static": full_rate["static"]}, used)),
        "average_power_w": _of_energy(work.average_power_w[index], energy_j, used),
        "unit_cost_usd": _figure(system_parts["chip"], unit_cost, cost_parts),
        "system_cost_usd": {"parts": _parts(system_parts)},
        "energy_per_unit_j": _of_energy(work.energy_per_unit_j[index], energy_j, used) | {"parts": _parts(energy_j)},
        "usd_per_unit": _figure(
            per_unit_usd + electricity_usd,
            work_cost_interval_usd(system_parts, per_unit_usd, electricity_usd, energy_j, unit_cost, used),
            {"capital_and_host": per_unit_usd, "electricity": electricity_usd},
        ),
    }


def idle_document(judgement: Judgement, index: int, done: StepActivity, area: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return which share of the die and of the power waits while the chip does the work of the first scenario.

    Arrays, lanes, memory interfaces and links are as busy as a step at the highest clock keeps them; the other parts
    of a die are not counted as idle. Power that switches nothing is static power over average power.

    Parameters
    ----------
    judgement : Judgement
    index : int
        Position of the design.
    done : StepActivity
        What a step of the first scenario does, of `chosen_steps`.
    area : mapping
        The die area of `figures_document`.
    """
    work, one = judgement.evaluations[0], one_of(judgement.designs, index)
    cycles_per_s = one.n_cores * one.clock_hz
    macs_per_s = macs_per_cycle_per_core(one) * cycles_per_s
    rates = dict(zip(RATE_CLASSES, rate_ratios(one)[0], strict=True))
    busy_s = {
        "matrix_arrays": sum(float(macs[0, 0]) / rates[name] for name, macs in done.macs.items()) / macs_per_s[0],
        "vector_lanes": done.vector_ops[0, 0] / (one.vector_lanes_per_core * cycles_per_s)[0],
        "memory_interface": _seconds(done.dram_bytes[0, 0], one.memory_bandwidth_bytes_per_s[0]),
        "links": _seconds(done.link_bytes[0, 0], max(one.scale_up_bytes_per_s[0], one.scale_out_bytes_per_s[0])),
    }
    busy = {name: min(float(seconds / done.time_s[0, 0]), 1.0) for name, seconds in busy_s.items()}
    waiting_mm2 = sum(area["parts"][name] * (1.0 - share) for name, share in busy.items())
    return {
        "busy_fractions": busy,
        "idle_area_fraction": waiting_mm2 / area["value"],
        "idle_power_fraction": float(work.figures.static_w[index, 0] / work.average_power_w[index, 0]),
    }


def _seconds(moved_bytes: float, bytes_per_s: float) -> float:
    return float(moved_bytes / bytes_per_s) if bytes_per_s > 0 else 0.0


def _energy_parts_j(work: ScenarioEvaluation, index: int) -> dict[str, FloatArray]:
    """Energy of one unit of work over all chips: what static power takes while it runs, and what switches [J]."""
    whole = work.energy_per_unit_j[index]
    share = np.minimum(work.figures.static_w[index] / work.average_power_w[index], 1.0)
    return {"static": whole * share, "switching": whole * (1.0 - share)}


def _of_energy(value: FloatArray, parts: Mapping[str, FloatArray], technology: Technology) -> dict[str, Any]:
    """A figure in proportion to an energy, with the relative interval of that energy."""
    whole = sum(parts.values(), np.zeros(1))
    low, high = energy_interval_j(parts, technology)
    return _figure(value, (value * low / whole, value * high / whole))


def _figure(value: FloatArray, interval: Interval, parts: Mapping[str, FloatArray] | None = None) -> dict[str, Any]:
    document: dict[str, Any] = {
        "value": float(value[0]), "low_90": float(interval[0][0]), "high_90": float(interval[1][0]),
    }  # fmt: skip
    return document if parts is None else document | {"parts": _parts(parts)}


def _parts(parts: Mapping[str, FloatArray]) -> dict[str, float]:
    return {name: float(values[0]) for name, values in parts.items()}


def warnings_of(problem: Problem, one: DesignBatch, full_rate_w: float, area_mm2: float) -> list[dict[str, Any]]:
    """What a reader must know of one design and no limit says: heat beyond known cooling, a node between tables."""
    used = problem.technology
    found: list[dict[str, Any]] = []
    density = float(power_density_w_per_mm2(one, np.array([full_rate_w]), np.array([area_mm2]))[0])
    limit = used.constants["power"]["highest_power_density_w_per_mm2"]
    if density > limit:
        detail = f"power density of {density:.2f} W/mm2 is above {limit:g} W/mm2, what known cooling takes"
        found.append({"code": "cooling", "detail": detail, "value_w_per_mm2": density, "limit_w_per_mm2": limit})
    node = float(one.node_nm[0])
    between = used.interpolated_quantities(node)
    if between:
        detail = f"node_nm {node:g} has no row of its own in {', '.join(between)}: interpolated"
        found.append({"code": "node_interpolated", "detail": detail, "quantities": between})
    return found


def technology_document(problem: Problem) -> dict[str, Any]:
    """The technology that a result used: hash of all values, and the private rows before the shipped ones."""
    return {"digest": problem.technology.digest, "overlay": [dict(row) for row in problem.technology.overlay]}
