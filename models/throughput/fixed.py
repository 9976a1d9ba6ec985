"""Rate and energy of a fixed piece of work on every design and inner choice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from models.checks import IntArray
from models.evaluation import Figures, ScenarioEvaluation
from models.hardware.design import DesignBatch
from models.hardware.energy import EnergyPerAccess
from models.operators.factor_tables import FactorTables
from models.operators.step import run_step
from models.operators.step_energy import settle
from models.serving.capacity import usable_memory_bytes
from models.throughput.convnet import compile_convnet
from models.throughput.gemms import compile_gemm_list
from models.throughput.scenario import ConvnetScenario, FixedWork, GemmListScenario, TrainingScenario
from models.throughput.training import compile_training
from models.throughput.work import CompiledWork

_COMPILERS: Mapping[type, Callable[[Any], CompiledWork]] = {
    ConvnetScenario: compile_convnet,
    GemmListScenario: compile_gemm_list,
    TrainingScenario: compile_training,
}


def compile_fixed_work(scenario: FixedWork) -> CompiledWork:
    """
    Return the program of a fixed piece of work over its inner choices.

    Raises
    ------
    ValueError
        If the scenario breaks a rule of its kind.
    """
    return _COMPILERS[type(scenario)](scenario)


def fixed_work(
    compiled: CompiledWork,
    performance: DesignBatch,
    access: EnergyPerAccess,
    figures: Figures,
    tables: FactorTables,
    alternatives: IntArray | None = None,
) -> ScenarioEvaluation:
    """
    Return rate and energy of each design under each inner choice.

    Every chip of the system runs the program, so the system completes `units_per_step` units in the time of one.
    Latencies to a first token do not exist and are not a number.

    Parameters
    ----------
    compiled : CompiledWork
        With n_alternatives inner choices.
    performance : DesignBatch
        Of n_designs designs, from which times follow.
    access : EnergyPerAccess
        Of the cost batch, from which energies follow.
    figures : Figures
        Area, power and cost of the cost batch.
    tables : FactorTables
        Shared rows.
    alternatives : array of shape (n_designs, n_kept), optional
        Inner choices of each design that are wanted; all of them where left out.

    Returns
    -------
    ScenarioEvaluation
        Arrays of shape (n_designs, n_alternatives) or (n_designs, n_kept).
    """
    idle, memory, choices = compiled.idle_ratio, compiled.memory_bytes, dict(compiled.choices)
    if alternatives is not None:
        idle, memory = idle[alternatives], memory[alternatives]
        choices = {name: values[alternatives] for name, values in choices.items()}
    busy = run_step(compiled.program, performance, tables, alternatives=alternatives)
    step = settle(replace(busy, time_s=busy.time_s * (1.0 + idle)), access, performance.tdp_w)
    system = compiled.system
    return ScenarioEvaluation(
        kind=compiled.kind,
        units_per_s=compiled.units_per_step / step.time_s,
        energy_per_unit_j=step.energy_j * system.n_chips / compiled.units_per_step,
        average_power_w=step.energy_j / step.time_s,
        peak_power_w=step.energy_j / step.time_s,
        units_per_session=1.0,
        step_s=step.time_s,
        ttft_s=np.full((1, 1), np.nan),
        tpot_s=np.full((1, 1), np.nan),
        tokens_per_unit=compiled.tokens_per_unit,
        n_chips=system.n_chips,
        violations={"memory_capacity": memory / usable_memory_bytes(performance)[:, None] - 1.0},
        choices=choices,
        figures=figures,
    )
