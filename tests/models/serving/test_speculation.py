"""Speculative decoding: what guesses bring, and what they cost."""

import numpy as np
import pytest

from models.architectures import load_network, lower
from models.evaluate import evaluate
from models.hardware.design import reference_design, replace
from models.operators.factor_tables import FactorTables
from models.serving.capacity import draft_degree
from models.serving.scenario import Speculation
from tests.models.serving_scenarios import compiled

DESIGN = replace(reference_design(), scale_up_bytes_per_s=3e11)
SMALL = lower(load_network("llama-3.1-8b"))


def judged(speculation=None, **changes):
    program = compiled("llama-3.1-70b", mixes=("fp8_kv8",), n_chips=8, speculation=speculation, **changes)
    return evaluate(DESIGN, DESIGN, [program], FactorTables())[0]


@pytest.mark.parametrize(("guesses", "right", "expected"), [(1, 0.5, 1.5), (3, 0.8, 2.952), (4, 0.0001, 1.0001)])
def test_a_step_gains_the_guesses_up_to_the_first_wrong_one(guesses, right, expected):
    # (1 - a^(k+1)) / (1 - a), arXiv:2211.17192 eq. 1
    assert Speculation(guesses, right).tokens_per_step == pytest.approx(expected, rel=1e-3)


def test_free_guesses_shorten_the_time_per_token_of_small_batches():
    plain, guessed = judged(), judged(Speculation(3, 0.8))
    small = plain.choices["micro_batch"] == 1
    assert (guessed.tpot_s[:, small] < plain.tpot_s[:, small] / 2).all()
    assert (guessed.step_s > plain.step_s).all()


def test_a_draft_network_costs_time_energy_and_memory():
    free, drafted = judged(Speculation(3, 0.8)), judged(Speculation(3, 0.8, SMALL))
    shallow = free.choices["pipeline_parallel"] == drafted.choices["pipeline_parallel"]
    assert (drafted.step_s > free.step_s)[shallow].all()
    assert (drafted.energy_per_unit_j > free.energy_per_unit_j)[shallow].all()
    # 8.03e9 parameters in 8 bit but for embedding and head
    more = (drafted.choices["weight_bytes"] - free.choices["weight_bytes"])[shallow].max()
    assert 8e9 < more < 10e9


def test_guesses_that_are_never_right_only_cost():
    plain, wrong = judged(), judged(Speculation(4, 1e-9, SMALL))
    assert (wrong.tpot_s > plain.tpot_s).all()
    assert (wrong.units_per_s < plain.units_per_s).all()


def test_a_draft_of_few_heads_repeats_its_work_on_the_other_chips():
    assert [draft_degree(SMALL, t) for t in (1, 6, 8, 64)] == [1, 6, 8, 32]


def test_more_guesses_bring_ever_less():
    gains = np.diff([Speculation(k, 0.7).tokens_per_step for k in range(1, 8)])
    assert (np.diff(gains) < 0).all() and (gains > 0).all()
