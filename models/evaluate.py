"""The front door of the model: designs x scenarios -> evaluations, under the two-batch contract."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from models.checks import IntArray
from models.evaluation import Figures, ScenarioEvaluation
from models.hardware.cost import electricity_usd_per_j, facility_ratio, grid_kgco2e_per_j
from models.hardware.design import DesignBatch
from models.hardware.figures import ChipFigures, chip_figures
from models.operators.factor_tables import FactorTables
from models.serving.scenario import ServingScenario
from models.serving.steady import CompiledServing, compile_serving, steady_state
from models.technology import Technology, default_technology
from models.throughput.fixed import compile_fixed_work, fixed_work
from models.throughput.scenario import ConvnetScenario, FixedWork, GemmListScenario, TrainingScenario
from models.throughput.work import CompiledWork

Scenario = ServingScenario | FixedWork
Compiled = CompiledServing | CompiledWork

_COMPILERS: Mapping[type, Callable[[Any], Compiled]] = {
    ServingScenario: compile_serving,
    ConvnetScenario: compile_fixed_work,
    GemmListScenario: compile_fixed_work,
    TrainingScenario: compile_fixed_work,
}

_EVALUATIONS: Mapping[type, Callable[..., ScenarioEvaluation]] = {
    CompiledServing: steady_state,
    CompiledWork: fixed_work,
}


def compile_scenario(scenario: Scenario) -> Compiled:
    """
    Return a scenario of any kind as programs over its inner choices.

    Raises
    ------
    ValueError
        If the scenario breaks a rule of its kind.
    """
    return _COMPILERS[type(scenario)](scenario)


def _figures(chips: ChipFigures, cost: DesignBatch, technology: Technology) -> Figures:
    """What the cost batch decides about each chip, arrays of shape (n_designs, 1)."""
    site, ones = technology.constants["cost"], np.ones((cost.n_designs, 1))
    return Figures(
        area_mm2=chips.area_mm2[:, None],
        static_w=chips.access.static_w[:, None],
        tdp_w=np.minimum(chips.full_rate_power_w, cost.tdp_w)[:, None],
        full_rate_power_w=chips.full_rate_power_w[:, None],
        unit_cost_usd=chips.unit_cost_usd[:, None],
        usd_per_s=chips.usd_per_s[:, None],
        usd_per_j=electricity_usd_per_j(technology) * ones,
        embodied_kgco2e=chips.embodied_kgco2e[:, None],
        embodied_kgco2e_per_s=chips.embodied_kgco2e_per_s[:, None],
        host_w=site["host_power_w_per_chip"] * ones,
        facility_ratio=facility_ratio(technology) * ones,
        grid_kgco2e_per_j=grid_kgco2e_per_j(technology) * ones,
        violations={name: values[:, None] for name, values in chips.violation_ratio.items()},
    )


def evaluate(
    performance: DesignBatch,
    cost: DesignBatch,
    scenarios: Sequence[Compiled],
    tables: FactorTables,
    alternatives: IntArray | None = None,
    technology: Technology | None = None,
) -> list[ScenarioEvaluation]:
    """
    Return one evaluation per scenario.

    Parameters
    ----------
    performance, cost : DesignBatch
        Of n_designs designs each: times follow from the first, area, energy per access and cost from the second.
        A point passes the same batch twice; a bound on a box of designs passes its upper and its lower corner.
    scenarios : sequence
        Compiled scenarios; the same objects may serve many calls.
    tables : FactorTables
        Shared rows; the same object may serve many calls.
    alternatives : array of shape (n_designs, n_kept), optional
        Inner choices wanted of each design, for a single scenario; all of them where left out.
    technology : Technology, optional
        Node tables and constants of area, energy, power and cost; the shipped ones where left out.

    Returns
    -------
    list of ScenarioEvaluation
        Arrays of shape (n_designs, n_alternatives of that scenario).

    Examples
    --------
    See `docs/concepts.md` for a whole evaluation.
    """
    if performance.n_designs != cost.n_designs:
        raise ValueError(
            f"both batches must have equally many designs, got {performance.n_designs} and {cost.n_designs}"
        )
    chips, figures = _chips(cost, technology)
    return [
        _EVALUATIONS[type(each)](each, performance, chips.access, figures, tables, alternatives) for each in scenarios
    ]


def figures_of(cost: DesignBatch, technology: Technology | None = None) -> Figures:
    """Return the figures that `evaluate` gives each scenario with such a cost batch, shape (n_designs, 1) each."""
    return _chips(cost, technology)[1]


def _chips(cost: DesignBatch, technology: Technology | None) -> tuple[ChipFigures, Figures]:
    used = technology or default_technology()
    chips = chip_figures(cost, used)
    return chips, _figures(chips, cost, used)
