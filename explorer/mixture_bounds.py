"""Bounds of boxes under a mixture of scenarios."""

from __future__ import annotations

import dataclasses

import numpy as np

from explorer.box_bounds import SLACK, BoxBounds, Rival, outward
from explorer.boxes import Boxes, mixture_windows
from explorer.constraints import chip_violations
from explorer.corners import corners
from explorer.objectives import Objective, objective_values
from explorer.problem import Problem
from models.checks import FloatArray, IntArray
from models.evaluate import evaluate, figures_of
from models.evaluation import ScenarioEvaluation, take_figures, worst_violation
from models.hardware.design import DesignBatch, take

MIXTURE_ROWS = 16_384
"""Pairs of a box and a window that are evaluated together."""

UNSEEN_PER_S = 1e300
"""Rate of a scenario that was not looked at."""


def bound_mixture(problem: Problem, boxes: Boxes, objectives: tuple[Objective, ...], rival: Rival) -> BoxBounds:
    """
    Bounds of a mixture: each scenario at the best of its kept windows.

    Scenarios are looked at one after the other; a box that those seen put beyond `rival`, were the others for
    nothing, is looked at no further. A window matters as long as the mixture may still beat `rival` with its scenario
    confined to it and the others at their best.
    """
    performance, cheapest = corners(problem, boxes)
    windows, n = mixture_windows(problem), boxes.n_boxes
    figures = figures_of(cheapest, problem.technology)
    frame = _any_evaluation(problem, performance, cheapest)
    chip = chip_violations(problem.limits, cheapest, figures)
    alive = np.max(np.stack([v[:, 0] for v in chip.values()]), axis=0) <= SLACK
    owner = np.array([scenario for scenario, _ in windows])

    def costs(rates: FloatArray, rows: IntArray | slice) -> FloatArray:
        """Outward costs of rates of shape (n_scenarios, n_rows), infinite where a scenario does not run."""
        shown = dataclasses.replace(frame, figures=take_figures(figures, rows))
        each = [dataclasses.replace(shown, units_per_s=np.maximum(r, np.finfo(float).tiny)[:, None]) for r in rates]
        values = [o.cost(objective_values(o, each, problem.mixture)[:, 0]) for o in objectives]
        return outward(np.where((rates.min(axis=0) > 0)[:, None], np.stack(values, axis=1), np.inf))

    everyone = slice(None)
    cost, rate = np.full((n, len(objectives)), np.inf), np.zeros((n, len(windows)))
    best = np.full((len(problem.scenarios), n), UNSEEN_PER_S)
    for scenario in np.argsort(np.bincount(owner), kind="stable"):
        rows, columns = np.nonzero(boxes.kept & alive[:, None] & (owner == scenario))
        for start in range(0, len(rows), MIXTURE_ROWS):
            part = slice(start, start + MIXTURE_ROWS)
            corner = take(performance, rows[part]), take(cheapest, rows[part])
            wanted = np.stack([windows[column][1] for column in columns[part]])
            rate[rows[part], columns[part]] = _best_rates(problem, *corner, int(scenario), wanted)
        best[scenario, alive] = rate[alive][:, owner == scenario].max(axis=1)
        cost[alive] = costs(best, everyone)[alive]
        alive &= np.isfinite(cost[:, 0]) & rival(cost)
    kept, left_out = np.zeros_like(boxes.kept), np.where(alive, np.inf, cost[:, 0])
    for column, (scenario, _) in enumerate(windows):
        rows = np.flatnonzero(alive & (rate[:, column] > 0))
        own = best[:, rows]
        own[scenario] = rate[rows, column]
        confined = costs(own, rows)
        kept[rows, column] = rival(confined)
        left_out[rows] = np.minimum(left_out[rows], np.where(kept[rows, column], np.inf, confined[:, 0]))
    return BoxBounds(cost, boxes.first, boxes.last, left_out, kept, alive)


def _any_evaluation(problem: Problem, performance: DesignBatch, cheapest: DesignBatch) -> ScenarioEvaluation:
    """An evaluation to put rates and figures into: objectives of a mixture depend on nothing else."""
    one = np.zeros(1, dtype=np.int64)
    corner, first = (take(performance, one), take(cheapest, one)), problem.scenarios[:1]
    return evaluate(*corner, first, problem.tables, one[:, None], problem.technology)[0]


def _best_rates(
    problem: Problem, performance: DesignBatch, cheapest: DesignBatch, scenario: int, wanted: IntArray
) -> FloatArray:
    """Best feasible rate of one scenario among wanted alternatives, 0 where none is, shape (n_designs,) [1/s]."""
    one = [problem.scenarios[scenario]]
    found = evaluate(performance, cheapest, one, problem.tables, wanted, problem.technology)[0]
    return np.asarray(np.where(worst_violation(found) <= SLACK, found.units_per_s, 0.0).max(axis=1))
