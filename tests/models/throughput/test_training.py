"""Programs of training steps."""

import numpy as np
import pytest

from models.architectures import load_network, lower
from models.architectures.training_memory import TrainingPlan
from models.hardware.design import reference_design, replace
from models.precision.mix import RECIPES
from models.serving.scenario import System
from models.throughput.training import training_plans
from tests.models.serving.hybrids import hybrid
from tests.models.throughput.works import judged, term_macs, training

ROOMY = replace(reference_design(), scale_out_bytes_per_s=50e9, memory_capacity_bytes=4e11, tdp_w=1e6)


def plan(**changes):
    return TrainingPlan(**({"data_parallel": 16, "zero_stage": 1} | changes))


def test_gemms_are_three_times_the_forward_pass_over_all_tokens():
    work = training(plans=(plan(recompute="none"),))
    lowered = lower(load_network("llama-3.1-8b"))
    forward = sum(o.n_in * o.n_out * o.count for o in lowered.linears) * 2048 * 64
    assert 16 * term_macs(work, 0) == pytest.approx(3 * forward)


def test_a_unit_is_a_step_of_all_chips():
    evaluation = judged(training(), ROOMY)
    assert evaluation.tokens_per_unit == 2048 * 64
    np.testing.assert_allclose(evaluation.units_per_s, 1 / evaluation.step_s)


def test_full_recomputation_trades_time_for_memory():
    none, full = (training(plans=(plan(recompute=r),)) for r in ("none", "full"))
    assert judged(full, ROOMY).step_s[0, 0] > judged(none, ROOMY).step_s[0, 0]
    assert full.memory_bytes[0] < none.memory_bytes[0]


def test_sharding_more_state_needs_less_memory_and_more_communication():
    work = training(plans=tuple(plan(zero_stage=z) for z in (0, 1, 2, 3)))
    assert (np.diff(work.memory_bytes) < 0).all()
    step_s = judged(work, ROOMY).step_s[0]
    assert step_s[3] > step_s[1]


def test_faster_links_between_nodes_speed_up_data_parallel_training_over_nodes_only():
    over_nodes, in_node = training(plans=(plan(),)), training(plans=(plan(data_parallel=8),), n_chips=8)
    slow, fast = ROOMY, replace(ROOMY, scale_out_bytes_per_s=400e9)
    assert judged(over_nodes, fast).step_s < judged(over_nodes, slow).step_s
    assert judged(in_node, fast).step_s == judged(in_node, slow).step_s


def test_a_pipeline_waits_for_its_bubble():
    work = training(plans=(plan(data_parallel=4, pipeline_parallel=4),))
    assert work.idle_ratio[0] == pytest.approx(3 / 16)
    busy = judged(training(plans=(plan(data_parallel=4, pipeline_parallel=4, interleave=4),)), ROOMY)
    assert busy.step_s < judged(work, ROOMY).step_s


def test_fp8_trains_faster_than_bf16_on_arrays_that_run_it():
    fp8, bf16 = (training(plans=(plan(),), mix=RECIPES[n]) for n in ("deepseek_v3_training", "bf16_training"))
    assert judged(fp8, ROOMY).step_s < judged(bf16, ROOMY).step_s


LLAMA = lower(load_network("llama-3.1-8b"))


def test_plans_are_all_products_of_degrees_and_depths_that_use_all_chips():
    plans = training_plans(LLAMA, System(256, 8), 8192, 1024, "selective")
    assert {p.tensor_parallel for p in plans} == {1, 2, 4, 8}
    assert {p.pipeline_parallel for p in plans} == {1, 2, 4, 8, 16, 32}
    assert {p.zero_stage for p in plans} == {1, 3}
    assert {p.sequence_parallel for p in plans if p.tensor_parallel > 1} == {True, False}
    assert {p.interleave for p in plans if p.pipeline_parallel == 1} == {1}
    assert all(p.n_chips == 256 for p in plans) and len(set(plans)) == len(plans)


def test_short_sequences_are_put_together_in_a_microbatch():
    plans = training_plans(LLAMA, System(16, 8), 1024, 1024, "selective")
    assert {p.microbatch_sequences for p in plans} == {1, 2, 4}


def test_a_pipeline_is_chosen_where_one_chip_holds_no_more_of_the_state():
    plans = training_plans(LLAMA, System(16, 4), 2048, 64, "selective")
    work = training(plans=plans, per_node=4)
    small = replace(ROOMY, memory_capacity_bytes=3e10, scale_up_bytes_per_s=1e11)
    found = judged(work, small)
    fits = found.violations["memory_capacity"][0] <= 0
    deep = work.choices["pipeline_parallel"] > 1
    best = int(np.argmax(np.where(fits, found.units_per_s[0], 0.0)))
    assert fits.any() and deep[best]


def test_a_batch_that_no_plan_divides_is_refused():
    with pytest.raises(ValueError, match="global_batch_sequences must be a multiple of n_chips / "):
        training_plans(LLAMA, System(64, 1), 2048, 1, "selective")


def test_a_plan_of_other_chips_is_refused():
    with pytest.raises(ValueError, match="must be the 16 chips of the system, got 8"):
        training(plans=(plan(data_parallel=8),))


def test_recurrent_layers_are_trained_too():
    work = training(hybrid(), plans=(plan(data_parallel=16),), sequence=1024)
    states = [each for each in work.program.terms if each.kind == "state"]
    assert {each.name.split("_")[1] for each in states} == {"forward", "backward"}
    assert np.isfinite(judged(work, ROOMY).step_s).all()


def test_narrow_operands_are_widened_on_arrays_that_lack_their_class_alone():
    def lane_s(native, mix):
        design = replace(ROOMY, fp8_rate_ratio=2.0 * native)
        slow_lanes = replace(design, vector_lanes_per_core=design.vector_lanes_per_core / 100)
        work = training(mix=RECIPES[mix])
        return judged(work, slow_lanes).step_s - judged(work, design).step_s

    np.testing.assert_allclose(lane_s(True, "deepseek_v3_training"), lane_s(True, "bf16_training"), rtol=0.05)
    assert (lane_s(False, "deepseek_v3_training") > 1.3 * lane_s(False, "bf16_training")).all()
