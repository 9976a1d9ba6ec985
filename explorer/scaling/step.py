"""One size of a system: the best plan there, its rate, what it waits for, and why it is not the plan of before."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from explorer.explanation.work import work_of
from explorer.problem import Judgement, Problem, evaluate_all, inner_losses, judge_evaluated
from explorer.records import operating_point
from explorer.scaling.chip_counts import nodes_per_rack
from explorer.scaling.network import shares_with_network
from models.checks import BoolArray, FloatArray
from models.evaluation import ScenarioEvaluation, worst_violation
from models.hardware.design import DesignBatch
from models.serving.scenario import System

DEGREES = ("tensor_parallel", "pipeline_parallel", "attention_data_parallel")
"""Choices by which the chips of one engine share the work; the rest of the chips repeat it."""


@dataclass(frozen=True)
class Step:
    """A size as plain data, and the degrees of its plan; None where none serves or the work has no plan."""

    document: dict[str, Any]
    degrees: dict[str, int] | None


@dataclass(frozen=True)
class _Choice:
    """One alternative of the one design: its rate, whether it serves, and how its time is shared."""

    degrees: dict[str, int] | None
    serves: bool
    limit: str
    excess_fraction: float
    units_per_s: float
    shares: Mapping[str, float]

    @property
    def binding(self) -> str:
        """The resource that most of the time waits for."""
        return max(self.shares, key=lambda name: self.shares[name])


def refused_step(n_chips: int, system: System, rule: str) -> Step:
    """A size that no plan of the work divides."""
    return Step(_size(n_chips, system) | {"serves": False, "refused": rule}, None)


def scaled_step(problem: Problem, designs: DesignBatch, before: Step | None) -> Step:
    """
    Return the one design on the system of a problem with a single scenario.

    Parameters
    ----------
    problem : Problem
    designs : DesignBatch
        The one design.
    before : Step, optional
        The next smaller size, whose plan is compared with where it is not the best any more.
    """
    evaluations = evaluate_all(problem, designs)
    judgement = judge_evaluated(problem, designs, evaluations)
    whole, chosen = evaluations[0], int(judgement.chosen[0][0])
    best = _choice(problem, designs, whole, chosen)
    system = problem.scenarios[0].system
    document = _size(system.n_chips, system)
    if not best.serves:
        missed = {"serves": False, "limit": best.limit, "excess_fraction": best.excess_fraction}
        return Step(document | missed, None)
    document |= _judged(problem, judgement, best)
    if before is not None and before.degrees is not None and before.degrees != best.degrees:
        document["plan_change"] = _plan_change(problem, designs, whole, before.degrees, best)
    across = _across_nodes(problem, designs, whole, best)
    return Step(document | across, best.degrees)


def _size(n_chips: int, system: System) -> dict[str, Any]:
    rack = nodes_per_rack(system)
    further = "nodes" if rack is None else "rack" if system.n_nodes <= rack else "racks"
    level = "chip" if n_chips == 1 else "node" if system.n_nodes == 1 else further
    return {"n_chips": n_chips, "n_nodes": system.n_nodes, "level": level}


def _judged(problem: Problem, judgement: Judgement, best: _Choice) -> dict[str, Any]:
    taken, point = judgement.evaluations[0], operating_point(problem, judgement, 0)
    return {
        "serves": True,
        "units_per_s": best.units_per_s,
        "units_per_s_per_chip": best.units_per_s / taken.n_chips,
        "tokens_per_s": best.units_per_s * taken.tokens_per_unit,
        **{name: point[name] for name in ("plan", "data_parallel", "batch", "precision_mix") if name in point},
        "binding_resource": best.binding,
        "time_shares": dict(best.shares),
    }


def _choice(problem: Problem, designs: DesignBatch, whole: ScenarioEvaluation, index: int) -> _Choice:
    shape = whole.units_per_s.shape
    own = {name: float(np.broadcast_to(v, shape)[0, index]) for name, v in whole.violations.items()}
    limit = max(own, key=lambda name: own[name])
    work = work_of(problem, designs, (np.array([index]),))
    return _Choice(
        _degrees(whole, index), own[limit] <= 0, limit, own[limit], float(whole.units_per_s[0, index]),
        shares_with_network(work),
    )  # fmt: skip


def _degrees(whole: ScenarioEvaluation, index: int) -> dict[str, int] | None:
    shape = whole.units_per_s.shape
    found = {n: int(np.broadcast_to(whole.choices[n], shape)[0, index]) for n in DEGREES if n in whole.choices}
    return found or None


def _plan_change(
    problem: Problem, designs: DesignBatch, whole: ScenarioEvaluation, former: dict[str, int], best: _Choice
) -> dict[str, Any]:
    """What the degrees of the smaller system would do here, and in numbers why others are better."""
    change: dict[str, Any] = {"from": former, "to": best.degrees}
    same = np.all([_values(whole, name) == degree for name, degree in former.items()], axis=0)
    kept = _best_of(problem, designs, whole, same)
    if kept is None:
        copies = problem.scenarios[0].system.n_chips / math.prod(former.values())
        return change | {
            "reason": f"the former degrees would need {copies:g} copies, for which no plan divides the work"
        }
    if not kept.serves:
        reason = f"they exceed {kept.limit} by {kept.excess_fraction:.1%}"
        return change | {"kept_limit": kept.limit, "kept_excess_fraction": kept.excess_fraction, "reason": reason}
    gain = best.units_per_s / kept.units_per_s - 1.0
    return change | {
        "kept_units_per_s": kept.units_per_s,
        "rate_gain_fraction": gain,
        "kept_time_shares": dict(kept.shares),
        "reason": _reason(kept, best, gain),
    }


def _reason(kept: _Choice, best: _Choice, gain: float) -> str:
    """The rate, and the resource of which a unit of work waits for most less time than under the degrees of before."""
    saved = {
        name: share / kept.units_per_s - best.shares.get(name, 0.0) / best.units_per_s
        for name, share in kept.shares.items()
    }
    name = max(saved, key=lambda each: saved[each])
    return (
        f"rate {gain:+.1%}: with the former degrees {kept.shares[name]:.1%} of the time waits for {name},"
        f" now {best.shares.get(name, 0.0):.1%}"
    )


def _across_nodes(problem: Problem, designs: DesignBatch, whole: ScenarioEvaluation, best: _Choice) -> dict[str, Any]:
    """The best plan whose tensor parallel groups span nodes, beside the chosen one that stays inside them."""
    node = problem.scenarios[0].system.n_chips_per_node
    if best.degrees is None or best.degrees["tensor_parallel"] > node:
        return {}
    wide = _best_of(problem, designs, whole, _values(whole, "tensor_parallel") > node)
    if wide is None:
        return {}
    found: dict[str, Any] = {"degrees": wide.degrees, "serves": wide.serves, "units_per_s": wide.units_per_s}
    if not wide.serves:
        found |= {"limit": wide.limit, "excess_fraction": wide.excess_fraction}
    ratio = wide.units_per_s / best.units_per_s
    return {"tensor_parallel_across_nodes": found | {"rate_ratio": ratio, "time_shares": dict(wide.shares)}}


def _values(whole: ScenarioEvaluation, name: str) -> FloatArray:
    return np.asarray(np.broadcast_to(whole.choices[name], whole.units_per_s.shape)[0])


def _best_of(problem: Problem, designs: DesignBatch, whole: ScenarioEvaluation, among: BoolArray) -> _Choice | None:
    """The best of some alternatives, or the one that comes nearest to the limits; None where there are none."""
    if not among.any():
        return None
    loss, feasible = (np.broadcast_to(v, whole.units_per_s.shape)[0] for v in inner_losses(problem, whole))
    usable = among & feasible
    score = np.where(usable, loss, np.inf) if usable.any() else np.where(among, worst_violation(whole)[0], np.inf)
    return _choice(problem, designs, whole, int(np.argmin(score)))
