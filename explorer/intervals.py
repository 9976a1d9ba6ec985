"""90 % intervals of the figures of judged designs, and how often another design would win within them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from explorer.bottleneck import alternative_of
from explorer.chip_report import figures_document
from explorer.problem import Judgement, Problem, judge_points
from explorer.records import TrialRecord
from explorer.space import point_of
from models.checks import FloatArray
from models.hardware.design import DesignBatch, one_of
from models.operators.intervals import NORMAL_90
from models.operators.step import StepActivity, StepProgram, run_step
from models.operators.term_spread import UNCALIBRATED_SHARE, StepSpread, step_spread
from models.serving.steady import CompiledServing
from models.tables import constants

SLOWER: Mapping[str, float] = {
    "step_s": 1.0, "tpot_p95_s": 1.0, "ttft_p95_s": 1.0, "units_per_s": -1.0, "requests_per_s": -1.0,
    "sustainable_requests_per_s": -1.0, "output_tokens_per_s": -1.0, "sustainable_output_tokens_per_s": -1.0,
    "output_tokens_per_s_per_chip": -1.0, "output_tokens_per_s_per_mm2": -1.0, "output_tokens_per_s_per_usd": -1.0,
    "usd_per_million_output_tokens": 1.0, "usd_per_unit": 1.0, "images_per_s": -1.0, "trained_tokens_per_s": -1.0,
    "usd_per_million_trained_tokens": 1.0,
}  # fmt: skip
"""Metric -> how it moves in log with log(step time)."""

FIGURE_OF: Mapping[str, str] = {
    "output_tokens_per_s_per_mm2": "area_mm2", "output_tokens_per_s_per_usd": "unit_cost_usd",
    "usd_per_million_output_tokens": "usd_per_unit", "usd_per_million_trained_tokens": "usd_per_unit",
    "energy_per_request_j": "energy_per_unit_j", "energy_per_output_token_j": "energy_per_unit_j",
    "sustainable_output_tokens_per_s_per_w": "energy_per_unit_j", "trained_tokens_per_s_per_w": "energy_per_unit_j",
    "facility_energy_per_million_output_tokens_j": "energy_per_unit_j",
    "facility_energy_per_session_j": "energy_per_unit_j", "usd_per_session": "usd_per_unit",
}  # fmt: skip
"""Metric -> figure of the chip or of its work whose interval it takes; a figure's own name needs no entry."""

TIME_PART: Mapping[str, str] = {"usd_per_unit": "capital_and_host", "energy_per_unit_j": "static"}
"""Figure -> its part that grows with the time of the work."""

N_SAMPLES = 4000
NEAR_BEST = 64
"""Designs that are compared with the recommended one at most."""


def intervals_document(
    problem: Problem,
    judgement: Judgement,
    index: int,
    metrics: Mapping[str, Any],
    figures: Mapping[str, Mapping[str, Any]],
    steps: Sequence[StepActivity] | None = None,
) -> dict[str, Any]:
    """
    Return metric -> {low, high, label} of one judged design, whose `figures_document` is known.

    Times follow the spread of every operator of the step (of prompt and step for the first token) and rates follow the
    time; area, power and cost of the chip have intervals of their own, and energy and cost of the work take both.
    `label` is `uncalibrated` where a part of the step is of an operator, size or format that no measurement shows, else
    `calibrated`. With several scenarios the widest step is taken.
    """
    step, first_token, calibrated = _times(problem, judgement, index, steps or chosen_steps(problem, judgement, index))
    found = {}
    for name, value in metrics.items():
        figure = figures.get(FIGURE_OF.get(name, name), {})
        follows_time = name in SLOWER or FIGURE_OF.get(name, name) in TIME_PART
        if not isinstance(value, float) or value <= 0 or not (follows_time or "low_90" in figure):
            continue
        time = first_token if name == "ttft_p95_s" else step
        time *= _time_share(FIGURE_OF.get(name, name), figure) if follows_time else 0.0
        own = np.log(figure["high_90"] / figure["low_90"]) / 2.0 if "low_90" in figure else 0.0
        found[name] = _interval(value, float(np.hypot(time, own)), calibrated or not follows_time)
    return found


def _time_share(name: str, figure: Mapping[str, Any]) -> float:
    """Share of a figure that grows with time; all of it but for energies and costs."""
    part = TIME_PART.get(name)
    return 1.0 if part is None else float(figure["parts"][part] / sum(figure["parts"].values()))


def chosen_steps(problem: Problem, judgement: Judgement, index: int) -> list[StepActivity]:
    """What a step of each scenario does on one judged design at its chosen alternative, operator by operator."""
    one = one_of(judgement.designs, index)
    return [
        run_step(each.program, one, problem.tables, alternatives=np.array([[chosen[index]]]), keep_terms=True)
        for each, chosen in zip(problem.scenarios, judgement.chosen, strict=True)
    ]


def _times(
    problem: Problem, judgement: Judgement, index: int, steps: Sequence[StepActivity]
) -> tuple[float, float, bool]:
    """Half widths of log of the step and of the first token, and whether measurements show what takes the time."""
    designs = one_of(judgement.designs, index)
    half_width, first_token, calibrated = 0.0, 0.0, True
    for compiled, chosen, done in zip(problem.scenarios, judgement.chosen, steps, strict=True):
        step = step_spread(compiled.program, np.array([[chosen[index]]]), done.terms, done.time_s)
        half_width = max(half_width, float(step.half_width[0]))
        calibrated = calibrated and bool(step.uncalibrated_share[0] <= UNCALIBRATED_SHARE)
        if isinstance(compiled, CompiledServing):
            place = np.array([[compiled.prompt_index[chosen[index]]]])
            prompt = _spread(problem, compiled.prompt, designs, place)
            first_token = max(first_token, float(prompt.half_width[0]), float(step.half_width[0]))
    return half_width, first_token, calibrated


def _interval(value: float, half_width: float, calibrated: bool) -> dict[str, Any]:
    factor = float(np.exp(half_width))
    return {"low": value / factor, "high": value * factor, "label": "calibrated" if calibrated else "uncalibrated"}


def _spread(problem: Problem, program: StepProgram, designs: DesignBatch, alternatives: np.ndarray) -> StepSpread:
    activity = run_step(program, designs, problem.tables, alternatives=alternatives, keep_terms=True)
    return step_spread(program, alternatives, activity.terms, activity.time_s)


def stability(
    problem: Problem, designs: DesignBatch, chosen: Sequence[np.ndarray], values: FloatArray, recommended: int
) -> list[dict[str, Any]]:
    """
    Return for each objective that follows the time how often another design would win within the intervals.

    The level of every group of operators is drawn for each design, log-normal with its spread between devices, of
    which `shared_between_designs_fraction` is common to all designs; the errors within a device are each design's own.

    Parameters
    ----------
    problem : Problem
    designs : DesignBatch
        The recommended design and those nearest to it, n_designs.
    chosen : sequence of arrays of shape (n_designs,)
        Alternative of each scenario.
    values : array of shape (n_designs, n_objectives)
        Objectives as predicted.
    recommended : int
        Position of the recommended design.

    Returns
    -------
    list of dict
        {metric, designs, another_wins_fraction, samples}.
    """
    errors = _sampled_log_errors(problem, designs, chosen)
    found = []
    for i, objective in enumerate(problem.objectives):
        slower = SLOWER.get(objective.metric, 0.0)
        if slower == 0.0 or not np.all(values[:, i] > 0):
            continue
        costs = objective.sign * (np.log(values[:, i])[None, :] + slower * errors)
        wins = np.argmin(costs, axis=1)
        best = int(np.argmin(objective.sign * values[:, i]))
        found.append({
            "metric": objective.metric, "designs": designs.n_designs, "samples": N_SAMPLES,
            "another_wins_fraction": float(np.mean(wins != best)),
            "recommended_wins_fraction": float(np.mean(wins == recommended)),
        })  # fmt: skip
    return found


def _sampled_log_errors(problem: Problem, designs: DesignBatch, chosen: Sequence[np.ndarray]) -> FloatArray:
    """Errors of log(step time), mean over the scenarios, shape (n_samples, n_designs)."""
    rng = np.random.default_rng(0)
    shared = constants("intervals")["shared_between_designs_fraction"]
    total = np.zeros((N_SAMPLES, designs.n_designs))
    for compiled, alternative in zip(problem.scenarios, chosen, strict=True):
        spread = _spread(problem, compiled.program, designs, np.asarray(alternative)[:, None])
        _, levels = spread.levels
        common = rng.standard_normal((N_SAMPLES, levels.shape[1])) @ levels.T
        own = np.sqrt(np.square(levels).sum(axis=1)) * rng.standard_normal(total.shape)
        alone = np.sqrt(np.square(spread.shares * spread.within).sum(axis=1)) * rng.standard_normal(total.shape)
        total += (np.sqrt(shared) * common + np.sqrt(1.0 - shared) * own + alone) / NORMAL_90
    return np.asarray(total / len(problem.scenarios))


def judged_again(problem: Problem, records: Sequence[TrialRecord]) -> Judgement:
    """Return the judgement of trials at their own operating points where a study has one serving scenario."""
    points = np.array([point_of(problem.space, each.params) for each in records])
    first = problem.scenarios[0]
    wanted = None
    if len(problem.scenarios) == 1 and isinstance(first, CompiledServing):
        wanted = np.array([alternative_of(first, each.operating_point) for each in records])
    return judge_points(problem, points, wanted)


def intervals_of(problem: Problem, records: Sequence[TrialRecord]) -> list[dict[str, Any]]:
    """Return `intervals_document` of each trial."""
    if not records:
        return []
    judgement = judged_again(problem, records)
    found = []
    for i, each in enumerate(records):
        figures = figures_document(problem, judgement.designs, i, judgement.evaluations[0])
        found.append(intervals_document(problem, judgement, i, each.metrics, figures))
    return found


def stability_of(problem: Problem, records: Sequence[TrialRecord], best: TrialRecord) -> list[dict[str, Any]]:
    """Return `stability` of the recommended trial among the feasible ones that come nearest to it."""
    others = [each for each in records if each.feasible and each.number != best.number and each.params != best.params]
    signs = np.array([each.sign for each in problem.objectives])
    loss = [float(np.sum(signs * np.log(_positive(each.objectives) / _positive(best.objectives)))) for each in others]
    near = [best, *(others[i] for i in np.argsort(loss, kind="stable")[: NEAR_BEST - 1])]
    judgement = judged_again(problem, near)
    values = np.array([each.objectives for each in near], dtype=np.float64)
    return stability(problem, judgement.designs, judgement.chosen, values, 0)


def _positive(values: Sequence[float]) -> FloatArray:
    return np.maximum(np.asarray(values, dtype=np.float64), np.finfo(float).tiny)
