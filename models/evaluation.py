"""The result of judging designs on one scenario: arrays over designs and alternatives, before any choice is made."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from models.checks import FloatArray, IntArray


@dataclass(frozen=True)
class Figures:
    """What the cost batch decides about each chip, shape (n_designs, 1) each."""

    area_mm2: FloatArray
    static_w: FloatArray
    tdp_w: FloatArray
    full_rate_power_w: FloatArray
    unit_cost_usd: FloatArray
    usd_per_s: FloatArray
    """Capital and housing of one chip and its share of the system, electricity aside [USD/s]."""
    usd_per_j: FloatArray
    """Electricity with what the building adds [USD/J]."""
    embodied_kgco2e: FloatArray
    """Carbon of making one chip with its memory, package and share of the host."""
    embodied_kgco2e_per_s: FloatArray
    """What one second of work uses up of that."""
    host_w: FloatArray
    """One chip's share of the host while it works."""
    facility_ratio: FloatArray
    """Energy that the site draws over what chips and hosts take: delivery losses and cooling."""
    grid_kgco2e_per_j: FloatArray
    """Carbon of a joule that the site draws."""
    violations: Mapping[str, FloatArray]
    """Relative excess over what physics allows any chip: reticle, memory edge, power at the lowest clock [1]."""


class CompiledScenario(Protocol):
    """What a search needs to know of a compiled scenario, whatever its kind."""

    @property
    def name(self) -> str:
        """Name of the scenario."""

    @property
    def n_alternatives(self) -> int:
        """Number of inner choices."""

    @property
    def windows(self) -> IntArray:
        """First and last alternative of the runs that a box holds together, shape (n_windows, 2)."""

    def used_links(self, alternatives: IntArray) -> frozenset[str]:
        """Links that some of the alternatives send over: scale_up, scale_out."""


@dataclass(frozen=True)
class ScenarioEvaluation:
    """
    One scenario on many designs: arrays of shape (n_designs or 1, n_alternatives).

    A *unit* is what the scenario counts: a request, an image, a training step, a pass over a list. Rates and
    energies are those of the whole system. `violations` are relative excesses over a limit, at most 0 where it is
    kept; an alternative is feasible where all are.
    """

    kind: str
    units_per_s: FloatArray
    energy_per_unit_j: FloatArray
    average_power_w: FloatArray
    """Of one chip."""
    step_s: FloatArray
    ttft_s: FloatArray
    tpot_s: FloatArray
    peak_power_w: FloatArray
    """Of one chip in the kind of step that draws most, at its settled clock."""
    tokens_per_unit: float
    """Output tokens of a request, trained tokens of a step, otherwise 1."""
    units_per_session: float
    """Requests of a conversation, otherwise 1."""
    n_chips: int
    violations: Mapping[str, FloatArray]
    choices: Mapping[str, Any]
    """Inner choices by name, each of shape (n_alternatives,) or (n_designs, n_alternatives) once taken."""
    figures: Figures


def take_alternatives(evaluation: ScenarioEvaluation, chosen: IntArray) -> ScenarioEvaluation:
    """Return the evaluation with one alternative per design: arrays of shape (n_designs, 1)."""
    rows = np.arange(len(chosen))[:, None]
    n_alternatives = evaluation.units_per_s.shape[1]

    def pick(values: FloatArray) -> FloatArray:
        full = np.broadcast_to(values, (len(chosen), n_alternatives))
        return full[rows, chosen[:, None]]

    arrays: dict[str, Any] = {
        field.name: pick(value)
        for field in dataclasses.fields(evaluation)
        if isinstance(value := getattr(evaluation, field.name), np.ndarray)
    }
    return dataclasses.replace(
        evaluation,
        **arrays,
        violations={name: pick(values) for name, values in evaluation.violations.items()},
        choices={name: pick(np.asarray(values)) for name, values in evaluation.choices.items()},
    )


def take_figures(figures: Figures, rows: IntArray | slice) -> Figures:
    """The figures of some designs."""
    columns = {f.name: getattr(figures, f.name)[rows] for f in dataclasses.fields(figures) if f.name != "violations"}
    return Figures(**columns, violations={name: values[rows] for name, values in figures.violations.items()})


def alternative_windows(key: IntArray) -> IntArray:
    """First and last position of each run of equal keys, shape (n_runs, 2)."""
    starts = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
    return np.stack([starts, np.append(starts[1:], len(key)) - 1], axis=1)


def worst_violation(evaluation: ScenarioEvaluation) -> FloatArray:
    """Largest relative excess over any limit, shape (n_designs, n_alternatives) [1]; feasible where at most 0."""
    shape = evaluation.units_per_s.shape
    worst = np.full(shape, -np.inf)
    for values in evaluation.violations.values():
        worst = np.maximum(worst, values)
    return worst
