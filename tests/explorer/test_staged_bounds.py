"""Bounds that look at prompts only where that closes boxes: valid either way, and equal where they look."""

import dataclasses

import numpy as np
import pytest

from explorer import staged_bounds
from explorer.bounds import bound_boxes, without_prompts
from explorer.box_bounds import Below
from explorer.objectives import Objective
from explorer.staged_bounds import FIRST_WAIT, StagedBounds
from models.evaluate import evaluate
from models.hardware.design import reference_design
from models.operators.factor_tables import FactorTables
from models.serving.scenario import Slo
from tests.explorer.random_boxes import FULL, LIMITED, random_boxes
from tests.explorer.small_studies import COST, ENERGY, RATE, enumerated, problem_of, proven, study, with_limits

SOME = (RATE, ENERGY, COST)
EARLY = with_limits(FULL, area_mm2=600.0, slo=Slo(ttft_s=0.02))
"""A study in which the latency of the first token closes what nothing else does."""


def asked(monkeypatch, problem, objectives=SOME):
    """Staged bounds, and a list that grows by whether prompts were looked at, call by call."""
    looked = []

    def recorded(*args, prompts=True):
        looked.append(prompts)
        return bound_boxes(*args, prompts=prompts)

    monkeypatch.setattr(staged_bounds, "bound_boxes", recorded)
    return StagedBounds(problem, objectives), looked


@pytest.mark.parametrize("problem", [FULL, LIMITED, EARLY], ids=["free", "limited", "early"])
def test_bounds_without_prompts_are_never_above_those_with(problem):
    boxes = random_boxes(problem, 300, 3)
    without, whole = (bound_boxes(problem, boxes, SOME, prompts=prompts).cost for prompts in (False, True))
    assert (without <= whole).all()
    seen = np.isfinite(whole[:, 0])
    np.testing.assert_array_equal(without[seen], whole[seen])
    assert (np.isfinite(without[:, 0]) & ~seen).any() == (problem is EARLY)


def test_without_prompts_nothing_changes_but_the_latency_of_first_tokens_and_the_peak_of_power():
    design, plain = reference_design(), FULL
    pair = []
    for problem in (plain, without_prompts(plain)):
        pair += evaluate(design, design, problem.scenarios, FactorTables(), technology=problem.technology)
    whole, without = pair
    for name in ("units_per_s", "energy_per_unit_j", "tpot_s", "step_s", "average_power_w"):
        np.testing.assert_array_equal(getattr(without, name), getattr(whole, name))
    np.testing.assert_array_equal(without.ttft_s, np.broadcast_to(without.step_s, without.ttft_s.shape))
    assert (without.ttft_s < whole.ttft_s).all() and (without.peak_power_w <= whole.peak_power_w).all()


@pytest.mark.parametrize("scheduling", ["whole_prompt", "disaggregated"])
def test_prompts_that_take_time_from_others_are_never_left_out(scheduling):
    problem = problem_of(study({"scheduling": scheduling}, system={"n_chips": 2}))
    assert without_prompts(problem).scenarios == problem.scenarios


@pytest.mark.parametrize("threshold", [np.inf, -1.0], ids=["all matter", "some matter"])
def test_a_look_gives_what_bounds_with_prompts_give(monkeypatch, threshold):
    monkeypatch.setattr(staged_bounds, "FIRST_WAIT", 0)
    boxes, rival = random_boxes(EARLY, 300, 4), Below(threshold)
    staged = StagedBounds(EARLY, (RATE,))(boxes, rival)
    whole = bound_boxes(EARLY, boxes, (RATE,), rival)
    np.testing.assert_array_equal(staged.matters, whole.matters)
    kept = whole.matters
    assert kept.any() and not kept.all()
    for name in ("cost", "first", "last"):
        np.testing.assert_array_equal(getattr(staged, name)[kept], getattr(whole, name)[kept])
    assert (staged.left_out <= whole.left_out).all()


def test_looks_become_rare_where_they_close_nothing(monkeypatch):
    staged, looked = asked(monkeypatch, FULL)
    boxes = random_boxes(FULL, 40, 5)
    for _ in range(30):
        staged(boxes, Below(np.inf))
    calls = np.cumsum([not prompts for prompts in looked])
    assert calls[np.flatnonzero(looked)].tolist() == [FIRST_WAIT + 1, FIRST_WAIT + 1 + 8, FIRST_WAIT + 1 + 8 + 16]


def test_every_call_looks_where_that_closes_boxes(monkeypatch):
    staged, looked = asked(monkeypatch, EARLY)
    boxes = random_boxes(EARLY, 100, 5)
    for _ in range(8):
        staged(boxes, Below(np.inf))
    assert looked == [False] * FIRST_WAIT + [False, True] * (8 - FIRST_WAIT)


@pytest.mark.parametrize(
    ("problem", "objectives"),
    [
        (FULL, (RATE, Objective("ttft_p95_s", False))),
        (problem_of(study({"scheduling": "whole_prompt"})), (RATE,)),
    ],
    ids=["first token is an objective", "whole prompts"],
)
def test_nothing_is_left_out_where_prompts_decide_the_objective(monkeypatch, problem, objectives):
    staged, looked = asked(monkeypatch, problem, objectives)
    for _ in range(FIRST_WAIT + 1):
        staged(random_boxes(problem, 10, 6), Below(np.inf))
    assert all(looked)


def test_a_search_that_only_first_tokens_limit_finds_the_optimum_of_enumeration():
    free = problem_of(study(quality={"no_worse_than": "bf16"}))
    tight = with_limits(free, slo=Slo(ttft_s=0.1), objectives=(ENERGY,))
    loose = dataclasses.replace(tight, scenarios=without_prompts(tight).scenarios)
    assert enumerated(loose) < enumerated(tight) < np.inf
    assert proven(tight).incumbent.cost == pytest.approx(enumerated(tight), rel=1e-9)
