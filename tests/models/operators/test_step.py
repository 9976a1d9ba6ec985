"""Steps of operator terms: monotone, bounded, conserved, and the same however they are asked for."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.hardware.design import concatenate, peak_flop_per_s, reference_design, replace, take
from models.hardware.rates import RATE_CLASSES, class_code
from models.operators.expert_term import routing_columns
from models.operators.factor_tables import FactorTables
from models.operators.step import TERM_KINDS, run_step, step_program, term
from tests.models.random_designs import RESOURCES, random_designs, with_more
from tests.models.serving_scenarios import compiled

SEEDS = st.integers(0, 10_000)
FEW = settings(max_examples=4, deadline=None)
FIVE = np.array([1.0, 8.0, 100.0, 1000.0, 8000.0])
BF16, FP8, FP4 = (float(class_code(name)) for name in ("bf16", "fp8", "fp4"))


def gemm(**changes):
    columns = {
        "m": FIVE, "n": 4096.0, "k": 2048.0, "weight_bytes": 2.0, "input_bytes": 2.0, "output_bytes": 2.0,
        "rate_class": BF16, "dequant_ops": 0.0, "instances": 1.0, "copies": 1.0, "useful_fraction": 1.0,
    }  # fmt: skip
    return term("linear", "gemm", "", 3.0, **(columns | changes))


def attention(kind, **changes):
    columns = {
        "batch": np.array([0.5, 1.0, 2.0, 8.0, 64.0]), "tokens": 1000.0, "n_heads": 32.0, "n_kv_heads": 8.0,
        "head_dim_qk": 128.0, "head_dim_v": 128.0, "kv_bytes_per_element": 2.0, "kv_elements_per_token": 2048.0,
        "window_tokens": 0.0,
    }  # fmt: skip
    return term("attention", kind, "", 4.0, **(columns | changes))


def experts(**changes):
    columns = {
        "hidden": 2048.0, "inter": 1408.0, "weight_bytes": 1.0, "rate_class": FP8,
        **routing_columns(FIVE, 64, 6, 2, 0.5),
    }  # fmt: skip
    return term("experts", "experts", "gated", 2.0, **(columns | changes))


def vector(kind, op):
    return term(op, kind, op, 2.0, elements=FIVE * 4096, bytes_moved=FIVE * 4096 * 4, rows=FIVE, rounding_ops=FIVE * 64)


def state(op):
    return term(op, "state", op, 2.0, tokens=FIVE, sequences=FIVE, state_bytes=2.0**20, flop_per_token=2.0**21)


def collective(op, scale_out, **changes):
    return term(
        op, "collective", op, 2.0, n_chips=np.array([1.0, 2.0, 4.0, 8.0, 8.0]), message_bytes=FIVE * 8192,
        scale_out=scale_out, exposed_fraction=1.0, **changes,
    )  # fmt: skip


TERMS = {
    "gemm": gemm(),
    "gemm of many equal products": gemm(instances=16.0, m=np.array([1.0, 8.0, 64.0, 128.0, 512.0])),
    "gemm with widened weights": gemm(rate_class=BF16, weight_bytes=0.5, dequant_ops=3.0, weight_native=FP4),
    "gemm in fp8": gemm(rate_class=FP8, weight_bytes=1.0, quantise_ops=2.0),
    "gemm in fp4": gemm(rate_class=FP4, weight_bytes=0.56, input_bytes=0.56, quantise_ops=4.0),
    "decode": attention("decode"),
    "decode of a latent": attention(
        "decode", n_kv_heads=1.0, head_dim_qk=576.0, head_dim_v=512.0, kv_elements_per_token=576.0
    ),
    "prefill": attention("prefill"),
    "prefill with a window": attention("prefill", window_tokens=256.0),
    "experts": experts(),
    "experts of two classes": experts(down_class=BF16),
    "vector": vector("vector", "norm"),
    "vector with overlap": vector("vector", "residual"),
    "fused": vector("fused", "activation"),
    "epilogue": vector("epilogue", "relu"),
    "state token by token": state("recurrent"),
    "state in chunks": state("chunked"),
    "collective": collective("all_reduce", 0.0),
    "collective between nodes": collective("all_gather", 1.0),
    "collective beside an engine's own": collective("all_reduce", 0.0, engine_kernel=1.0),
    "decode on the lanes": attention("decode", on_lanes=1.0),
    "host": term("host", "host", "", 1.0, seconds=FIVE * 1e-6),
}


def run(each, designs, **changes):
    return run_step(step_program([each], 0.0), designs, FactorTables(), **changes)


def test_every_kind_of_term_is_tested_here():
    assert {each.kind for each in TERMS.values()} == set(TERM_KINDS)


@pytest.mark.parametrize("each", TERMS.values(), ids=TERMS)
class TestEveryTerm:
    @FEW
    @given(seed=SEEDS)
    def test_more_of_everything_is_never_slower_nor_moves_more(self, each, seed):
        designs = random_designs(seed, 8)
        less, more = run(each, designs), run(each, with_more(designs, seed + 1))
        assert (more.time_s <= less.time_s * (1 + 1e-12)).all()
        assert (more.dram_bytes <= less.dram_bytes * (1 + 1e-12)).all()
        for name in ("vector_ops", "link_bytes"):
            np.testing.assert_allclose(getattr(more, name), getattr(less, name), err_msg=name)

    @FEW
    @given(seed=SEEDS, resource=st.sampled_from(RESOURCES))
    def test_a_little_more_of_one_resource_is_never_slower(self, each, seed, resource):
        designs = random_designs(seed, 8)
        raised = np.ceil(getattr(designs, resource) * 1.01 + (resource == "l2_bytes") * 2**20)
        less, more = run(each, designs), run(each, replace(designs, **{resource: raised}))
        assert (more.time_s <= less.time_s * (1 + 1e-12)).all()

    @FEW
    @given(seed=SEEDS)
    def test_time_is_never_below_its_two_bounds(self, each, seed):
        found = run(each, random_designs(seed, 8), keep_terms=True).terms[each.name]
        assert (found.time_s >= found.compute_s * (1 - 1e-9)).all()
        assert (found.time_s >= found.memory_s * (1 - 1e-9)).all()

    @FEW
    @given(seed=SEEDS)
    def test_multiplications_never_exceed_the_peak_of_their_class(self, each, seed):
        designs = random_designs(seed, 8)
        found = run(each, designs)
        least_s = sum(
            2.0 * macs / np.maximum(peak_flop_per_s(designs, _rate(designs, name)), 1e-300)[:, None]
            for name, macs in found.macs.items()
        )
        assert (found.time_s >= least_s * (1 - 1e-9)).all()

    def test_a_batch_equals_one_design_at_a_time_in_any_order(self, each):
        designs = random_designs(3, 9)
        whole = run(each, designs)
        singles = [run(each, take(designs, [i])).time_s[0] for i in range(9)]
        np.testing.assert_allclose(whole.time_s, singles, rtol=1e-12)
        back = run(each, take(designs, np.arange(9)[::-1]))
        np.testing.assert_allclose(back.time_s[::-1], whole.time_s, rtol=1e-12)
        np.testing.assert_allclose(back.dram_bytes[::-1], whole.dram_bytes, rtol=1e-12)

    def test_wanted_alternatives_equal_a_selection_of_all(self, each):
        designs, wanted = random_designs(4, 9), np.random.default_rng(4).integers(0, 5, (9, 3))
        whole, some = run(each, designs), run(each, designs, alternatives=wanted)
        rows = np.arange(9)[:, None]
        for name in ("time_s", "dram_bytes", "vector_ops", "link_bytes"):
            np.testing.assert_allclose(
                getattr(some, name), getattr(whole, name)[rows, wanted], rtol=1e-12, err_msg=name
            )
        assert some.macs.keys() == whole.macs.keys()
        for name, macs in whole.macs.items():
            np.testing.assert_allclose(some.macs[name], macs[rows, wanted], rtol=1e-12)


def _rate(designs, name):
    rates = getattr(designs, f"{name}_rate_ratio")
    return np.where(rates > 0, rates, np.inf)  # a class that is not native has no multiplications to bound


def test_multiplications_of_a_gemm_are_counted_once_whatever_runs_them():
    designs = random_designs(5, 40)
    found = run(TERMS["gemm in fp4"], designs)
    total = sum(found.macs.values())
    np.testing.assert_allclose(total, np.broadcast_to(3.0 * FIVE * 4096 * 2048, total.shape))
    assert set(found.macs) > {"fp4"}  # designs without fp4 run it in a wider class


def test_terms_add_up_to_the_step():
    program = compiled().step
    found = run_step(program, random_designs(6, 7), FactorTables(), keep_terms=True)
    parts = sum(each.time_s for each in found.terms.values()) + program.overhead_s
    np.testing.assert_allclose(found.time_s, parts, rtol=1e-12)
    for name in ("dram_bytes", "vector_ops", "link_bytes"):
        total = sum(getattr(each, name) for each in found.terms.values())
        np.testing.assert_allclose(getattr(found, name), np.broadcast_to(total, found.time_s.shape), err_msg=name)
    for name, macs in found.macs.items():
        np.testing.assert_allclose(macs, sum(each.macs.get(name, 0.0) for each in found.terms.values()))
    assert set(found.macs) <= set(RATE_CLASSES)


def test_designs_of_several_native_formats_come_back_in_their_order():
    plain, fast = reference_design(), replace(reference_design(), fp8_rate_ratio=0.0)
    program, tables = compiled().step, FactorTables()
    mixed = run_step(program, concatenate([plain, fast, plain, fast]), tables)
    for i, single in enumerate([plain, fast, plain, fast]):
        np.testing.assert_allclose(mixed.time_s[i], run_step(program, single, tables).time_s[0], rtol=1e-12)


def test_a_step_of_terms_with_unequal_alternatives_is_refused():
    short = term("short", "vector", "norm", 1.0, elements=np.ones(2), bytes_moved=1.0, rows=1.0)
    with pytest.raises(ValueError, match=r"equally many alternatives, got \[2, 5\]"):
        step_program([gemm(), short], 0.0)


def test_halving_a_gemm_along_n_conserves_multiplications():
    designs = random_designs(7, 5)
    whole, half = run(gemm(), designs), run(gemm(n=2048.0), designs)
    np.testing.assert_allclose(sum(whole.macs.values()), 2 * sum(half.macs.values()))


@pytest.mark.parametrize("first", [None, np.arange(0, 12, 2)[None, :]], ids=["all", "some"])
def test_alternatives_of_a_run_that_is_kept_are_as_if_run_anew(first):
    program, design = compiled().step, reference_design()
    tables, wanted = FactorTables(keeps_runs=True), np.array([[2, 10, 4]])
    run_step(program, design, tables, alternatives=first)
    kept = run_step(program, design, tables, alternatives=wanted, keep_terms=True)
    anew = run_step(program, design, FactorTables(), alternatives=wanted, keep_terms=True)
    assert len(tables.kept_runs[program].activities) == len(program.terms)
    assert (tables.kept_runs[program].alternatives is None) == (first is None)
    for name in ("time_s", "dram_bytes", "vector_ops", "link_bytes", "l2_bytes"):
        np.testing.assert_allclose(getattr(kept, name), getattr(anew, name), rtol=1e-12)
    for name, each in anew.terms.items():
        np.testing.assert_allclose(kept.terms[name].time_s, each.time_s, rtol=1e-12)


def test_a_run_that_is_kept_answers_for_its_own_design_and_alternatives_alone():
    program, tables = compiled().step, FactorTables(keeps_runs=True)
    slow, some = reference_design(), np.array([[0, 1]])
    fast = replace(slow, clock_hz=2.0 * slow.clock_hz)
    times = [
        run_step(program, design, tables, alternatives=wanted).time_s[0, -1]
        for design, wanted in ((slow, some), (fast, some), (fast, np.array([[0, 7]])))
    ]
    alone = [
        run_step(program, design, FactorTables(), alternatives=wanted).time_s[0, -1]
        for design, wanted in ((slow, some), (fast, some), (fast, np.array([[0, 7]])))
    ]
    np.testing.assert_allclose(times, alone, rtol=1e-12)
    assert len(set(times)) == 3


def test_shapes_from_the_first_block_to_the_last_come_from_one_table():
    program, design = compiled().step, reference_design()
    ends = np.array([[0, program.n_alternatives - 1]])
    both = run_step(program, design, FactorTables(), alternatives=ends).time_s
    np.testing.assert_allclose(both, run_step(program, design, FactorTables()).time_s[:, ends[0]], rtol=1e-12)
