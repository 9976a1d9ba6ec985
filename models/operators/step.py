"""
One step of work as a list of operator terms, and the time it takes on many designs.

A step is compiled once per workload (`StepProgram`) and knows nothing of designs. Each term holds the sizes of
its distinct *columns* and an index from the step's alternatives (plan x mix x batch) to those columns, so that
what alternatives share is computed once. What few design parameters decide (on-chip cycles, DRAM traffic) comes
from `FactorTables`, rows filled on demand and shared by all designs and boxes of a search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from models.checks import FloatArray, IntArray
from models.hardware.design import DesignBatch, peak_flop_per_s, take
from models.hardware.rates import OPERAND_BYTES, RATE_CLASSES, native_signature, rate_ratios
from models.operators.attention import (
    attention_bytes,
    attention_decode_time_s,
    attention_flop,
    attention_prefill_time_s,
    mean_keys,
)
from models.operators.collective import collective_time_s, wire_bytes
from models.operators.elementwise import elementwise_time_s
from models.operators.factor_tables import FactorTables, compress
from models.operators.gemm import (
    effective_l2_bytes,
    gemm_dram_bytes,
    gemm_time_s,
    kernel_start_cycles,
    onchip_cycles,
)
from models.operators.moe import expected_distinct_experts, expert_mlp_time_s
from models.tables import constants

GEMM_COLUMNS = (
    "m", "n", "k", "weight_bytes", "input_bytes", "output_bytes", "rate_class", "dequant_ops", "instances", "copies",
)  # fmt: skip
CYCLE_FIELDS = (
    "array_m", "array_n", "array_k", "arrays_per_core", "n_cores", "scratchpad_bytes_per_core",
    "noc_bytes_per_cycle_per_core", "stationarity", "array_groups", "bulk_async_copy",
    *(f"{name}_rate_ratio" for name in RATE_CLASSES),
)  # fmt: skip
CACHE_FIELDS = ("l2_bytes", "l2_halves")
DEQUANTISED_ROWS = 256
"""Rows of a GEMM that share one conversion of the weights: the tallest tile that keeps them on chip."""
SOFTMAX_OPS_PER_SCORE = 4
"""Subtract, exponential, sum and rescale of one score: the definition of online softmax."""


@dataclass(frozen=True)
class Term:
    """
    One operator of a step: named columns of shape (n_columns,), and for each alternative its column and count.

    `kind` is gemm, decode, prefill, vector or collective; `op` narrows it (the vector operator, the collective).
    Columns by kind:

    - gemm: `GEMM_COLUMNS`, in elements and bytes per element; `rate_class` indexes RATE_CLASSES, `dequant_ops` are
      vector operations per weight where the array cannot take the stored form, `instances` equal GEMMs run in a row,
      `copies` the sets of operands that pass between two uses of the same weights;
    - decode, prefill: batch, tokens (KV read per sequence, or new tokens), n_heads, n_kv_heads, head_dim_qk,
      head_dim_v, kv_bytes_per_element, kv_elements_per_token;
    - experts: tokens, hidden, inter, n_experts, top_k, expert_parallel, weight_bytes, rate_class, zipf_exponent;
    - vector: elements, bytes_moved, rows;
    - collective: n_chips, message_bytes, scale_out (1 where it leaves the node).
    """

    name: str
    kind: str
    op: str
    columns: Mapping[str, FloatArray]
    index: IntArray
    count: FloatArray


@dataclass(frozen=True)
class StepProgram:
    """Terms of one step, the number of alternatives they are indexed by, and the host time around them [s]."""

    terms: tuple[Term, ...]
    n_alternatives: int
    overhead_s: float
    gemm_columns: Mapping[str, FloatArray]
    """Columns of all GEMM terms one after the other."""


@dataclass(frozen=True)
class TermActivity:
    """What one term does, shape (n_designs or 1, n_alternatives) each; compute and memory are its two bounds."""

    time_s: FloatArray
    compute_s: FloatArray
    memory_s: FloatArray
    macs: Mapping[str, FloatArray]
    dram_bytes: FloatArray
    vector_ops: FloatArray
    link_bytes: FloatArray


@dataclass(frozen=True)
class StepActivity:
    """Sums over the terms of a step, shape (n_designs, n_alternatives) each; `terms` only where asked for."""

    time_s: FloatArray
    macs: Mapping[str, FloatArray]
    dram_bytes: FloatArray
    vector_ops: FloatArray
    link_bytes: FloatArray
    terms: Mapping[str, TermActivity]


def term(name: str, kind: str, op: str, count: FloatArray | float, **columns: FloatArray | float) -> Term:
    """Return a term from columns given per alternative; equal columns are merged."""
    distinct, index = compress(**columns)
    return Term(name, kind, op, distinct, index, np.broadcast_to(np.asarray(count, dtype=np.float64), index.shape))


def step_program(terms: Iterable[Term], overhead_s: float) -> StepProgram:
    """Return the program of `terms`, all of which are indexed by the same alternatives."""
    kept = tuple(terms)
    lengths = {len(t.index) for t in kept}
    if len(lengths) != 1:
        raise ValueError(f"terms of a step must have equally many alternatives, got {sorted(lengths)}")
    gemms = [t.columns for t in kept if t.kind == "gemm"]
    merged = {name: np.concatenate([g[name] for g in gemms]) for name in GEMM_COLUMNS} if gemms else {}
    return StepProgram(kept, lengths.pop(), overhead_s, merged)


def run_step(
    program: StepProgram, designs: DesignBatch, tables: FactorTables, *, keep_terms: bool = False
) -> StepActivity:
    """
    Return time and activity of the step on each design and alternative, at the highest clock.

    Parameters
    ----------
    program : StepProgram
        The step, compiled for `n_alternatives` alternatives.
    designs : DesignBatch
        The performance batch of the two-batch contract.
    tables : FactorTables
        Shared rows; the same object may serve many calls.
    keep_terms : bool
        Keep every term's own activity, for explanations.

    Returns
    -------
    StepActivity
        Arrays of shape (n_designs, n_alternatives).
    """
    promoted, inverse = native_signature(designs)
    if len(promoted) == 1:
        return _run(program, designs, promoted[0], tables, keep_terms)
    parts = [np.flatnonzero(inverse == i) for i in range(len(promoted))]
    runs = [_run(program, take(designs, p), promoted[i], tables, keep_terms) for i, p in enumerate(parts)]
    return _join(runs, np.argsort(np.concatenate(parts), kind="stable"))


def _run(
    program: StepProgram, designs: DesignBatch, promoted: IntArray, tables: FactorTables, keep_terms: bool
) -> StepActivity:
    """Run all terms on designs that share their native classes, and add them up."""
    shape = (designs.n_designs, program.n_alternatives)
    time_s, dram, vector, link = (np.zeros(shape) for _ in range(4))
    time_s += program.overhead_s
    macs: dict[str, FloatArray] = {}
    kept: dict[str, TermActivity] = {}
    gemms = _gemm_activities(program, designs, promoted, tables)
    for each in program.terms:
        activity = next(gemms) if each.kind == "gemm" else _RUN[each.kind](each, designs, promoted)
        spread = _spread(activity, each)
        time_s += spread.time_s
        dram += spread.dram_bytes
        vector += spread.vector_ops
        link += spread.link_bytes
        for name, values in spread.macs.items():
            macs[name] = macs.get(name, 0.0) + values
        if keep_terms:
            kept[each.name] = spread
    full = {name: np.broadcast_to(values, shape) for name, values in macs.items()}
    return StepActivity(time_s, full, dram, vector, link, kept)


def _spread(activity: TermActivity, each: Term) -> TermActivity:
    """Carry columns to alternatives and multiply with the count."""

    def spread(values: FloatArray) -> FloatArray:
        return values[..., each.index] * each.count

    return TermActivity(
        spread(activity.time_s), spread(activity.compute_s), spread(activity.memory_s),
        {name: spread(values) for name, values in activity.macs.items()},
        spread(activity.dram_bytes), spread(activity.vector_ops), spread(activity.link_bytes),
    )  # fmt: skip


def _gemm_activities(
    program: StepProgram, designs: DesignBatch, promoted: IntArray, tables: FactorTables
) -> Iterator[TermActivity]:
    """All GEMM terms at once: one table look-up and one time formula for the columns of the whole step."""
    columns = program.gemm_columns
    if not columns:
        return
    asked = columns["rate_class"].astype(np.int64)
    computed = promoted[asked]
    conversions = columns["dequant_ops"] + (computed != asked)
    vector_ops = conversions * columns["n"] * columns["k"] * np.ceil(columns["m"] / DEQUANTISED_ROWS)
    cycles = tables.rows(
        (id(program), "cycles"), designs, CYCLE_FIELDS, lambda missing: _cycles(columns, computed, missing)
    )
    dram = tables.rows((id(program), "dram"), designs, CACHE_FIELDS, lambda missing: _gemm_dram(columns, missing))
    lanes = (designs.vector_lanes_per_core * designs.n_cores)[:, None]
    cycles = cycles + vector_ops / lanes
    memory_s = dram / designs.memory_bandwidth_bytes_per_s[:, None]
    time_s = gemm_time_s(
        cycles, dram, designs.clock_hz, designs.memory_bandwidth_bytes_per_s,
        constants("launch")["kernel_launch_s"], kernel_start_cycles(designs),
    )  # fmt: skip
    macs = columns["m"] * columns["n"] * columns["k"]
    start = 0
    for each in (t for t in program.terms if t.kind == "gemm"):
        part = slice(start, start + len(each.columns["m"]))
        start = part.stop
        runs = columns["instances"][part]
        yield TermActivity(
            time_s[:, part] * runs,
            (cycles[:, part] / designs.clock_hz[:, None]) * runs,
            memory_s[:, part] * runs,
            {
                RATE_CLASSES[code]: (macs[part] * runs * (computed[part] == code))[None, :]
                for code in np.unique(computed[part])
            },
            dram[:, part] * runs,
            (vector_ops[part] * runs)[None, :],
            np.zeros((1, len(runs))),
        )


def _cycles(columns: Mapping[str, FloatArray], computed: IntArray, designs: DesignBatch) -> FloatArray:
    """On-chip cycles of every GEMM column, equal shapes of one class computed once, (n_designs, n_columns)."""
    shapes, index = compress(m=columns["m"], n=columns["n"], k=columns["k"], rate_class=computed)
    code = shapes["rate_class"].astype(np.int64)
    cycles = onchip_cycles(
        designs, shapes["m"], shapes["n"], shapes["k"], OPERAND_BYTES[code], rate_ratios(designs)[:, code]
    )
    return cycles[:, index]


def _gemm_dram(columns: Mapping[str, FloatArray], designs: DesignBatch) -> FloatArray:
    """Main-memory traffic of every GEMM column; weights stay resident only where those of a whole step fit."""
    return gemm_dram_bytes(
        effective_l2_bytes(designs), columns["m"], columns["n"], columns["k"],
        columns["weight_bytes"], columns["input_bytes"], columns["output_bytes"], copies=columns["copies"],
    )  # fmt: skip


def _attention_activity(each: Term, designs: DesignBatch, promoted: IntArray) -> TermActivity:
    """One attention operator, decode (one query per sequence) or prefill (a causal prompt)."""
    c = each.columns
    heads = (c["n_heads"], c["n_kv_heads"], c["head_dim_qk"], c["head_dim_v"])
    if each.kind == "decode":
        queries, keys = np.ones_like(c["tokens"]), c["tokens"]
        time_s = attention_decode_time_s(
            designs, c["batch"], c["tokens"], *heads, c["kv_bytes_per_element"], c["kv_elements_per_token"]
        )
    else:
        queries, keys = c["tokens"], mean_keys(c["tokens"], 0.0, True, float(c["window_tokens"].max()))
        time_s = attention_prefill_time_s(
            designs, c["batch"], c["tokens"], 0.0, *heads, c["kv_bytes_per_element"],
            window_tokens=float(c["window_tokens"].max()),
        )  # fmt: skip
    flop = attention_flop(c["batch"], queries, keys, c["n_heads"], c["head_dim_qk"], c["head_dim_v"])
    traffic = attention_bytes(
        c["batch"], queries, c["tokens"], c["n_heads"], c["head_dim_qk"], c["head_dim_v"],
        c["kv_bytes_per_element"], c["kv_elements_per_token"],
    )  # fmt: skip
    zero = np.zeros((1, len(flop)))
    return TermActivity(
        time_s,
        flop / peak_flop_per_s(designs)[:, None],
        traffic / designs.memory_bandwidth_bytes_per_s[:, None],
        {"bf16": flop[None, :] / 2.0},
        traffic[None, :],
        SOFTMAX_OPS_PER_SCORE * (c["batch"] * queries * keys * c["n_heads"])[None, :],
        zero,
    )


def _expert_activity(each: Term, designs: DesignBatch, promoted: IntArray) -> TermActivity:
    """All routed expert MLPs of a layer on the busiest chip; columns of one class share one rate per design."""
    c = each.columns
    computed = promoted[c["rate_class"].astype(np.int64)]
    time_s = np.empty((designs.n_designs, len(computed)))
    sizes = [c[name] for name in ("tokens", "hidden", "inter", "n_experts", "top_k")]
    for code in np.unique(computed):
        part = computed == code
        time_s[:, part] = expert_mlp_time_s(
            designs, *[size[part] for size in sizes], expert_parallel=c["expert_parallel"][part],
            weight_bytes_per_element=c["weight_bytes"][part], matrix_rate_ratio=rate_ratios(designs)[:, code],
            zipf_exponent=c["zipf_exponent"][part], gated=each.op == "gated",
        )  # fmt: skip
    matrices = 3.0 if each.op == "gated" else 2.0
    macs = c["tokens"] * c["top_k"] / c["expert_parallel"] * matrices * c["hidden"] * c["inter"]
    touched = expected_distinct_experts(c["n_experts"], c["top_k"], c["tokens"], c["zipf_exponent"])
    traffic = touched / c["expert_parallel"] * matrices * c["hidden"] * c["inter"] * c["weight_bytes"]
    by_class = {RATE_CLASSES[code]: (macs * (computed == code))[None, :] for code in np.unique(computed)}
    peak = peak_flop_per_s(designs)[:, None] * rate_ratios(designs)[:, computed]
    zero = np.zeros((1, len(macs)))
    return TermActivity(
        time_s, 2.0 * macs / peak, traffic / designs.memory_bandwidth_bytes_per_s[:, None],
        by_class, traffic[None, :], zero, zero,
    )  # fmt: skip


def _vector_activity(each: Term, designs: DesignBatch, promoted: IntArray) -> TermActivity:
    """Elementwise work on the vector lanes."""
    elements, moved = each.columns["elements"], each.columns["bytes_moved"]
    lanes_per_s = designs.vector_lanes_per_core * designs.n_cores * designs.clock_hz
    return TermActivity(
        elementwise_time_s(designs, each.op, elements, moved, rows=each.columns["rows"]),
        elements / lanes_per_s[:, None],
        moved / designs.memory_bandwidth_bytes_per_s[:, None],
        {},
        moved[None, :],
        elements[None, :],
        np.zeros((1, len(elements))),
    )


def _collective_activity(each: Term, designs: DesignBatch, promoted: IntArray) -> TermActivity:
    """Communication between chips; its bytes cross the links once per chip."""
    n_chips, message = each.columns["n_chips"], each.columns["message_bytes"]
    leaves_node = each.columns["scale_out"].max() > 0
    time_s = collective_time_s(
        each.op,
        n_chips,
        message,
        designs.scale_out_bytes_per_s if leaves_node else designs.scale_up_bytes_per_s,
        designs.memory_bandwidth_bytes_per_s,
        host_bytes_per_s=designs.host_bytes_per_s,
    )
    zero = np.zeros((1, len(message)))
    return TermActivity(time_s, zero, zero, {}, zero, zero, wire_bytes(each.op, n_chips, message)[None, :])


_RUN: Mapping[str, Callable[[Term, DesignBatch, IntArray], TermActivity]] = {
    "experts": _expert_activity,
    "decode": _attention_activity,
    "prefill": _attention_activity,
    "vector": _vector_activity,
    "collective": _collective_activity,
}


def _join(runs: list[StepActivity], order: IntArray) -> StepActivity:
    """Put the runs of several native signatures back into the order of the designs."""

    def join(arrays: list[FloatArray]) -> FloatArray:
        full = [np.broadcast_to(a, run.time_s.shape) for a, run in zip(arrays, runs, strict=True)]
        return np.concatenate(full)[order]

    def join_macs(maps: list[Mapping[str, FloatArray]]) -> dict[str, FloatArray]:
        names = sorted({name for each in maps for name in each})
        return {name: join([each.get(name, np.zeros((1, 1))) for each in maps]) for name in names}

    def join_terms(group: list[TermActivity]) -> TermActivity:
        return TermActivity(
            join([t.time_s for t in group]), join([t.compute_s for t in group]), join([t.memory_s for t in group]),
            join_macs([t.macs for t in group]),
            join([t.dram_bytes for t in group]), join([t.vector_ops for t in group]),
            join([t.link_bytes for t in group]),
        )  # fmt: skip

    return StepActivity(
        join([run.time_s for run in runs]),
        join_macs([run.macs for run in runs]),
        join([run.dram_bytes for run in runs]),
        join([run.vector_ops for run in runs]),
        join([run.link_bytes for run in runs]),
        {name: join_terms([run.terms[name] for run in runs]) for name in runs[0].terms},
    )
