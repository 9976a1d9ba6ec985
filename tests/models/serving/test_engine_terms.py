"""What an engine adds to a step: messages between chips, and its host."""

import numpy as np
import pytest

from models.architectures import load_network, lower
from models.hardware.catalog import chip_designs
from models.operators.attention import attention_decode_time_s
from models.operators.factor_tables import FactorTables
from models.operators.step import run_step
from models.precision.mix import recipe
from models.serving.engine_terms import EngineTraits
from models.serving.programs import StepLoad, compile_step
from models.serving.scenario import Alternatives
from models.tables import constants

LLAMA, MIXTRAL = lower(load_network("llama-3.1-8b")), lower(load_network("mixtral-8x7b"))


def step(network=LLAMA, chip="h100_sxm", degree=1, groups=1, batch=64.0, context=1000.0, **traits):
    one = np.ones(1)
    load = StepLoad(batch * one, batch * one, batch * one, context * one, 0.0 * one, one)
    choices = Alternatives(np.array([degree]), np.array([groups]), np.zeros(1, dtype=np.int64), batch * one)
    program = compile_step(
        network, [recipe("fp8_kv8")], choices, load,
        overhead_s=0.0, traits=EngineTraits(**traits),
    )  # fmt: skip
    return run_step(program, chip_designs([chip]), FactorTables(), keep_terms=True).terms


def seconds(terms, name):
    return float(terms[name].time_s[0, 0])


def test_the_host_takes_time_for_each_sequence_and_each_doubling_of_the_processes():
    c = constants("launch")
    one, eight = (seconds(step(degree=d), "host") for d in (1, 8))
    assert one == pytest.approx(64 * c["sequence_overhead_s"])
    assert eight - one == pytest.approx(3 * c["process_round_overhead_s"])


def test_a_batch_that_runs_through_as_it_began_needs_no_rounds_between_processes():
    assert seconds(step(degree=8, scheduled=False), "host") == pytest.approx(seconds(step(), "host"))


def test_chips_without_links_pay_for_a_host_that_shares_badly():
    good, bad = (seconds(step(chip="l40s", degree=8, host_sharing_exponent=x), "all_reduce") for x in (0.0, 2.0))
    assert bad > 3 * good
    linked = [seconds(step(degree=8, host_sharing_exponent=x), "all_reduce") for x in (0.0, 2.0)]
    assert linked[0] == linked[1]


def test_under_attention_data_parallel_experts_see_all_tokens_and_there_is_no_all_reduce():
    alone, spread = step(MIXTRAL), step(MIXTRAL, groups=4, dispatched=False)
    assert "all_reduce" not in spread
    assert {"experts_all_gather", "experts_reduce_scatter"} <= set(spread)
    gathered = spread["experts_all_gather"].link_bytes[0, 0] / 32
    assert gathered == pytest.approx(0.75 * 4 * 64 * 4096 * 2)
    assert seconds(spread, "attention_qkv") == pytest.approx(seconds(alone, "attention_qkv"))
    # whole experts are held by one chip each: a quarter of the weights, each a byte, and as many rows as of one alone
    weights = 32 * 8 * 3 * 4096 * 14336
    saved = alone["expert_up"].dram_bytes[0, 0] - spread["expert_up"].dram_bytes[0, 0]
    assert saved == pytest.approx(0.75 * weights, rel=0.02)


def test_decode_on_the_lanes_treats_query_heads_one_by_one():
    fast, slow = (seconds(step(decode_on_lanes=np.array([flag])), "attention_decode_0") for flag in (0.0, 1.0))
    assert slow > fast
    c = dict(constants("attention")) | {
        "decode_rows_per_unit": 1.0, "decode_row_cycles": 1.0, "decode_matrix_efficiency_fraction": np.inf,
        "decode_vector_cycles_per_element": constants("attention_sources")["scalar_cycles_per_element"],
    }  # fmt: skip
    alone = attention_decode_time_s(chip_designs(["h100_sxm"]), 64, 1000, 32, 8, 128, 128, 1.0, 2048, constants=c)
    assert slow >= 32 * float(alone[0, 0]) * 0.999


def test_residuals_are_added_by_the_norm_that_reads_them():
    terms = step(batch=1.0)
    assert seconds(terms, "layer_residual_residual_1") < 0.2 * seconds(terms, "layer_norm_norm_0")
