"""Intervals of judged designs, and how often another design would win within them."""

from pathlib import Path

import numpy as np
import pytest

from explorer.document import read_document
from explorer.evaluation import evaluate_document
from explorer.files import read_yaml
from explorer.intervals import N_SAMPLES, stability
from explorer.problem import prepare
from models.hardware.catalog import chip_designs

CHAT = read_yaml(Path(__file__).parents[2] / "examples" / "chat-550-150.yaml")


@pytest.fixture(scope="module")
def answer():
    return evaluate_document({"chip": "h100_sxm", "study": CHAT})


def test_every_interval_holds_its_metric(answer):
    for name, interval in answer["intervals"].items():
        if name in answer["metrics"]:
            assert interval["low"] < answer["metrics"][name] < interval["high"], name
            assert interval["label"] in ("calibrated", "uncalibrated")


def test_times_and_rates_move_against_each_other(answer):
    step, rate = answer["intervals"]["step_s"], answer["intervals"]["units_per_s"]
    assert step["high"] / step["low"] == pytest.approx(rate["high"] / rate["low"])


def test_energy_and_rate_per_watt_take_the_interval_of_energy_and_the_time_of_static_power(answer):
    per_watt, energy = (answer["intervals"][n] for n in ("sustainable_output_tokens_per_s_per_w", "energy_per_unit_j"))
    assert per_watt["high"] / per_watt["low"] == pytest.approx(energy["high"] / energy["low"])
    figure = answer["figures"]["energy_per_unit_j"]
    assert energy["high"] / energy["low"] > figure["high_90"] / figure["low_90"]


def test_a_profile_is_echoed_and_moves_the_answer(answer):
    profile = {"name": "slow", "device": "h100_sxm", "constants": {"gemm": {"memory_efficiency": 0.5}}}
    slow = evaluate_document({"chip": "h100_sxm", "study": CHAT, "profile": profile})
    assert slow["profile"]["constants"] == {"gemm": {"memory_efficiency": 0.5}}
    assert slow["metrics"]["output_tokens_per_s"] < answer["metrics"]["output_tokens_per_s"]
    assert answer["profile"] is None


def win_shares(chips, values):
    problem = prepare(read_document(CHAT))
    designs = chip_designs(chips)
    chosen = [np.zeros(designs.n_designs, dtype=np.int64)]
    (objective,) = [each for each in problem.objectives if each.metric == "usd_per_million_output_tokens"]
    column = np.array(values, dtype=np.float64)[:, None]
    found = stability(problem, designs, chosen, np.repeat(column, len(problem.objectives), axis=1), 0)
    return next(each for each in found if each["metric"] == objective.metric)


def test_equal_designs_win_alike_and_a_far_better_one_always():
    even = win_shares(["h100_sxm", "h100_sxm"], [1.0, 1.0])
    # 4000 draws: five standard errors of a half
    assert even["recommended_wins_fraction"] == pytest.approx(0.5, abs=5 * 0.5 / np.sqrt(N_SAMPLES))
    assert win_shares(["h100_sxm", "h100_sxm"], [1.0, 10.0])["another_wins_fraction"] == 0.0
