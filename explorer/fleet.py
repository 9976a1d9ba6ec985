"""The smallest fleet of catalogue chips that serves a weekly demand, with spares, site power and monthly cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field, model_validator

from explorer.document import StudyDocument, StudyError, read_document
from explorer.evaluation import CHIP_LIMITS
from explorer.inputs import Inputs, with_named_workload
from explorer.known_work import fitted_to
from explorer.problem import Judgement, judge_designs, prepare
from explorer.quantities import Power
from explorer.sweep import StrictDocument
from explorer.workload import pointing_at
from models.checks import FloatArray
from models.hardware.catalog import chip, chip_designs, chip_ids
from models.hardware.cost import host_usd_per_s
from models.tables import constants

DAY_HOURS, WEEK_HOURS = 24, 168
MONTH_HOURS = 365.25 * 24 / 12
HOUR_S = 3600.0


class FleetDocument(StrictDocument):
    """A workload, how much of it comes in each hour of the week, and what a site allows."""

    name: str = Field(min_length=1, max_length=200)
    study: dict[str, Any] = Field(description="a study document; its budget, space and search are not used")
    demand_requests_per_s: list[float] = Field(
        min_length=1, max_length=WEEK_HOURS, description="mean rate of each hour: 1, 24 (every day alike) or 168 values"
    )
    chips: list[str] | None = Field(
        None, min_length=1, max_length=200, description="ids; the whole catalogue if left out"
    )
    spares: int = Field(1, ge=0, le=1000, description="systems beyond those the peak needs (N + k)")
    max_load: float = Field(0.7, gt=0, le=1, description="share of the sustainable rate at which a system may run")
    site_power: Power | None = Field(None, description="power that the site supplies, cooling included")

    @model_validator(mode="after")
    def _whole_week(self) -> FleetDocument:
        demand = self.demand_requests_per_s
        if len(demand) not in (1, DAY_HOURS, WEEK_HOURS):
            raise ValueError(f"demand_requests_per_s must have 1, 24 or 168 values, got {len(demand)}")
        if not all(math.isfinite(rate) and rate >= 0 for rate in demand) or max(demand) == 0:
            raise ValueError("demand_requests_per_s must be finite, not negative, and positive in some hour")
        return self


@dataclass(frozen=True)
class _Systems:
    """One system of each chip on the workload, arrays of shape (n_chips,)."""

    requests_per_s: FloatArray
    energy_per_request_j: FloatArray
    static_w: FloatArray
    capital_usd_per_s: FloatArray


def plan_fleet(document: Any, inputs: Inputs = None) -> dict[str, Any]:
    """
    Return, for each chip, the fleet that serves every hour of the week, the smallest one first.

    A system is the chips of the study's `system`. The busiest hour sets how many must run, at most at `max_load` of
    their sustainable rate; spares come on top and are powered. Energy follows the demand of each hour: what requests
    take, and what systems draw while they wait. Capital is paid for every system all the time.

    Returns
    -------
    dict
        `fleets`: per chip `systems`, `chips`, `peak_site_power_w`, `mean_site_power_w`, `usd_per_month`,
        `usd_per_million_requests`; `smallest` is the first that fits the site. `cannot_serve`: the other chips, with
        the limit each of them breaks.

    Raises
    ------
    StudyError
        With a pointer to every field at fault.
    """
    fleet: FleetDocument = read_document(document, FleetDocument)
    names = fleet.chips or chip_ids()
    with pointing_at("/chips"):
        designs = chip_designs(names)
    study = _read_study(fleet, inputs)
    try:
        problem = fitted_to(prepare(study, inputs), designs)
    except StudyError as error:
        raise StudyError([{**each, "pointer": f"/study{each['pointer']}"} for each in error.errors]) from None
    judgement = judge_designs(problem, designs)
    able = _able(judgement)
    systems = _systems(judgement, study.system.n_chips)
    demand = np.resize(np.array(fleet.demand_requests_per_s), WEEK_HOURS)
    fleets = [_fleet(fleet, study.system.n_chips, names[i], systems, int(i), demand) for i in np.flatnonzero(able)]
    fleets.sort(key=lambda each: (not each["fits_site"], each["chips"], each["usd_per_month"]))
    return {
        "name": fleet.name,
        "peak_requests_per_s": float(demand.max()),
        "mean_requests_per_s": float(demand.mean()),
        "fleets": fleets,
        "smallest": next((each for each in fleets if each["fits_site"]), None),
        "cheapest": min((e for e in fleets if e["fits_site"]), key=lambda each: each["usd_per_month"], default=None),
        "cannot_serve": [{"chip": names[i], "limit": _broken_limit(judgement, int(i))} for i in np.flatnonzero(~able)],
    }


def _read_study(fleet: FleetDocument, inputs: Inputs) -> StudyDocument:
    try:
        study: StudyDocument = read_document(with_named_workload(fleet.study, inputs))
    except StudyError as error:
        raise StudyError([{**each, "pointer": f"/study{each['pointer']}"} for each in error.errors]) from None
    kinds = [each.kind for each in study.workload.scenarios]
    if kinds != ["llm_serving"]:
        detail = f"must be one scenario of kind llm_serving, got {', '.join(kinds)}"
        raise StudyError([{"pointer": "/study/workload/scenarios", "detail": detail}])
    return study


def _work_limits(judgement: Judgement) -> Mapping[str, FloatArray]:
    """Excess over the limits that ask whether a chip can do the work, not whether it fits a budget."""
    return {name: values for name, values in judgement.excess.items() if name not in CHIP_LIMITS}


def _able(judgement: Judgement) -> np.ndarray:
    return np.asarray(np.max(np.stack(list(_work_limits(judgement).values())), axis=0) <= 0)


def _broken_limit(judgement: Judgement, index: int) -> str:
    limits = _work_limits(judgement)
    return max(limits, key=lambda name: limits[name][index])


def _systems(judgement: Judgement, n_chips: int) -> _Systems:
    evaluation = judgement.evaluations[0]
    figures, cost = evaluation.figures, constants("cost")
    overhead = cost["power_usage_effectiveness"] / cost["power_delivery_efficiency"]
    host_w = cost["host_power_w_per_chip"]
    shape = judgement.feasible.shape

    def column(values: FloatArray) -> FloatArray:
        return np.array(np.broadcast_to(values, (*shape, 1))[:, 0], dtype=np.float64)

    static_w = column(figures.static_w) + host_w
    energy_j = column(evaluation.energy_per_unit_j)
    rate = column(evaluation.units_per_s)
    dynamic_j: FloatArray = np.maximum(energy_j - n_chips * column(figures.static_w) / rate, 0.0)
    return _Systems(
        requests_per_s=rate,
        energy_per_request_j=dynamic_j * overhead,
        static_w=n_chips * static_w * overhead,
        capital_usd_per_s=n_chips * (column(figures.usd_per_s) - host_usd_per_s()) * cost["utilization"],
    )


def _fleet(
    fleet: FleetDocument, n_chips: int, chip_id: str, systems: _Systems, index: int, demand: FloatArray
) -> dict[str, Any]:
    rate = float(systems.requests_per_s[index]) * fleet.max_load
    running = math.ceil(float(demand.max()) / rate)
    n_systems = running + fleet.spares
    power_w = n_systems * systems.static_w[index] + demand * systems.energy_per_request_j[index]
    electricity = electricity_usd_per_site_j()
    usd_per_month = MONTH_HOURS * HOUR_S * (
        n_systems * float(systems.capital_usd_per_s[index]) + float(power_w.mean()) * electricity
    )  # fmt: skip
    peak_w = float(power_w.max())
    return {
        "chip": chip_id,
        "name": chip(chip_id).name,
        "systems": n_systems,
        "spare_systems": fleet.spares,
        "chips": n_systems * n_chips,
        "system_requests_per_s": float(systems.requests_per_s[index]),
        "peak_load": float(demand.max()) / (running * float(systems.requests_per_s[index])),
        "mean_load": float(demand.mean()) / (running * float(systems.requests_per_s[index])),
        "peak_site_power_w": peak_w,
        "mean_site_power_w": float(power_w.mean()),
        "fits_site": fleet.site_power is None or peak_w <= fleet.site_power,
        "usd_per_month": usd_per_month,
        "usd_per_million_requests": 1e6 * usd_per_month / (MONTH_HOURS * HOUR_S * float(demand.mean())),
    }


def electricity_usd_per_site_j() -> float:
    """Return what one joule from the grid costs [USD/J]; losses are in the power it multiplies."""
    return constants("cost")["electricity_usd_per_kwh"] / 3.6e6
