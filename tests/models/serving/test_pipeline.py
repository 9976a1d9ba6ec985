"""Pipelines of an engine: the shallowest that fits, and that no other is ever better."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.architectures.plans import ParallelPlan
from models.evaluate import evaluate
from models.hardware.design import reference_design, replace
from models.operators.factor_tables import FactorTables
from models.serving.pipeline import Reach, pass_parts, stage_activity
from models.serving.scenario import System
from tests.models.random_designs import random_designs
from tests.models.serving_scenarios import compiled

SIXTEEN = System(16, 4)
TABLES = FactorTables()
SCENARIO = {"mixes": ("bf16",), "system": SIXTEEN, "max_batch": 128}


def of_depths(depths, **changes):
    """Programs of one chip a stage, by depth, all with the same micro-batches."""
    return {p: compiled("llama-3.1-70b", plans=[ParallelPlan(1, 1, p)], **SCENARIO, **changes) for p in depths}


DEPTHS, WHOLE = of_depths((1, 2, 4, 8, 16)), of_depths((2, 8), scheduling="whole_prompt")
ALL = compiled("llama-3.1-70b", **SCENARIO)
BETTER_IF_LOWER = ("energy_per_unit_j", "step_s", "ttft_s", "tpot_s")


def judged(program, designs):
    return evaluate(designs, designs, [program], TABLES)[0]


@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 10_000))
@pytest.mark.parametrize("programs", [DEPTHS, WHOLE], ids=["chunked", "whole_prompt"])
def test_a_deeper_pipeline_of_the_same_micro_batch_has_nothing_but_more_memory(programs, seed):
    designs = random_designs(seed, 8, tdp_w=400.0)
    found = [judged(program, designs) for program in programs.values()]
    for shallow, deep in itertools.pairwise(found):
        assert (deep.units_per_s <= shallow.units_per_s * (1 + 1e-9)).all()
        for name in BETTER_IF_LOWER:
            assert (getattr(deep, name) >= getattr(shallow, name) * (1 - 1e-9)).all(), name


def test_each_design_gets_the_shallowest_pipeline_that_holds_its_sequences():
    designs = random_designs(3, 40)
    found, n = judged(ALL, designs), np.count_nonzero(ALL.choices.tensor_parallel == 1)
    depth = found.choices["pipeline_parallel"][:, :n]
    held = [judged(program, designs).violations["memory_capacity"] for program in DEPTHS.values()]
    allowed = np.array(list(DEPTHS))[:, None] * DEPTHS[1].choices.batch <= 128
    excess, n_allowed = np.where(allowed[:, None], np.stack(held), np.inf), allowed.sum(axis=0)
    first = np.where((excess <= 0).any(axis=0), (excess <= 0).argmax(axis=0), n_allowed - 1)
    np.testing.assert_array_equal(depth, np.array(list(DEPTHS))[first])
    assert len(np.unique(depth)) >= 3


def test_a_step_of_a_pipeline_is_its_stages_one_after_the_other():
    design = replace(reference_design(), scale_up_bytes_per_s=3e11)
    one, two = (judged(DEPTHS[p], design) for p in (1, 2))
    overhead_s = ALL.scenario.step_overhead_s
    # the same work and once more the host, the head and the hand-over of a few rows
    assert (two.step_s > one.step_s + overhead_s).all()
    assert (two.step_s < 1.1 * one.step_s + overhead_s + 1e-3).all()
    np.testing.assert_allclose(two.choices["batch"], 2 * DEPTHS[2].choices.batch[None, :])
    np.testing.assert_allclose(
        two.units_per_s, 16 / 2 * two.choices["batch"] / (ALL.scenario.requests.output_tokens * two.step_s)
    )


def test_a_slow_network_is_paid_by_stages_on_other_nodes_alone():
    design = replace(reference_design(), scale_up_bytes_per_s=3e11, scale_out_bytes_per_s=2e11)
    slow = replace(design, scale_out_bytes_per_s=1e8, host_bytes_per_s=1e8)
    for depth, pays in ((4, False), (8, True)):
        fast_s, slow_s = (judged(DEPTHS[depth], each).step_s for each in (design, slow))
        assert ((slow_s > fast_s * (1 + 1e-9)).all()) == pays


def test_no_group_runs_more_than_the_largest_batch_over_all_micro_batches():
    small = compiled("llama-3.1-70b", mixes=("bf16",), system=SIXTEEN, max_batch=8)
    tiny = replace(reference_design(), memory_capacity_bytes=4e9)
    found = judged(small, tiny)
    deep = found.choices["pipeline_parallel"][0] > 1
    assert deep.any() and (found.choices["batch"][0][deep] <= 8).all()


def test_an_engine_that_spans_nodes_uses_their_links():
    assert ALL.used_links(np.arange(ALL.n_alternatives)) == {"scale_up", "scale_out"}
    shallow = DEPTHS[4]
    assert shallow.used_links(np.arange(shallow.n_alternatives)) == {"scale_up"}


def test_a_deeper_pipeline_of_two_pools_has_nothing_but_more_memory_either():
    pools, designs = of_depths((1, 2, 4, 8), scheduling="disaggregated"), random_designs(9, 8, tdp_w=400.0)
    found = [judged(program, designs) for program in pools.values()]
    for shallow, deep in itertools.pairwise(found):
        assert (deep.units_per_s <= shallow.units_per_s * (1 + 1e-9)).all()
        for name in BETTER_IF_LOWER:
            assert (getattr(deep, name) >= getattr(shallow, name) * (1 - 1e-9)).all(), name


def test_inside_a_node_the_hand_over_to_another_one_changes_nothing():
    program, designs = DEPTHS[2], random_designs(3, 4)
    ran = [
        pass_parts(program.step, program.step_handover, 80, designs, TABLES, None, Reach(deep=True, beyond_node=beyond))
        for beyond in (False, True)
    ]
    assert ran[0].outside is None and ran[1].outside is not None
    inside, either = (stage_activity(parts, np.full((1, 1), 2), np.ones((1, 1))) for parts in ran)
    np.testing.assert_array_equal(inside.time_s, either.time_s)
    leaving = stage_activity(ran[1], np.full((1, 1), 8), np.ones((1, 1)))
    staying = stage_activity(ran[0], np.full((1, 1), 8), np.ones((1, 1)))
    assert (leaving.time_s > staying.time_s).any()


def test_formats_of_a_stage_stand_in_one_order_in_every_process():
    program, designs = ALL, reference_design()
    parts = pass_parts(
        program.step, program.step_handover, 80, designs, TABLES, None, Reach(deep=False, beyond_node=False)
    )
    edge = dataclasses.replace(parts.edge, macs={name: np.ones((1, 1)) for name in ("int8", "fp4", "bf16", "fp32")})
    found = stage_activity(dataclasses.replace(parts, edge=edge), np.ones((1, 1), dtype=np.int64), np.ones((1, 1)))
    assert list(found.macs) == [*parts.layers.macs, *(name for name in edge.macs if name not in parts.layers.macs)]
