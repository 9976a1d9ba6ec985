import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.architectures import load_network, lower
from models.architectures.parallel import split
from models.architectures.training import training_step
from models.architectures.training_memory import (
    TrainingPlan,
    in_flight_microbatches,
    stored_bytes_per_token,
)
from models.checks import UnknownNameError
from models.precision.mix import RECIPES, TrainingFormats, precision_mix

GPT3 = lower(load_network("gpt-3-175b"))
LLAMA = lower(load_network("llama-3.1-8b"))
BF16 = RECIPES["bf16_training"]
# Sixteen bytes a parameter: S. Rajbhandari et al., arXiv 1910.02054, section 3.1.
FP16 = precision_mix("fp16", training=TrainingFormats("fp16", "fp16", "fp32", "fp32", "fp32"))


def gemm_flop(step):
    return sum(gemm.flop for gemm in step.gemms)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gpt-3-175b", "mixtral-8x7b", "deepseek-v3"])
def test_a_step_takes_six_flop_per_token_and_active_matrix_element(name):
    lowered = lower(load_network(name))
    step = training_step(lowered, TrainingPlan(recompute="none"), BF16, 2048, 4)
    # Norms and biases, in n_active_parameters but in no matrix, are below one in a thousand.
    assert gemm_flop(step) / step.tokens_per_step == pytest.approx(6 * lowered.n_active_parameters, rel=1e-3)


def test_full_recomputation_takes_eight_flop_in_the_layers():
    step = training_step(LLAMA, TrainingPlan(recompute="full"), BF16, 2048, 1)
    head = 128256 * 4096
    layers = LLAMA.n_active_parameters - head - LLAMA.other_parameters
    assert gemm_flop(step) / 2048 == pytest.approx(8 * layers + 6 * head)


@pytest.mark.parametrize(("recompute", "fused", "ratio"), [("none", False, 3), ("none", True, 3.5), ("full", False, 4)])
def test_attention_work_of_all_passes(recompute, fused, ratio):
    step = training_step(LLAMA, TrainingPlan(recompute=recompute, fused_attention=fused), BF16, 2048, 1)
    attention = [work for work in step.operators if work.operator == LLAMA.attentions[0]]
    assert sum(work.work_ratio for work in attention) == ratio


@settings(max_examples=20, deadline=None)
@given(tensor=st.sampled_from([1, 2, 8]), data=st.sampled_from([1, 4]), micro=st.sampled_from([1, 2]))
def test_work_of_all_chips_is_conserved_by_the_plan(tensor, data, micro):
    one = training_step(LLAMA, TrainingPlan(), BF16, 1024, 16)
    step = training_step(LLAMA, TrainingPlan(tensor, 1, data, micro), BF16, 1024, 16)
    assert gemm_flop(step) * step.n_chips == pytest.approx(gemm_flop(one))


def test_pipeline_stages_share_the_layers_and_the_last_has_the_head():
    step = training_step(LLAMA, TrainingPlan(pipeline_parallel=4), BF16, 1024, 16)
    counts = {gemm.module: gemm.count for gemm in step.gemms if gemm.part == "forward"}
    assert counts["ffn_up"] == 32 / 4 * 16
    assert counts["output_head"] == 16
    assert step.bubble_ratio == 3 / 16


def test_activations_equal_the_published_formula_without_dropout_masks():
    # V. Korthikanti et al., arXiv 2205.05198, eq. 1 and 2: s b h (10 + 24/t) bytes a layer; two of the 10 are masks.
    for tensor in (1, 8):
        plan = TrainingPlan(tensor, sequence_parallel=False)
        kept = stored_bytes_per_token(split(GPT3, tensor), plan, BF16)
        assert kept / 96 / 12288 == pytest.approx(8 + 24 / tensor)


def test_sequence_parallelism_divides_all_activations():
    # Eq. 4 of the same paper: 34/t.
    kept = stored_bytes_per_token(split(GPT3, 8), TrainingPlan(8), BF16)
    assert kept / 96 / 12288 == pytest.approx(32 / 8)


def test_full_recomputation_keeps_only_the_input_of_each_layer():
    plan = TrainingPlan(recompute="full", sequence_parallel=False)
    memory = training_step(GPT3, plan, BF16, 2048, 1).memory
    kept, one_layer, logits = 2 * 96 * 12288, 32 * 12288, 4 * 50257
    assert memory.activation_bytes == pytest.approx(2048 * (kept + one_layer + logits))


def test_unfused_scores_are_kept_unless_recomputed():
    kept = training_step(GPT3, TrainingPlan(recompute="none", fused_attention=False), BF16, 2048, 1).memory
    again = training_step(GPT3, TrainingPlan(recompute="selective", fused_attention=False), BF16, 2048, 1).memory
    # 4 a s / h of s b h bytes a layer (5 with the dropout mask) on 96 layers, or on the one in work.
    scores = 4 * 96 * 2048**2
    assert kept.activation_bytes - again.activation_bytes == pytest.approx(95 * scores)


def test_mixed_precision_takes_sixteen_bytes_a_parameter():
    # S. Rajbhandari et al., arXiv 1910.02054, section 3.1: 2 + 2 + 12.
    memory = training_step(LLAMA, TrainingPlan(zero_stage=0), FP16, 1024, 1).memory
    state = memory.weight_bytes + memory.gradient_bytes + memory.optimizer_bytes
    assert state == pytest.approx(16 * LLAMA.n_parameters)


@pytest.mark.parametrize(("stage", "bytes_per_parameter"), [(0, 16), (1, 4 + 12 / 64), (2, 2 + 14 / 64), (3, 16 / 64)])
def test_each_zero_stage_shards_one_more_part(stage, bytes_per_parameter):
    # Figure 1 of the ZeRO paper: 16 psi, 4 psi + 12 psi / n, 2 psi + 14 psi / n, 16 psi / n.
    plan = TrainingPlan(data_parallel=64, zero_stage=stage)
    memory = training_step(LLAMA, plan, FP16, 1024, 64).memory
    state = memory.weight_bytes + memory.gradient_bytes + memory.optimizer_bytes
    assert state == pytest.approx(bytes_per_parameter * LLAMA.n_parameters)


def test_gradient_reduction_follows_the_zero_stage():
    def collectives(stage):
        plan = TrainingPlan(data_parallel=8, zero_stage=stage)
        return [(c.op, c.count) for c in training_step(LLAMA, plan, BF16, 1024, 32).collectives]

    assert collectives(0) == [("all_reduce", 1)]
    assert collectives(1) == [("reduce_scatter", 1), ("all_gather", 1)]
    assert collectives(3) == [("reduce_scatter", 4), ("all_gather", 8)]


def test_one_chip_sends_nothing():
    assert training_step(LLAMA, TrainingPlan(), BF16, 1024, 1).collectives == ()


def test_four_reductions_a_layer_under_tensor_parallelism():
    step = training_step(GPT3, TrainingPlan(8, sequence_parallel=False), BF16, 2048, 1)
    (reduction,) = step.collectives
    assert (reduction.op, reduction.count, reduction.message_bytes) == ("all_reduce", 4 * 96, 2048 * 12288 * 2)


def test_optimizer_traffic_is_that_of_one_update():
    step = training_step(LLAMA, TrainingPlan(data_parallel=4), BF16, 1024, 4)
    # Gradient 4, master 4 + 4, moments 2 x (4 + 4), weight 2 bytes, on a quarter of the parameters.
    assert step.optimizer_bytes == pytest.approx(30 * LLAMA.n_parameters / 4)


def test_the_first_stage_holds_as_many_microbatches_as_there_are_stages():
    assert in_flight_microbatches(TrainingPlan(pipeline_parallel=8), 64) == 8
    assert in_flight_microbatches(TrainingPlan(pipeline_parallel=8), 3) == 3
    # Korthikanti et al., eq. 5: 1 + (p - 1) / (p m) with m interleaved groups.
    assert in_flight_microbatches(TrainingPlan(pipeline_parallel=8, interleave=3), 64) == 8 * (1 + 7 / 24)


@settings(max_examples=20, deadline=None)
@given(tensor=st.sampled_from([1, 2, 4]), recompute=st.sampled_from(["none", "selective", "full"]))
def test_more_chips_never_need_more_memory_each(tensor, recompute):
    def total(degree):
        plan = TrainingPlan(degree, recompute=recompute)
        return training_step(LLAMA, plan, BF16, 2048, 1).memory.total_bytes

    assert total(2 * tensor) <= total(tensor)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"tensor_parallel": 0}, "tensor_parallel must be a whole number of at least 1, got 0"),
        ({"microbatch_sequences": True}, "microbatch_sequences must be a whole number of at least 1, got True"),
        ({"zero_stage": 4}, "zero_stage must be 0, 1, 2 or 3, got 4"),
        ({"recompute": "ful"}, "unknown recompute 'ful', did you mean 'full'"),
    ],
    ids=str,
)
def test_a_bad_plan_is_refused(keys, message):
    with pytest.raises((ValueError, UnknownNameError), match=message):
        TrainingPlan(**keys)


@pytest.mark.parametrize(
    ("plan", "sequence_tokens", "sequences", "message"),
    [
        (TrainingPlan(data_parallel=3), 1024, 4, r"multiple of data_parallel x microbatch_sequences \(3\), got 4"),
        (TrainingPlan(), 131073, 1, "sequence_tokens must be at most 131072, the context of llama-3.1-8b, got 131073"),
        (TrainingPlan(), 0, 1, "sequence_tokens must be at least 1"),
        (TrainingPlan(), 1024, 0, "global_batch_sequences must be at least 1"),
        (TrainingPlan(pipeline_parallel=33), 1024, 33, "pipeline_parallel must be at most 32, the number of layers"),
    ],
    ids=range(5),
)
def test_a_bad_step_is_refused(plan, sequence_tokens, sequences, message):
    with pytest.raises(ValueError, match=message):
        training_step(LLAMA, plan, BF16, sequence_tokens, sequences)


def test_an_encoder_is_not_trained_here():
    with pytest.raises(ValueError, match="network bert-base must be a decoder to be trained here, got encoder"):
        training_step(lower(load_network("bert-base")), TrainingPlan(), BF16, 128, 1)


def test_a_mix_for_serving_is_refused():
    with pytest.raises(ValueError, match="precision mix 'serving' must state formats of gradients and moments"):
        training_step(LLAMA, TrainingPlan(), precision_mix("serving"), 1024, 1)


def test_narrow_linears_keep_their_inputs_narrow():
    plan = TrainingPlan(recompute="none")
    narrow = training_step(LLAMA, plan, RECIPES["deepseek_v3_training"], 2048, 1).memory
    wide = training_step(LLAMA, plan, BF16, 2048, 1).memory
    assert narrow.activation_bytes < wide.activation_bytes
    # Linears of the layers in 8 bit and a scale of 32 bit for a block of 128 x 128, the two tables and norms in 16.
    tables = 2 * 128256 * 4096 + LLAMA.other_parameters
    scaled = (8 + 32 / 128**2) / 8
    expected = 2 * tables + scaled * (LLAMA.n_parameters - tables)
    assert narrow.weight_bytes == pytest.approx(expected, rel=1e-3)
