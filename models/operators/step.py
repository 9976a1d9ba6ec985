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
from models.operators.collective import collective_latency_ratio, collective_time_s, wire_bytes
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
)  # fmt: skip
CACHE_FIELDS = ("l2_bytes", "l2_halves")

Columns = Mapping[str, FloatArray]
"""Sizes of a term: arrays of shape (n_columns,), or (n_designs, n_kept) where each design has its own."""
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


@dataclass(frozen=True, eq=False)
class StepProgram:
    """Terms of one step, the number of alternatives they are indexed by, and the host time around them [s]."""

    terms: tuple[Term, ...]
    n_alternatives: int
    overhead_s: float
    gemm_columns: Mapping[str, FloatArray]
    """Columns of all GEMM terms one after the other."""
    gemm_shapes: Mapping[str, FloatArray]
    """Distinct m, n, k of those columns."""
    gemm_shape_index: IntArray
    """Column -> position in `gemm_shapes`."""
    gemm_shape_block: IntArray
    """Position in `gemm_shapes` -> block of shapes whose cycles are tabulated together."""


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


def step_program(terms: Iterable[Term], overhead_s: float, blocks: IntArray | None = None) -> StepProgram:
    """
    Return the program of `terms`, all of which are indexed by the same alternatives.

    `blocks` of shape (n_alternatives,) says which alternatives are usually wanted together: the cycles of their
    GEMMs are tabulated in one go, those of other blocks only once they are asked for.
    """
    kept = tuple(terms)
    lengths = {len(t.index) for t in kept}
    if len(lengths) != 1:
        raise ValueError(f"terms of a step must have equally many alternatives, got {sorted(lengths)}")
    gemms = [t.columns for t in kept if t.kind == "gemm"]
    merged = {name: np.concatenate([g[name] for g in gemms]) for name in GEMM_COLUMNS} if gemms else {}
    shapes, index = compress(**{name: merged[name] for name in "mnk"}) if gemms else ({}, np.zeros(0, dtype=np.int64))
    n_alternatives = lengths.pop()
    block = np.zeros(len(shapes.get("m", ())), dtype=np.int64)
    start = 0
    for each in (t for t in kept if t.kind == "gemm"):
        of_alternative = np.zeros(n_alternatives, dtype=np.int64) if blocks is None else blocks
        block[index[start + each.index]] = of_alternative
        start += len(each.columns["m"])
    return StepProgram(kept, n_alternatives, overhead_s, merged, shapes, index, block)


def run_step(
    program: StepProgram,
    designs: DesignBatch,
    tables: FactorTables,
    *,
    alternatives: IntArray | None = None,
    keep_terms: bool = False,
) -> StepActivity:
    """
    Return time and activity of the step on each design and alternative, at the highest clock.

    Parameters
    ----------
    program : StepProgram
        The step, compiled for n_alternatives alternatives.
    designs : DesignBatch
        The performance batch of the two-batch contract.
    tables : FactorTables
        Shared rows; the same object may serve many calls.
    alternatives : array of shape (n_designs, n_kept), optional
        Alternatives of each design that are wanted; all of them where left out.
    keep_terms : bool
        Keep every term's own activity, for explanations.

    Returns
    -------
    StepActivity
        Arrays of shape (n_designs, n_alternatives) or (n_designs, n_kept).
    """
    promoted, inverse = native_signature(designs)
    if len(promoted) == 1:
        return _run(program, designs, promoted[0], tables, alternatives, keep_terms)
    parts = [np.flatnonzero(inverse == i) for i in range(len(promoted))]
    runs = [
        _run(program, take(designs, p), classes, tables, None if alternatives is None else alternatives[p], keep_terms)
        for p, classes in zip(parts, promoted, strict=True)
    ]
    return _join(runs, np.argsort(np.concatenate(parts), kind="stable"))


def _run(
    program: StepProgram,
    designs: DesignBatch,
    promoted: IntArray,
    tables: FactorTables,
    alternatives: IntArray | None,
    keep_terms: bool,
) -> StepActivity:
    """Run all terms on designs that share their native classes, and add them up."""
    shape = (designs.n_designs, program.n_alternatives if alternatives is None else alternatives.shape[1])
    time_s, dram, vector, link = (np.zeros(shape) for _ in range(4))
    time_s += program.overhead_s
    macs: dict[str, FloatArray] = {}
    kept: dict[str, TermActivity] = {}
    gemms = _gemm_activities(program, designs, promoted, tables, alternatives)
    for each in program.terms:
        if each.kind == "gemm":
            activity = next(gemms)
        else:
            wanted = None if alternatives is None else each.index[alternatives]
            columns = each.columns if wanted is None else {name: v[wanted] for name, v in each.columns.items()}
            activity = _RUN[each.kind](each.op, columns, designs, promoted)
        counted = _counted(activity, each, alternatives)
        time_s += counted.time_s
        dram += counted.dram_bytes
        vector += counted.vector_ops
        link += counted.link_bytes
        for name, values in counted.macs.items():
            macs[name] = macs.get(name, 0.0) + values
        if keep_terms:
            kept[each.name] = counted
    full = {name: np.broadcast_to(values, shape) for name, values in macs.items()}
    return StepActivity(time_s, full, dram, vector, link, kept)


def _counted(activity: TermActivity, each: Term, alternatives: IntArray | None) -> TermActivity:
    """Carry columns to alternatives (where all are wanted) and multiply with the count."""
    count = each.count if alternatives is None else each.count[alternatives]

    def counted(values: FloatArray) -> FloatArray:
        return (values[..., each.index] if alternatives is None else values) * count

    return TermActivity(
        counted(activity.time_s), counted(activity.compute_s), counted(activity.memory_s),
        {name: counted(values) for name, values in activity.macs.items()},
        counted(activity.dram_bytes), counted(activity.vector_ops), counted(activity.link_bytes),
    )  # fmt: skip


def _gemm_activities(
    program: StepProgram,
    designs: DesignBatch,
    promoted: IntArray,
    tables: FactorTables,
    alternatives: IntArray | None,
) -> Iterator[TermActivity]:
    """All GEMM terms at once: one table look-up and one time formula for the columns of the whole step."""
    columns = program.gemm_columns
    if not columns:
        return
    asked = columns["rate_class"].astype(np.int64)
    computed = promoted[asked]
    conversions = columns["dequant_ops"] + (computed != asked)
    runs = columns["instances"]
    vector_ops = conversions * columns["n"] * columns["k"] * np.ceil(columns["m"] / DEQUANTISED_ROWS)
    macs = columns["m"] * columns["n"] * columns["k"] * runs
    ids = None if alternatives is None else _wanted_columns(program, alternatives)
    cycles = _cycles(program, designs, computed, tables, ids)
    dram = tables.rows(
        (program, "dram"), designs, CACHE_FIELDS, lambda some, _: _gemm_dram(columns, some), columns=ids
    )
    if ids is not None:
        vector_ops, macs, runs, computed = vector_ops[ids], macs[ids], runs[ids], computed[ids]
    cycles = cycles + vector_ops / (designs.vector_lanes_per_core * designs.n_cores)[:, None]
    memory_s = dram / designs.memory_bandwidth_bytes_per_s[:, None]
    time_s = gemm_time_s(
        cycles, dram, designs.clock_hz, designs.memory_bandwidth_bytes_per_s,
        constants("launch")["kernel_launch_s"], kernel_start_cycles(designs),
    )  # fmt: skip
    compute_s = cycles / designs.clock_hz[:, None]
    classes = np.unique(computed)
    start = 0
    for each in (t for t in program.terms if t.kind == "gemm"):
        width = len(each.columns["m"]) if alternatives is None else alternatives.shape[1]
        part = slice(start, start + width)
        start = part.stop
        times = runs[..., part]
        yield TermActivity(
            time_s[:, part] * times,
            compute_s[:, part] * times,
            memory_s[:, part] * times,
            {RATE_CLASSES[code]: np.atleast_2d(macs[..., part] * (computed[..., part] == code)) for code in classes},
            dram[:, part] * times,
            np.atleast_2d(vector_ops[..., part] * times),
            np.zeros((1, width)),
        )


def _wanted_columns(program: StepProgram, alternatives: IntArray) -> IntArray:
    """Columns of all GEMM terms for the wanted alternatives, term after term, (n_designs, n_terms x n_kept)."""
    start, ids = 0, []
    for each in (t for t in program.terms if t.kind == "gemm"):
        ids.append(start + each.index[alternatives])
        start += len(each.columns["m"])
    return np.concatenate(ids, axis=1)


def _cycles(
    program: StepProgram, designs: DesignBatch, computed: IntArray, tables: FactorTables, ids: IntArray | None
) -> FloatArray:
    """On-chip cycles of all GEMM columns, or of those in `ids`: one table per block and width of the operands."""
    rates, every = rate_ratios(designs), np.arange(designs.n_designs)
    index, blocks = program.gemm_shape_index, program.gemm_shape_block[program.gemm_shape_index]
    if ids is None:
        cycles = np.empty((designs.n_designs, len(index)))
        for code in np.unique(computed):
            for block in np.unique(blocks[computed == code]):
                columns = np.flatnonzero((computed == code) & (blocks == block))
                cycles[:, columns] = _block_cycles(program, designs, every, index[columns], code, block, rates, tables)
        return cycles
    cycles, index, blocks, codes = np.empty(ids.shape), index[ids], blocks[ids], computed[ids]
    first, last = blocks.min(axis=1), blocks.max(axis=1)
    for block in np.unique(program.gemm_shape_block):
        rows = np.flatnonzero((first <= block) & (block <= last))
        inside = blocks[rows] == block
        for code in np.unique(codes[rows][inside]):
            here = inside & (codes[rows] == code)
            some = here.any(axis=1)
            found = _block_cycles(program, designs, rows[some], index[rows[some]], code, block, rates, tables)
            cycles[rows[some]] = np.where(here[some], found, cycles[rows[some]])
    return cycles


def _block_cycles(
    program: StepProgram,
    designs: DesignBatch,
    rows: IntArray,
    index: IntArray,
    code: int,
    block: int,
    rates: FloatArray,
    tables: FactorTables,
) -> FloatArray:
    """Cycles of the shapes `index` of one block on the designs `rows`; entries of other blocks hold anything."""
    members = np.flatnonzero(program.gemm_shape_block == block)
    local = np.minimum(np.searchsorted(members, index), len(members) - 1)
    return tables.rows(
        (program, OPERAND_BYTES[code], int(block)),
        designs if len(rows) == designs.n_designs else take(designs, rows),
        CYCLE_FIELDS,
        lambda some, rate: _shape_cycles(program, members, some, OPERAND_BYTES[code], rate),
        rate_ratio=rates[rows, code],
        columns=local if local.ndim == 2 else np.broadcast_to(local, (len(rows), len(local))),
    )


def _shape_cycles(
    program: StepProgram, members: IntArray, designs: DesignBatch, operand_bytes: float, rate_ratio: FloatArray
) -> FloatArray:
    """On-chip cycles of the distinct shapes of one block at one width of the operands, (n_designs, n_members)."""
    m, n, k = (program.gemm_shapes[name][members] for name in "mnk")
    rates = np.repeat(rate_ratio[:, None], len(m), 1)
    return onchip_cycles(designs, m, n, k, np.full(len(m), operand_bytes), rates)


def _gemm_dram(columns: Mapping[str, FloatArray], designs: DesignBatch) -> FloatArray:
    """Main-memory traffic of every GEMM column; weights stay resident only where those of a whole step fit."""
    return gemm_dram_bytes(
        effective_l2_bytes(designs), columns["m"], columns["n"], columns["k"],
        columns["weight_bytes"], columns["input_bytes"], columns["output_bytes"], copies=columns["copies"],
    )  # fmt: skip


def _decode_activity(op: str, c: Columns, designs: DesignBatch, promoted: IntArray) -> TermActivity:
    """One attention operator with one query per sequence over its cache."""
    time_s = attention_decode_time_s(
        designs, c["batch"], c["tokens"], c["n_heads"], c["n_kv_heads"], c["head_dim_qk"], c["head_dim_v"],
        c["kv_bytes_per_element"], c["kv_elements_per_token"],
    )  # fmt: skip
    return _attention_activity(c, designs, time_s, np.ones_like(c["tokens"]), c["tokens"])


def _prefill_activity(op: str, c: Columns, designs: DesignBatch, promoted: IntArray) -> TermActivity:
    """One attention operator over causal prompts."""
    window = float(c["window_tokens"].max())
    time_s = attention_prefill_time_s(
        designs, c["batch"], c["tokens"], 0.0, c["n_heads"], c["n_kv_heads"], c["head_dim_qk"], c["head_dim_v"],
        c["kv_bytes_per_element"], window_tokens=window,
    )  # fmt: skip
    return _attention_activity(c, designs, time_s, c["tokens"], mean_keys(c["tokens"], 0.0, True, window))


def _attention_activity(
    c: Columns, designs: DesignBatch, time_s: FloatArray, queries: FloatArray, keys: FloatArray
) -> TermActivity:
    """Work and traffic of an attention operator whose time is known."""
    flop = np.atleast_2d(attention_flop(c["batch"], queries, keys, c["n_heads"], c["head_dim_qk"], c["head_dim_v"]))
    traffic = np.atleast_2d(
        attention_bytes(
            c["batch"], queries, c["tokens"], c["n_heads"], c["head_dim_qk"], c["head_dim_v"],
            c["kv_bytes_per_element"], c["kv_elements_per_token"],
        )
    )  # fmt: skip
    return TermActivity(
        time_s,
        flop / peak_flop_per_s(designs)[:, None],
        traffic / designs.memory_bandwidth_bytes_per_s[:, None],
        {"bf16": flop / 2.0},
        traffic,
        np.atleast_2d(SOFTMAX_OPS_PER_SCORE * c["batch"] * queries * keys * c["n_heads"]),
        np.zeros_like(traffic),
    )


def _expert_activity(op: str, c: Columns, designs: DesignBatch, promoted: IntArray) -> TermActivity:
    """All routed expert MLPs of a layer on the busiest chip; the rate is that of each column's class."""
    computed = promoted[c["rate_class"].astype(np.int64)]
    rates = rate_ratios(designs)
    rate = rates[:, computed] if computed.ndim == 1 else np.take_along_axis(rates, computed, axis=1)
    time_s = expert_mlp_time_s(
        designs, c["tokens"], c["hidden"], c["inter"], c["n_experts"], c["top_k"],
        expert_parallel=c["expert_parallel"], weight_bytes_per_element=c["weight_bytes"], matrix_rate_ratio=rate,
        zipf_exponent=c["zipf_exponent"], gated=op == "gated",
    )  # fmt: skip
    matrices = 3.0 if op == "gated" else 2.0
    macs = c["tokens"] * c["top_k"] / c["expert_parallel"] * matrices * c["hidden"] * c["inter"]
    touched = expected_distinct_experts(c["n_experts"], c["top_k"], c["tokens"], c["zipf_exponent"])
    traffic = np.atleast_2d(touched / c["expert_parallel"] * matrices * c["hidden"] * c["inter"] * c["weight_bytes"])
    zero = np.zeros_like(traffic)
    return TermActivity(
        time_s,
        2.0 * macs / (peak_flop_per_s(designs)[:, None] * rate),
        traffic / designs.memory_bandwidth_bytes_per_s[:, None],
        {RATE_CLASSES[code]: np.atleast_2d(macs * (computed == code)) for code in np.unique(computed)},
        traffic,
        zero,
        zero,
    )


def _vector_activity(op: str, c: Columns, designs: DesignBatch, promoted: IntArray) -> TermActivity:
    """Elementwise work on the vector lanes."""
    elements, moved = np.atleast_2d(c["elements"]), np.atleast_2d(c["bytes_moved"])
    lanes_per_s = designs.vector_lanes_per_core * designs.n_cores * designs.clock_hz
    return TermActivity(
        elementwise_time_s(designs, op, c["elements"], c["bytes_moved"], rows=c["rows"]),
        elements / lanes_per_s[:, None],
        moved / designs.memory_bandwidth_bytes_per_s[:, None],
        {},
        moved,
        elements,
        np.zeros_like(moved),
    )


def _collective_activity(op: str, c: Columns, designs: DesignBatch, promoted: IntArray) -> TermActivity:
    """Communication between chips; its bytes cross the links once per chip."""
    leaves_node = c["scale_out"].max() > 0
    time_s = collective_time_s(
        op,
        c["n_chips"],
        c["message_bytes"],
        designs.scale_out_bytes_per_s if leaves_node else designs.scale_up_bytes_per_s,
        host_bytes_per_s=designs.host_bytes_per_s,
        latency_scale_ratio=collective_latency_ratio(designs),
    )
    wire = np.atleast_2d(wire_bytes(op, c["n_chips"], c["message_bytes"]))
    zero = np.zeros_like(wire)
    return TermActivity(time_s, zero, zero, {}, zero, zero, wire)


_RUN: Mapping[str, Callable[[str, Columns, DesignBatch, IntArray], TermActivity]] = {
    "experts": _expert_activity,
    "decode": _decode_activity,
    "prefill": _prefill_activity,
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
