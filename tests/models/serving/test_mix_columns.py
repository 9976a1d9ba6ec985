"""Formats in the operators of a step: what each native set widens, rounds and runs at which class."""

import numpy as np
import pytest

from explorer.space import designs_at, full_space, read_space
from models.architectures import load_network, lower
from models.architectures.plans import ParallelPlan
from models.hardware.design import reference_design, replace, take
from models.operators.activity import DEQUANTISED_ROWS
from models.operators.expert_term import routing_columns
from models.operators.factor_tables import FactorTables
from models.operators.step import run_step, step_program, term
from models.precision.mix import RECIPES, compute_rate_ratio, dequantisation_ops, precision_mix
from models.serving.mix_columns import attention_columns, expert_columns, linear_columns, vector_columns
from models.serving.programs import StepLoad, compile_step
from models.serving.scenario import alternatives

MIXES = (
    *(RECIPES[name] for name in ("bf16", "deepseek_v3", "w4a16", "w8a8_kv8", "nvfp4", "mxfp4", "w4a8_kv4", "q4_k_m")),
    precision_mix("mixed small", weights={"linears": "nvfp4"}, activations={"linears": "fp8_tile"}),
    precision_mix("fp6", weights={"linears": "mxfp6"}, activations={"linears": "mxfp8"}, kv=("int4_g64", "nvfp4")),
)


def designs_of_the_space():
    """One design for each native set of the full space."""
    space = read_space("full")
    column = [p.name for p in space.parameters].index("native_formats")
    points = np.array([s // 2 for s in space.sizes])[None, :].repeat(len(full_space()["native_formats"]), axis=0)
    points[:, column] = np.arange(len(points))
    return designs_at(space, points, node_nm=5.0, tdp_w=500.0)


DESIGNS = designs_of_the_space()


def run(mix, kind, op, columns, **sizes):
    each = term("it", kind, op, 1.0, **{name: values[0] for name, values in columns([mix]).items()} | sizes)
    return run_step(step_program([each], 0.0), DESIGNS, FactorTables(), keep_terms=True).terms["it"]


@pytest.mark.parametrize("mix", MIXES, ids=lambda mix: mix.name)
class TestEveryMixOnEveryNativeSet:
    def test_weights_are_widened_as_the_precision_model_says(self, mix):
        m, n, k = 512.0, 4096.0, 1024.0
        found = run(
            mix, "gemm", "linear", lambda mixes: linear_columns(mixes, "ffn_down"),
            m=m, n=n, k=k, output_bytes=2.0, instances=1.0, copies=1.0, useful_fraction=1.0,
        )  # fmt: skip
        rounding = mix.quantise_ops_per_activation("ffn_down") * m * k
        widening = dequantisation_ops(mix, "ffn_down", DESIGNS) * n * k * np.ceil(m / DEQUANTISED_ROWS)
        assert np.allclose(found.vector_ops[:, 0], widening + rounding)

    def test_a_gemm_runs_in_the_class_of_the_precision_model(self, mix):
        found = run(
            mix, "gemm", "linear", lambda mixes: linear_columns(mixes, "ffn_up"),
            m=64.0, n=512.0, k=512.0, output_bytes=2.0, instances=1.0, copies=1.0, useful_fraction=1.0,
        )  # fmt: skip
        used = sum(np.broadcast_to(v[:, 0], 5) * _rate(name) for name, v in found.macs.items())
        assert np.allclose(used / (64.0 * 512.0 * 512.0), compute_rate_ratio(mix, "ffn_up", DESIGNS))

    def test_attention_multiplies_in_its_own_classes_and_widens_the_cache(self, mix):
        choices = alternatives([ParallelPlan()], 1, [8])
        one = np.ones(1)
        load = StepLoad(8.0 * one, 8.0 * one, 8.0 * one, 1000.0 * one, 0.0 * one, one)
        program = compile_step(lower(load_network("llama-3.1-8b")), [mix], choices, load, overhead_s=0.0)
        found = run_step(program, DESIGNS, FactorTables(), keep_terms=True).terms["attention_decode_0"]
        elements, layers, scores = 8 * 1000 * 2048, 32, 8 * 1000 * 32
        keys, values = (dequantisation_ops(mix, f"attention_{part}", DESIGNS) for part in ("scores", "context"))
        queries = mix.quantise_ops_per_activation("attention_scores") * 8 * 32 * 128
        probabilities = mix.quantise_ops_per_activation("attention_context") * scores
        new = attention_columns([mix])["cache_ops"][0] * 8 * 2048
        expected = 0.5 * elements * (keys + values) + queries + probabilities + new + 4 * scores
        assert np.allclose(found.vector_ops[:, 0], layers * expected)
        rates = [compute_rate_ratio(mix, f"attention_{part}", DESIGNS) for part in ("scores", "context")]
        weighted = sum(np.broadcast_to(v[:, 0], 5) * _rate(name) for name, v in found.macs.items())
        assert np.allclose(weighted, layers * scores * 128 * (rates[0] + rates[1]))


def _rate(name):
    return getattr(DESIGNS, f"{name}_rate_ratio")


def test_experts_in_two_formats_count_each_matrix_in_its_class():
    mix = precision_mix(
        "two", weights={"expert_up": "fp8_tile", "expert_down": "int4_g128"}, activations={"expert_up": "fp8_tile"}
    )
    found = run(
        mix, "experts", "gated", lambda mixes: expert_columns(mixes, "expert_up", "expert_down", True),
        hidden=1024.0, inter=512.0, **routing_columns(64, 8, 2, 1, 0),
    )  # fmt: skip
    fp8 = np.flatnonzero(DESIGNS.fp8_rate_ratio > 0)[0]
    macs = {name: float(np.broadcast_to(v[:, 0], 5)[fp8]) for name, v in found.macs.items()}
    assert macs["fp8"] == pytest.approx(2 * macs["bf16"])
    assert np.all(found.vector_ops > 0)


def test_narrow_cache_in_its_native_class_speeds_up_long_contexts_and_costs_less_energy():
    native = replace(reference_design(), fp8_rate_ratio=2.0)
    wide, narrow = (_decode(RECIPES[name], native) for name in ("bf16", "kv8_fp8"))
    assert narrow.time_s[0, 0] < 0.6 * wide.time_s[0, 0]
    assert narrow.dram_bytes[0, 0] < 0.51 * wide.dram_bytes[0, 0]


def _decode(mix, designs):
    choices = alternatives([ParallelPlan()], 1, [64])
    one = np.ones(1)
    load = StepLoad(64.0 * one, 64.0 * one, 64.0 * one, 16000.0 * one, 0.0 * one, one)
    program = compile_step(lower(load_network("llama-3.1-8b")), [mix], choices, load, overhead_s=0.0)
    return run_step(program, designs, FactorTables(), keep_terms=True).terms["attention_decode_0"]


def test_elementwise_traffic_follows_the_format_of_its_module():
    mix = precision_mix("narrow residual", vectors={"residual": "fp8_e4m3"})
    assert vector_columns([mix], "residual")["element_bytes"][0] == pytest.approx(8.008 / 8)
    assert vector_columns([mix], "norm")["element_bytes"][0] == 2.0
    assert vector_columns([mix], "rope")["element_bytes"][0] == 2.0


def test_a_latent_cache_is_widened_once_for_scores_and_values():
    network = lower(load_network("deepseek-v3"))
    choices, one = alternatives([ParallelPlan()], 1, [4]), np.ones(1)
    load = StepLoad(4.0 * one, 4.0 * one, 4.0 * one, 500.0 * one, 0.0 * one, one)
    program = compile_step(network, [RECIPES["kv8_fp8"]], choices, load, overhead_s=0.0)
    columns = next(t for t in program.terms if t.name.startswith("attention_decode")).columns
    assert columns["key_widening_ops"][0] == pytest.approx(4 * 500 * 576)
    assert columns["value_widening_ops"][0] == 0.0


def test_designs_one_at_a_time_equal_the_batch_of_all_native_sets():
    choices, one = alternatives([ParallelPlan()], len(MIXES), [4]), np.ones(len(MIXES))
    load = StepLoad(4.0 * one, 4.0 * one, 4.0 * one, 500.0 * one, 0.0 * one, one)
    program = compile_step(lower(load_network("llama-3.1-8b")), MIXES, choices, load, overhead_s=0.0)
    batch = run_step(program, DESIGNS, FactorTables())
    for i in range(DESIGNS.n_designs):
        alone = run_step(program, take(DESIGNS, [i]), FactorTables())
        assert np.allclose(alone.time_s[0], batch.time_s[i], rtol=1e-12)
