"""Objectives: metrics with a direction, read for one scenario or for a mixture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from explorer.document import ObjectiveDocument, StudyError
from models.checks import FloatArray, IntArray, UnknownNameError, require_known
from models.evaluation import ScenarioEvaluation
from models.metrics import METRICS, metrics_of
from models.metrics.reported import REPORTED

COMBINED = "combined_relative_rate"
"""1 / sum(weight / relative rate) over the scenarios, the rate relative to each scenario's reference chip."""

REGRET = "regret"
"""Largest loss over the scenarios against the best rate that any design of the space reaches on it alone."""

DESIGN_METRICS = ("area_mm2", "unit_cost_usd", "tdp_w", "full_rate_power_w", "static_power_w")
"""Metrics that do not depend on the scenario, so a mixture may use them."""


@dataclass(frozen=True)
class Objective:
    """A metric and whether more of it is better."""

    metric: str
    maximize: bool

    @property
    def sign(self) -> float:
        """Factor that turns the metric into something to minimise."""
        return -1.0 if self.maximize else 1.0

    def cost(self, values: FloatArray) -> FloatArray:
        """
        Values of the metric as costs to minimise, gaps of which are relative.

        A regret counts as the share of the best rate that is kept, so that a gap of 1 % is a hundredth of it.
        """
        return np.asarray(values - 1.0 if self.metric == REGRET else self.sign * values)

    def value(self, cost: float) -> float:
        """The inverse of `cost`."""
        return cost + 1.0 if self.metric == REGRET else self.sign * cost


@dataclass(frozen=True)
class Mixture:
    """Weights of the scenarios and their rates on the reference chips, shape (n_scenarios,)."""

    weight: FloatArray
    reference_units_per_s: FloatArray
    best_units_per_s: Callable[[], FloatArray] | None = None
    """Rates that no design of the space beats on one scenario alone, searched when first asked for."""
    best_points: Callable[[], IntArray] | None = None
    """Designs found best on one scenario alone in that search, shape (n_found, n_parameters)."""


def read_objectives(documents: Sequence[ObjectiveDocument], kinds: Sequence[str]) -> tuple[Objective, ...]:
    """
    Return the objectives of a study whose scenarios are of `kinds`.

    Raises
    ------
    StudyError
        If a metric is unknown, repeated, or not defined for these scenarios.
    """
    known = [*metrics_of(kinds[0]), COMBINED] if len(kinds) == 1 else [COMBINED, REGRET, *DESIGN_METRICS]
    faults = []
    for i, each in enumerate(documents):
        if each.metric in REPORTED:
            detail = f"{each.metric} is reported of a design at its operating point and cannot be searched for"
            faults.append({"pointer": f"/objectives/{i}/metric", "detail": detail})
            continue
        try:
            require_known("metric", each.metric, [*METRICS, COMBINED, REGRET])
            require_known(f"metric of {' and '.join(sorted(set(kinds)))}", each.metric, known)
        except UnknownNameError as error:
            faults.append({"pointer": f"/objectives/{i}/metric", "detail": str(error)})
    names = [each.metric for each in documents]
    if len(set(names)) != len(names):
        faults.append({"pointer": "/objectives", "detail": "must not repeat a metric"})
    if faults:
        raise StudyError(faults)
    return tuple(Objective(each.metric, each.direction == "maximize") for each in documents)


def objective_values(objective: Objective, evaluations: Sequence[ScenarioEvaluation], mixture: Mixture) -> FloatArray:
    """
    Return the metric of an objective.

    Parameters
    ----------
    objective : Objective
    evaluations : sequence of ScenarioEvaluation
        One per scenario; with several, each holds one alternative per design.
    mixture : Mixture
        Weights and reference rates.

    Returns
    -------
    array of shape (n_designs, n_alternatives)
        In the metric's unit.
    """
    if objective.metric == COMBINED:
        relative = [e.units_per_s / r for e, r in zip(evaluations, mixture.reference_units_per_s, strict=True)]
        share = mixture.weight / mixture.weight.sum()
        with np.errstate(over="ignore"):  # a scenario that a box cannot run at all takes forever
            return np.asarray(1.0 / sum(w / rate for w, rate in zip(share, relative, strict=True)))
    if objective.metric == REGRET:
        return _regret(evaluations, mixture)
    first = evaluations[0]
    shape = first.units_per_s.shape
    return np.broadcast_to(METRICS[objective.metric].read(first), shape)


def _regret(evaluations: Sequence[ScenarioEvaluation], mixture: Mixture) -> FloatArray:
    """Largest relative loss of rate over the scenarios; below 0 where a box promises more than any design [1]."""
    if mixture.best_units_per_s is None:
        raise ValueError("regret needs the best rate of each scenario")
    best = mixture.best_units_per_s()
    losses = [1.0 - e.units_per_s / rate for e, rate in zip(evaluations, best, strict=True)]
    return np.asarray(np.max(np.stack(np.broadcast_arrays(*losses)), axis=0))
