"""A study made ready to run: space, compiled scenarios, objectives and limits; and the judgement of points."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from explorer.constraints import Limits, chip_violations, read_limits
from explorer.document import StudyDocument, StudyError
from explorer.inputs import Inputs, inputs_of
from explorer.objectives import REGRET, Mixture, Objective, objective_values, read_objectives
from explorer.scenario_readers import SCENARIO_READERS
from explorer.space import Space, designs_at, read_space
from explorer.workload import Quality, pointing_at, require_links
from models.checks import BoolArray, FloatArray, IntArray, UnknownNameError, require_known
from models.evaluate import Compiled, Scenario, compile_scenario, evaluate
from models.evaluation import ScenarioEvaluation, take_alternatives, worst_violation
from models.hardware.catalog import chip_designs
from models.hardware.design import DesignBatch
from models.operators.factor_tables import FactorTables
from models.technology import Technology, default_technology


@dataclass(frozen=True)
class Problem:
    """
    Everything that judging a design needs.

    `tables` fills up as designs are judged, `proofs` keeps the exact search between chunks, `outcomes` what shards of
    it have proven, `replays` percentiles; all four only save work.
    """

    document: StudyDocument
    space: Space
    scenarios: tuple[Compiled, ...]
    qualities: tuple[Quality, ...]
    objectives: tuple[Objective, ...]
    mixture: Mixture
    limits: Limits
    tables: FactorTables
    technology: Technology = field(default_factory=default_technology)
    """Shipped values with the study's overlay before them."""
    proofs: list[object] = field(default_factory=list)
    outcomes: list[Mapping[str, Any]] = field(default_factory=list)
    inputs: Inputs = None
    """Where what the study names lies."""
    inputs_read: list[dict[str, Any]] = field(default_factory=list)
    """What was read there, with the hash of its content."""
    replays: dict[str, Any] = field(default_factory=dict)
    """Percentiles of designs at operating points that were replayed before."""
    warm_points: IntArray | None = None
    """Designs of past studies, which are the first trials, shape (n_warm, n_parameters)."""
    team: list[Any] = field(default_factory=list)
    """The team of processes that bounds boxes of this study, where there is one (`explorer.team`)."""
    only: int | None = None
    """Position of the scenario that this is the problem of, where the study has others."""
    lookup: Callable[[Sequence[Mapping[str, Any]]], Mapping[int, Mapping[str, Any]]] | None = None
    """Finds records of equal judgements by the free parameters of designs."""


@dataclass(frozen=True)
class Judgement:
    """
    Designs judged at their best inner choices; arrays of shape (n_designs,) or (n_designs, n_objectives).

    `evaluations` hold the chosen alternative of each scenario, `excess` the relative excess over each limit there.
    """

    designs: DesignBatch
    evaluations: tuple[ScenarioEvaluation, ...]
    objectives: FloatArray
    excess: Mapping[str, FloatArray]
    feasible: np.ndarray
    chosen: tuple[IntArray, ...]


def prepare(document: StudyDocument, inputs: Inputs = None, team: list[Any] | None = None) -> Problem:
    """
    Return the problem of a study.

    Parameters
    ----------
    document : StudyDocument
    inputs : Path or Uploads, optional
        Where files and networks named by the study lie; without it only what is shipped is known.
    team : list, optional
        With the team of processes that helps, see `explorer.team`.

    Raises
    ------
    StudyError
        With a pointer to every field that is at fault.
    """
    if document.robustness and REGRET in [each.metric for each in document.objectives]:
        from explorer.robustness import with_alternatives

        document = with_alternatives(document)
    space = read_space(document.space)
    widest = max(max(p.values) for p in space.parameters if p.name == "scale_up_link")
    require_links(document.system, float(widest), "/space/scale_up_link")
    pairs = []
    for i, each in enumerate(document.workload.scenarios):
        pointer = f"/workload/scenarios/{i}"
        try:
            require_known("chip", each.reference_chip, _chip_ids())
        except UnknownNameError as error:
            raise StudyError([{"pointer": f"{pointer}/reference_chip", "detail": str(error)}]) from None
        pairs.append(SCENARIO_READERS[each.kind](each, document, pointer, inputs))
    calibration = document.calibration
    scenarios = tuple(
        _compiled(i, dataclasses.replace(scenario, calibration=calibration)) for i, (scenario, _) in enumerate(pairs)
    )
    qualities = tuple(quality for _, quality in pairs)
    tables = FactorTables()
    mixture = _mixture(document, scenarios, tables)
    excess = max(q.least_kl_nats / q.budget_nats - 1.0 if not q.mixes else -1.0 for q in qualities)
    problem = Problem(
        document=document,
        space=space,
        scenarios=scenarios,
        qualities=qualities,
        objectives=read_objectives(document.objectives, [s.kind for s in document.workload.scenarios]),
        mixture=mixture,
        limits=read_limits(document.budget, excess),
        tables=tables,
        technology=document.technology.technology,
        inputs=inputs,
        inputs_read=inputs_of(document.model_dump(mode="json", include={"workload", "robustness"}), inputs),
        team=[] if team is None else team,
    )
    if all(each.metric != REGRET for each in problem.objectives):
        return problem
    bests = functools.cache(lambda: _bests(problem))
    mixture = dataclasses.replace(mixture, best_units_per_s=lambda: bests()[0], best_points=lambda: bests()[1])
    return dataclasses.replace(problem, mixture=mixture)


def _bests(problem: Problem) -> tuple[FloatArray, IntArray]:
    """Best rate of each scenario alone: an exact search of half a minute, so it waits until a regret is asked for."""
    from explorer.regret import bests

    return bests(problem)


def _chip_ids() -> list[str]:
    from models.hardware.catalog import chip_ids

    return chip_ids()


def _compiled(index: int, scenario: Scenario) -> Compiled:
    with pointing_at(f"/workload/scenarios/{index}"):
        return compile_scenario(scenario)


def _mixture(document: StudyDocument, scenarios: tuple[Compiled, ...], tables: FactorTables) -> Mixture:
    """
    Weights, and the best rate of each scenario on as many reference chips as the study has.

    Inside the latency limits, or without them where the reference chip keeps none. A scenario without weight, an
    alternative that regret alone looks at, needs no reference.
    """
    weight = np.array([each.weight for each in document.workload.scenarios])
    if len(scenarios) == 1:
        return Mixture(weight, np.ones(1))
    rates = []
    for i, (each, scenario) in enumerate(zip(document.workload.scenarios, scenarios, strict=True)):
        if not each.weight:
            rates.append(1.0)
            continue
        chips = chip_designs([each.reference_chip])
        evaluation = evaluate(chips, chips, [scenario], tables, technology=document.technology.technology)[0]
        keeps = worst_violation(evaluation) <= 0
        fits = keeps if keeps.any() else evaluation.violations["memory_capacity"] <= 0
        rates.append(float(np.max(np.where(fits, evaluation.units_per_s, 0.0))))
        if not rates[-1]:
            detail = f"must hold the scenario in its memory, {each.reference_chip} does not"
            raise StudyError([{"pointer": f"/workload/scenarios/{i}/reference_chip", "detail": detail}])
    return Mixture(weight, np.array(rates))


def judge_points(problem: Problem, points: IntArray, wanted: IntArray | None = None) -> Judgement:
    """
    Return the judgement of points of the space, shape (n_designs, n_parameters), at their best inner choices.

    `wanted` of shape (n_designs,) fixes the alternative of each design, -1 leaves it free; single scenarios only.
    """
    document = problem.document
    designs = designs_at(problem.space, points, node_nm=document.technology.node_nm, tdp_w=document.budget.tdp)
    return judge_designs(problem, designs, wanted)


def judge_designs(problem: Problem, designs: DesignBatch, wanted: IntArray | None = None) -> Judgement:
    """
    Return designs judged at the inner choices that serve the objectives best.

    Each scenario takes, among the alternatives that keep every limit, the one that is best in the objective; with
    several objectives the one with the least sum of relative losses against the design's own best in each. Where
    no alternative is feasible, the one that comes nearest to it is taken.
    """
    return judge_evaluated(problem, designs, evaluate_all(problem, designs), wanted)


def evaluate_all(problem: Problem, designs: DesignBatch) -> list[ScenarioEvaluation]:
    """Return the evaluations of designs in each scenario, all inner choices."""
    return evaluate(designs, designs, problem.scenarios, problem.tables, technology=problem.technology)


def judge_evaluated(
    problem: Problem,
    designs: DesignBatch,
    evaluations: Sequence[ScenarioEvaluation],
    wanted: IntArray | None = None,
) -> Judgement:
    """Return the judgement of designs whose evaluations in each scenario are known; see `judge_designs`."""
    chip = chip_violations(problem.limits, designs, evaluations[0].figures)
    chosen = tuple(_choose(problem, each) for each in evaluations)
    if wanted is not None and len(chosen) == 1:
        chosen = (np.where(wanted >= 0, wanted, chosen[0]),)
    taken = tuple(take_alternatives(each, index) for each, index in zip(evaluations, chosen, strict=True))
    excess = {name: values[:, 0] for name, values in chip.items()}
    for each in taken:
        for name, values in each.violations.items():
            excess[name] = np.maximum(excess.get(name, -np.inf), values[:, 0])
    values = np.stack([objective_values(o, taken, problem.mixture)[:, 0] for o in problem.objectives], axis=1)
    worst = np.max(np.stack(list(excess.values())), axis=0)
    return Judgement(designs, taken, values, excess, worst <= 0, chosen)


def _choose(problem: Problem, evaluation: ScenarioEvaluation) -> IntArray:
    """Best alternative of one scenario for each design, shape (n_designs,)."""
    loss, feasible = inner_losses(problem, evaluation)
    best_feasible = np.argmin(np.where(feasible, loss, np.inf), axis=1)
    nearest = np.argmin(worst_violation(evaluation), axis=1)
    return np.asarray(np.where(feasible.any(axis=1), best_feasible, nearest))


def inner_losses(problem: Problem, evaluation: ScenarioEvaluation) -> tuple[FloatArray, BoolArray]:
    """Sum of relative losses of each alternative against the design's best in each objective, and its feasibility."""
    feasible = worst_violation(evaluation) <= 0
    loss = np.zeros(evaluation.units_per_s.shape)
    for objective in inner_objectives(problem):
        cost = objective.sign * np.log(objective_values(objective, [evaluation], _UNIT_MIXTURE))
        best = np.min(np.where(feasible, cost, np.inf), axis=1, keepdims=True)
        loss += cost - np.where(np.isfinite(best), best, 0.0)
    return loss, feasible


_UNIT_MIXTURE = Mixture(np.ones(1), np.ones(1))


def inner_objectives(problem: Problem) -> tuple[Objective, ...]:
    """What a scenario's inner choice serves: the objectives themselves, or its rate where scenarios are mixed."""
    if len(problem.scenarios) > 1:
        return (Objective("units_per_s", True),)
    return tuple(problem.objectives)


def violated_limit(judgement: Judgement, index: int) -> tuple[str, float]:
    """The limit that design `index` exceeds most, and by which share of it."""
    name = max(judgement.excess, key=lambda key: judgement.excess[key][index])
    return name, float(judgement.excess[name][index])


def judged_metrics(evaluation: ScenarioEvaluation, index: int) -> dict[str, Any]:
    """All metrics of one design under the chosen alternative of one scenario."""
    from models.metrics import metrics_of

    return {
        name: float(np.broadcast_to(metric.read(evaluation), evaluation.units_per_s.shape)[index, 0])
        for name, metric in metrics_of(evaluation.kind).items()
    }
