"""Steady state of serving: closed forms, limits, and the same numbers however they are asked for."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.evaluate import evaluate
from models.evaluation import take_alternatives, worst_violation
from models.hardware.design import reference_design, replace, take
from models.operators.factor_tables import FactorTables
from models.serving.scenario import Slo, System
from tests.models.random_designs import random_designs
from tests.models.serving_scenarios import compiled, same, scenario

DESIGN = replace(reference_design(), scale_up_bytes_per_s=3e11)
CHUNKED, WHOLE = compiled(), compiled(scheduling="whole_prompt")


def judged(designs, program=CHUNKED, alternatives=None):
    return evaluate(designs, designs, [program], FactorTables(), alternatives)[0]


def test_rate_is_sequences_over_the_time_of_their_output_in_each_group():
    found = judged(DESIGN)
    groups = 2 / CHUNKED.choices.tensor_parallel
    expected = groups * CHUNKED.choices.batch / (CHUNKED.scenario.requests.output_tokens * found.step_s)
    np.testing.assert_allclose(found.units_per_s, expected)
    np.testing.assert_allclose(found.tpot_s, found.step_s)


def test_whole_prompts_add_one_prompt_to_each_request():
    found = judged(DESIGN, WHOLE)
    outputs, batch = WHOLE.scenario.requests.output_tokens, WHOLE.choices.batch
    request_s = 2 / WHOLE.choices.tensor_parallel / found.units_per_s
    prompt_s = request_s - outputs * found.step_s / batch
    by_plan = prompt_s.reshape(6, -1)
    np.testing.assert_allclose(by_plan, np.broadcast_to(by_plan[:, :1], by_plan.shape), rtol=1e-6)
    np.testing.assert_allclose(found.tpot_s, request_s * batch / outputs)
    assert (by_plan > 0).all()


def test_first_token_waits_for_the_long_prompt_and_one_step():
    found = judged(DESIGN)
    prompt_s = found.ttft_s - found.step_s
    assert (prompt_s > 0).all()
    longer = compiled(requests=dataclasses.replace(scenario().requests, prompt_p95_tokens=4000.0))
    assert (judged(DESIGN, longer).ttft_s > found.ttft_s).all()


def test_energy_of_a_request_is_power_of_all_chips_over_the_rate():
    for program in (CHUNKED, WHOLE):
        found = judged(DESIGN, program)
        np.testing.assert_allclose(found.energy_per_unit_j * found.units_per_s, found.average_power_w * 2)


def test_a_larger_batch_never_slows_the_system_by_a_step_on_the_grid():
    found = judged(DESIGN)
    by_plan = found.units_per_s.reshape(6, -1)
    assert (np.diff(by_plan, axis=1) >= -1e-9).all()
    assert (np.diff(found.step_s.reshape(6, -1), axis=1) >= 0).all()


def test_limits_are_relative_excess_over_the_slo():
    slo = Slo(ttft_s=0.2, tpot_s=0.01)
    found, free = judged(DESIGN, compiled(slo=slo)), judged(DESIGN)
    np.testing.assert_allclose(found.violations["ttft_p95"], found.ttft_s / 0.2 - 1)
    np.testing.assert_allclose(found.violations["tpot_p95"], found.tpot_s / 0.01 - 1)
    assert (free.violations["tpot_p95"] == -1).all()


def test_memory_that_holds_no_weights_is_exceeded_by_far():
    tiny = replace(DESIGN, memory_capacity_bytes=1e9)
    found = judged(tiny)
    assert (found.violations["memory_capacity"] > 0).all()
    assert np.isfinite(found.units_per_s).all()
    assert (worst_violation(found) > 0).all()


@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 10_000))
@pytest.mark.parametrize("program", [CHUNKED, WHOLE], ids=["chunked", "whole_prompt"])
def test_wanted_alternatives_equal_a_selection_of_all(program, seed):
    designs, rng = random_designs(seed, 6), np.random.default_rng(seed)
    first, last = program.windows[rng.integers(0, len(program.windows), 6)].T
    wanted = np.minimum(first[:, None] + np.arange(3), last[:, None])
    whole, some = judged(designs, program), judged(designs, program, wanted)
    for column in range(3):
        same(take_alternatives(whole, wanted[:, column]), take_alternatives(some, np.full(6, column)))


@pytest.mark.parametrize("program", [CHUNKED, WHOLE], ids=["chunked", "whole_prompt"])
def test_a_batch_of_designs_equals_one_at_a_time_in_any_order(program):
    designs = random_designs(8, 7)
    whole = judged(designs, program)
    for i in (6, 2, 0):
        alone = judged(take(designs, [i]), program)
        for name in ("units_per_s", "energy_per_unit_j", "ttft_s", "tpot_s", "average_power_w"):
            np.testing.assert_allclose(getattr(whole, name)[i], getattr(alone, name)[0], rtol=1e-12, err_msg=name)
    back = judged(take(designs, np.arange(7)[::-1]), program)
    np.testing.assert_allclose(back.units_per_s[::-1], whole.units_per_s, rtol=1e-12)


def test_windows_hold_one_degree_and_mix_each_with_batches_rising():
    for first, last in CHUNKED.windows:
        part = slice(first, last + 1)
        assert len(set(CHUNKED.choices.tensor_parallel[part])) == len(set(CHUNKED.choices.mix[part])) == 1
        assert (np.diff(CHUNKED.choices.batch[part]) > 0).all()
    covered = np.concatenate([np.arange(a, b + 1) for a, b in CHUNKED.windows])
    np.testing.assert_array_equal(covered, np.arange(CHUNKED.n_alternatives))


@pytest.mark.parametrize(
    ("system", "expected"),
    [(System(1, 1), set()), (System(2, 2), {"scale_up"}), (System(4, 2), {"scale_up", "scale_out"})],
)
def test_only_links_that_some_plan_sends_over_are_used(system, expected):
    scenario = compiled(system=system)
    assert scenario.used_links(np.arange(scenario.n_alternatives)) == expected


def test_a_scenario_without_mixes_is_refused():
    with pytest.raises(ValueError, match="needs at least one precision mix"):
        compiled(mixes=())


def test_an_encoder_is_refused_by_name():
    with pytest.raises(ValueError, match=r"llm_serving needs a decoder.*'bert-base'"):
        compiled("bert-base")
