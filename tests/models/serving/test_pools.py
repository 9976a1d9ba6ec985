"""Prefill and decode on engines of their own, in the steady state."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.evaluate import evaluate
from models.hardware.design import reference_design, replace
from models.operators.factor_tables import FactorTables
from models.serving.pools import best_pools
from models.serving.scenario import System
from tests.models.serving_scenarios import compiled, scenario

DESIGN = replace(reference_design(), scale_up_bytes_per_s=3e11, scale_out_bytes_per_s=5e10)
EIGHT = System(8, 4)


def judged(program, design=DESIGN):
    return evaluate(design, design, [program], FactorTables())[0]


POOLS, CHUNKED = (compiled(system=EIGHT, scheduling=name) for name in ("disaggregated", "chunked"))
FOUND = judged(POOLS)


@given(n=st.integers(2, 64), prompts=st.floats(0.01, 100), answers=st.floats(0.01, 100))
def test_no_other_ratio_of_the_pools_is_faster(n, prompts, answers):
    rate, n_prefill = best_pools(np.array(float(n)), np.array(prompts), np.array(answers))
    every = [min(x * prompts, (n - x) * answers) for x in range(1, n)]
    assert float(rate) == pytest.approx(max(every))
    assert min(n_prefill * prompts, (n - n_prefill) * answers) == pytest.approx(max(every))


def test_both_pools_have_an_engine_and_all_chips_are_used():
    engines = 8 / (FOUND.choices["tensor_parallel"] * FOUND.choices["pipeline_parallel"])
    assert (FOUND.choices["prefill_engines"] >= 1).all()
    assert (FOUND.choices["prefill_engines"] <= engines - 1).all()
    assert 8 not in POOLS.choices.tensor_parallel


def test_decoding_no_longer_waits_for_prompts():
    both = {int(t) for t in POOLS.choices.tensor_parallel}
    same = np.isin(CHUNKED.choices.tensor_parallel, list(both))
    shared = judged(CHUNKED)
    assert (FOUND.step_s < shared.step_s[:, same]).all()
    assert (FOUND.ttft_s < shared.ttft_s[:, same]).all()


def test_the_cache_crosses_the_network_and_shows_in_the_time_per_token():
    slow = replace(DESIGN, scale_out_bytes_per_s=1e9, host_bytes_per_s=1e9)
    found = judged(POOLS, slow)
    # 129 KB a token (16 bit) for 667 prompt tokens over 1 GB/s, spread over 163 tokens
    sent_s = (found.tpot_s - found.step_s)[0, 0] * POOLS.scenario.requests.output_tokens
    expected = 131072 * POOLS.scenario.requests.input_tokens / 1e9
    assert expected < sent_s < 2 * expected
    np.testing.assert_array_equal(found.ttft_s, judged(POOLS, slow).ttft_s)
    one_node = compiled(system=System(8, 8), scheduling="disaggregated")
    assert judged(one_node, slow).tpot_s[0, 0] < found.tpot_s[0, 0]


def test_energy_of_a_request_counts_the_chips_that_wait():
    np.testing.assert_allclose(FOUND.energy_per_unit_j * FOUND.units_per_s, FOUND.average_power_w * 8)
    static_j = FOUND.figures.static_w * 8 / FOUND.units_per_s
    assert (FOUND.energy_per_unit_j > static_j).all()


def test_one_chip_cannot_be_two_pools():
    with pytest.raises(ValueError, match="disaggregated scheduling needs chips for an engine of either pool, got 1"):
        compiled(system=System(1, 1), scheduling="disaggregated")


def test_pools_use_the_links_that_the_cache_crosses():
    assert POOLS.used_links(np.arange(POOLS.n_alternatives)) == {"scale_up", "scale_out"}
    assert dataclasses.replace(scenario(), scheduling="disaggregated").tokens_per_step == 1.0
