"""
One step of work as a list of operator terms, and the time it takes on many designs.

A step is compiled once per workload (`StepProgram`) and knows nothing of designs. Each term holds the sizes of
its distinct *columns* and an index from the step's alternatives (plan x mix x batch) to those columns, so that
what alternatives share is computed once. What few design parameters decide (on-chip cycles, DRAM traffic) comes
from `FactorTables`, rows filled on demand and shared by all designs and boxes of a search.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from models.checks import BoolArray, FloatArray, IntArray
from models.hardware.array_variants import organisations
from models.hardware.design import DesignBatch, take
from models.hardware.rates import OPERAND_BYTES, RATE_CLASSES, NativeClasses, native_signature, rate_ratios
from models.operators.activity import DEQUANTISED_ROWS, Columns, TermActivity, beside_conversions, codes, widened
from models.operators.attention_term import decode_activity, prefill_activity
from models.operators.calibration import UNCALIBRATED, Calibration
from models.operators.collective import (
    Route,
    collective_latency_ratio,
    collective_time_s,
    reduces_in_switch,
    wire_bytes,
)
from models.operators.elementwise import elementwise_time_s, resident_fraction
from models.operators.expert_term import expert_activity
from models.operators.factor_tables import Blocks, FactorTables, KeptRun, compress
from models.operators.gemm import (
    effective_l2_bytes,
    gemm_buffer_bytes,
    gemm_dram_bytes,
    gemm_time_s,
    kernel_start_cycles,
    onchip_cycles,
)
from models.operators.state import state_time_s
from models.operators.tiling import ShapeTiles, shape_tiles
from models.precision.promotion import NO_CLASS
from models.tables import constants

Part = frozenset[bool]
LAYERS, EDGE, WHOLE_STEP = frozenset({False}), frozenset({True}), frozenset({False, True})
"""Parts of a step, by the `Term.edge` of their terms."""

GEMM_COLUMNS = (
    "m", "n", "k", "weight_bytes", "input_bytes", "output_bytes", "rate_class", "dequant_ops", "instances", "copies",
    "useful_fraction",
    "weight_native", "weight_class", "quantise_ops",
)  # fmt: skip
SHAPE_COLUMNS = ("m", "n", "k", "instances")
CYCLE_FIELDS = (
    "array_m", "array_n", "array_k", "arrays_per_core", "n_cores", "scratchpad_bytes_per_core",
    "noc_bytes_per_cycle_per_core", "stationarity", "array_groups", "array_variants", "bulk_async_copy",
)  # fmt: skip
CACHE_FIELDS = ("l2_bytes", "l2_halves", "n_cores", "scratchpad_bytes_per_core")


@dataclass(frozen=True)
class Term:
    """
    One operator of a step: named columns of shape (n_columns,), and for each alternative its column and count.

    `kind` is a key of `TERM_KINDS`; `op` narrows it (the vector operator, the collective). Columns by kind:

    - gemm: `GEMM_COLUMNS`, in elements and bytes per element; `rate_class` indexes RATE_CLASSES, `dequant_ops` are
      vector operations per weight where the array cannot take the stored form (`weight_native` and `weight_class` are
      the codes of its port and its rate; where left out, every array needs them), `quantise_ops` those that round one
      input (none where left out), `instances` equal GEMMs of one kernel,
      `copies` the sets of operands that pass between two uses of the same weights, `useful_fraction` the share of
      the multiply-accumulates that is no padding of k;
    - decode, prefill: batch, tokens (KV read per sequence, or new tokens), n_heads, n_kv_heads, head_dim_qk,
      head_dim_v, kv_bytes_per_element, kv_elements_per_token; where not all is bf16 also scores_class, context_class,
      rounding_ops of the whole operator, and for key and value X_native, X_class and the X_widening_ops of the whole
      operator where the array cannot take the stored form; on_lanes (decode only, 1 where an engine has no kernel
      that uses the arrays);
    - experts: hidden, inter, weight_bytes, rate_class and the columns of `expert_term.routing_columns`; where formats
      matter also down_class, and for up and down X_dequant_ops per weight, X_native, X_weight_class and
      X_quantise_ops per input;
    - vector: elements, bytes_moved, rows, rounding_ops (of all, none where left out);
      fused: elements that a neighbour's kernel treats on their way out, and the bytes_moved that this adds;
    - epilogue: elements, each treated by one operation of a lane;
    - state: tokens, sequences (whose state is read and written once for every `tokens` of theirs, or once a chunk),
      state_bytes, flop_per_token; `op` is recurrent (token by token, on the lanes) or chunked (on the arrays);
    - collective: n_chips, message_bytes, scale_out (1 where it leaves the node), exposed_fraction (of its time that
      nothing else covers), overlapped (where stated the step takes no less than all its collectives), the columns of
      `collective_terms.path_columns` on other topologies than one switch, engine_kernel (1 where a serving engine's
      own all-reduce stands beside the library's), host_sharing_exponent and host_bytes_per_s (one for all columns;
      those of an unknown host and of the design where left out);
    - host: seconds that the host takes beyond those of every step.
    """

    name: str
    kind: str
    op: str
    columns: Mapping[str, FloatArray]
    index: IntArray
    count: FloatArray
    edge: bool = False
    """Outside the layers: a pipeline has it on one stage, which holds as many layers as the others."""


@dataclass(frozen=True, eq=False)
class StepProgram:
    """Terms of one step, the number of alternatives they are indexed by, and the host time around them [s]."""

    terms: tuple[Term, ...]
    n_alternatives: int
    overhead_s: float
    gemm_columns: Mapping[str, FloatArray]
    """Columns of all GEMM terms one after the other."""
    gemm_shapes: Mapping[str, FloatArray]
    """Distinct m, n, k and instances of those columns."""
    gemm_shape_index: IntArray
    """Column -> position in `gemm_shapes`."""
    gemm_shape_block: IntArray
    """Position in `gemm_shapes` -> block of shapes whose cycles are tabulated together."""
    calibration: Calibration = UNCALIBRATED
    """Constants of all its operators."""

    @functools.cached_property
    def gemm_shape_blocks(self) -> Blocks:
        """Blocks of `gemm_shapes` whose cycles are tabulated together."""
        return Blocks(self.gemm_shape_block)

    @functools.cached_property
    def gemm_column_blocks(self) -> Blocks:
        """All `gemm_columns` as one block."""
        return Blocks(np.zeros(len(self.gemm_shape_index), dtype=np.int64))

    @functools.cached_property
    def gemm_tiles(self) -> ShapeTiles:
        """Tiles of `gemm_shapes`."""
        return shape_tiles(self.gemm_shapes["m"], self.gemm_shapes["n"], self.gemm_shapes["k"])


@dataclass(frozen=True)
class StepActivity:
    """Sums over the terms of a step, shape (n_designs, n_alternatives) each; `terms` only where asked for."""

    time_s: FloatArray
    macs: Mapping[str, FloatArray]
    dram_bytes: FloatArray
    vector_ops: FloatArray
    link_bytes: FloatArray
    l2_bytes: FloatArray
    """That the cores of a chip fetch from the shared buffer beyond those from main memory."""
    terms: Mapping[str, TermActivity]


def term(name: str, kind: str, op: str, count: FloatArray | float, **columns: FloatArray | float) -> Term:
    """Return a term from columns given per alternative; equal columns are merged."""
    distinct, index = compress(**columns)
    return Term(name, kind, op, distinct, index, np.broadcast_to(np.asarray(count, dtype=np.float64), index.shape))


def step_program(
    terms: Iterable[Term],
    overhead_s: float,
    blocks: IntArray | None = None,
    calibration: Calibration = UNCALIBRATED,
) -> StepProgram:
    """
    Return the program of `terms`, all of which are indexed by the same alternatives.

    `blocks` of shape (n_alternatives,) says which alternatives are usually wanted together: the cycles of their
    GEMMs are tabulated in one go, those of other blocks only once they are asked for. `calibration` scales the
    constants of all operators.
    """
    kept = tuple(terms)
    lengths = {len(t.index) for t in kept}
    if len(lengths) != 1:
        raise ValueError(f"terms of a step must have equally many alternatives, got {sorted(lengths)}")
    gemms = [t.columns for t in kept if t.kind == "gemm"]
    merged = {name: np.concatenate([_gemm_column(g, name) for g in gemms]) for name in GEMM_COLUMNS} if gemms else {}
    sizes = {name: merged[name] for name in SHAPE_COLUMNS} if gemms else {}
    shapes, index = compress(**sizes) if gemms else ({}, np.zeros(0, dtype=np.int64))
    n_alternatives = lengths.pop()
    block = np.zeros(len(shapes.get("m", ())), dtype=np.int64)
    start = 0
    for each in (t for t in kept if t.kind == "gemm"):
        of_alternative = np.zeros(n_alternatives, dtype=np.int64) if blocks is None else blocks
        block[index[start + each.index]] = of_alternative
        start += len(each.columns["m"])
    return StepProgram(kept, n_alternatives, overhead_s, merged, shapes, index, block, calibration)


def _gemm_column(columns: Mapping[str, FloatArray], name: str) -> FloatArray:
    """A column of a GEMM term; by default inputs arrive rounded, and stated `dequant_ops` are needed on every array."""
    if name in columns or name not in ("weight_native", "weight_class", "quantise_ops"):
        return columns[name]
    if name == "quantise_ops":
        return np.zeros(len(columns["m"]))
    if name == "weight_class":
        return columns["rate_class"]
    return np.where(columns["dequant_ops"] > 0, NO_CLASS, columns["rate_class"])


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
    return run_parts(program, designs, tables, alternatives=alternatives, keep_terms=keep_terms, parts=(WHOLE_STEP,))[0]


def run_parts(
    program: StepProgram,
    designs: DesignBatch,
    tables: FactorTables,
    *,
    alternatives: IntArray | None = None,
    keep_terms: bool = False,
    parts: Sequence[Part] = (LAYERS, EDGE),
) -> list[StepActivity]:
    """
    Return the activity of parts of a step: what all layers do, and what a pass does once, host time included.

    Parameters
    ----------
    program, designs, tables, alternatives, keep_terms
        As for `run_step`.
    parts : sequence
        Each the values of `Term.edge` that it takes.

    Returns
    -------
    list of StepActivity
        Arrays of shape (n_designs, n_alternatives) or (n_designs, n_kept).
    """
    signatures, inverse = native_signature(designs)
    if len(signatures) == 1:
        return _run(program, designs, signatures[0], tables, alternatives, keep_terms, parts)
    members = [np.flatnonzero(inverse == i) for i in range(len(signatures))]
    runs = [
        _run(
            program, take(designs, m), classes, tables, None if alternatives is None else alternatives[m], keep_terms,
            parts,
        )
        for m, classes in zip(members, signatures, strict=True)
    ]  # fmt: skip
    order = np.argsort(np.concatenate(members), kind="stable")
    return [_join(list(of_part), order) for of_part in zip(*runs, strict=True)]


def _run(
    program: StepProgram,
    designs: DesignBatch,
    classes: NativeClasses,
    tables: FactorTables,
    alternatives: IntArray | None,
    keep_terms: bool,
    parts: Sequence[Part],
) -> list[StepActivity]:
    """Run all terms on designs that share their native classes, and add them up."""
    shape = (designs.n_designs, program.n_alternatives if alternatives is None else alternatives.shape[1])
    sums = [_Sums(shape, program.overhead_s if True in part else 0.0) for part in parts]
    of_edge = {edge: sums[i] for i, part in enumerate(parts) for edge in part}
    activities = _activities(program, designs, classes, tables, alternatives)
    for each, activity in zip(program.terms, activities, strict=True):
        of_edge[each.edge].add(each.name, activity, _carrier(each, alternatives), keep_terms)
    return [each.activity(shape) for each in sums]


def _activities(
    program: StepProgram,
    designs: DesignBatch,
    classes: NativeClasses,
    tables: FactorTables,
    alternatives: IntArray | None,
) -> Iterable[TermActivity]:
    """What each term does at all of its columns, or for the alternatives wanted of each design."""
    if tables.kept_runs is None or designs.n_designs > 1:
        return _run_terms(program, designs, classes, tables, alternatives)
    kept = tables.kept_runs.get(program)
    found = None if kept is None or kept.designs is not designs else _kept_part(program, kept, alternatives)
    if found is None:
        found = list(_run_terms(program, designs, classes, tables, alternatives))
        tables.kept_runs[program] = KeptRun(designs, alternatives, found)
    return found


def _kept_part(program: StepProgram, kept: KeptRun, alternatives: IntArray | None) -> list[TermActivity] | None:
    """Activity of each term for some of the alternatives of a run, None where it lacks some."""
    if alternatives is None:
        return None
    if kept.alternatives is None:
        places = [each.index[alternatives[0]] for each in program.terms]
    else:
        ran = kept.alternatives[0]
        place = np.minimum(np.searchsorted(ran, alternatives[0]), len(ran) - 1)
        if (ran[place] != alternatives[0]).any():
            return None
        places = [place] * len(program.terms)
    return [activity.take(place) for activity, place in zip(kept.activities, places, strict=True)]


def _run_terms(
    program: StepProgram,
    designs: DesignBatch,
    classes: NativeClasses,
    tables: FactorTables,
    alternatives: IntArray | None,
) -> Iterator[TermActivity]:
    gemms = _gemm_activities(program, designs, classes, tables, alternatives)
    for each in program.terms:
        if each.kind == "gemm":
            yield next(gemms)
            continue
        wanted = None if alternatives is None else each.index[alternatives]
        columns = each.columns if wanted is None else {name: v[wanted] for name, v in each.columns.items()}
        yield _RUN[each.kind](each.op, columns, designs, classes, program.calibration)


class _Sums:
    """Running sums of a part of a step over its terms."""

    def __init__(self, shape: tuple[int, int], overhead_s: float) -> None:
        self.time_s, self.dram, self.vector, self.link, self.gemm_dram = (np.zeros(shape) for _ in range(5))
        self.time_s += overhead_s
        self.crossing: FloatArray = np.zeros((1, shape[1]))
        self.macs: dict[str, FloatArray] = {}
        self.terms: dict[str, TermActivity] = {}
        self.messages_s: FloatArray | None = None
        """Time of collectives that other work covers in part, all of it [s]."""

    def add(
        self, name: str, activity: TermActivity, carried: Callable[[FloatArray], FloatArray], keep_terms: bool
    ) -> None:
        """Add one term, carried to the alternatives."""
        self.time_s += carried(activity.time_s)
        if activity.covered_s is not None:
            whole_s = carried(activity.time_s + activity.covered_s)
            self.messages_s = whole_s if self.messages_s is None else self.messages_s + whole_s
        gemm = bool(activity.buffer_bytes.any())
        if gemm:
            self.crossing = self.crossing + carried(activity.buffer_bytes)
        totals = (self.gemm_dram if gemm else self.dram, self.vector, self.link)
        for total, values in zip(totals, (activity.dram_bytes, activity.vector_ops, activity.link_bytes), strict=True):
            if values.any():
                total += carried(values)
        for code, values in activity.macs.items():
            self.macs[code] = self.macs.get(code, 0.0) + carried(values)
        if keep_terms:
            unique = name if name not in self.terms else f"{name}_{len(self.terms)}"
            self.terms[unique] = _counted(activity, carried)

    def activity(self, shape: tuple[int, int]) -> StepActivity:
        """The sums so far."""
        macs = {name: np.broadcast_to(values, shape) for name, values in self.macs.items()}
        fetched = np.maximum(self.crossing - self.gemm_dram, 0.0)
        if self.messages_s is not None:
            self.time_s = np.maximum(self.time_s, self.messages_s)
        return StepActivity(
            self.time_s, macs, self.dram + self.gemm_dram, self.vector, self.link, fetched, self.terms
        )  # fmt: skip


def _carrier(each: Term, alternatives: IntArray | None) -> Callable[[FloatArray], FloatArray]:
    """Function that carries columns to alternatives (where all are wanted) and multiplies with the count."""
    count = each.count if alternatives is None else each.count[alternatives]
    if alternatives is not None:
        return lambda values: values * count
    if count.min() == count.max():
        return lambda values: np.take(values * count[0], each.index, axis=-1)
    return lambda values: np.take(values, each.index, axis=-1) * count


def _counted(activity: TermActivity, carried: Callable[[FloatArray], FloatArray]) -> TermActivity:
    """A term's whole activity for each alternative."""
    return TermActivity(
        carried(activity.time_s), carried(activity.compute_s), carried(activity.memory_s),
        {name: carried(values) for name, values in activity.macs.items()},
        carried(activity.dram_bytes), carried(activity.vector_ops), carried(activity.link_bytes),
        carried(activity.buffer_bytes) if activity.buffer_bytes.any() else np.zeros((1, 1)),
        covered_s=None if activity.covered_s is None else carried(activity.covered_s),
        conversion_ops=carried(activity.conversion_ops) if activity.conversion_ops.any() else np.zeros((1, 1)),
    )  # fmt: skip


def _gemm_activities(
    program: StepProgram,
    designs: DesignBatch,
    classes: NativeClasses,
    tables: FactorTables,
    alternatives: IntArray | None,
) -> Iterator[TermActivity]:
    """All GEMM terms at once: one table look-up and one time formula for the columns of the whole step."""
    columns = program.gemm_columns
    if not columns:
        return
    computed = classes.promoted[codes(columns["rate_class"])]
    widening = columns["dequant_ops"] * widened(columns["weight_native"], columns["weight_class"], computed, classes)
    weights = columns["n"] * columns["k"] * columns["instances"]
    vector_ops = widening * weights * np.ceil(columns["m"] / DEQUANTISED_ROWS)
    vector_ops += columns["quantise_ops"] * columns["m"] * columns["k"] * columns["instances"]
    macs = columns["m"] * weights * columns["useful_fraction"]
    crossing = columns["instances"] * gemm_buffer_bytes(
        *(columns[name] for name in ("m", "n", "k", "weight_bytes", "input_bytes", "output_bytes"))
    )
    ids = None if alternatives is None else _wanted_columns(program, alternatives)
    cycles = _cycles(program, designs, computed, tables, ids)
    dram = tables.rows(
        (program, "dram"), designs, CACHE_FIELDS, program.gemm_column_blocks,
        lambda some, *_: _gemm_dram(program, some), columns=ids,
    )  # fmt: skip
    if ids is not None:
        vector_ops, macs, computed, crossing = vector_ops[ids], macs[ids], computed[ids], crossing[ids]
    cycles = cycles + vector_ops / (designs.vector_lanes_per_core * designs.n_cores)[:, None]
    memory_s = dram / designs.memory_bandwidth_bytes_per_s[:, None]
    time_s = gemm_time_s(
        cycles, dram, designs.clock_hz, designs.memory_bandwidth_bytes_per_s,
        constants("launch")["kernel_launch_s"], kernel_start_cycles(designs, program.calibration.gemm),
        program.calibration.gemm,
    )  # fmt: skip
    compute_s = cycles / designs.clock_hz[:, None]
    used = np.unique(computed)
    start = 0
    for each in (t for t in program.terms if t.kind == "gemm"):
        width = len(each.columns["m"]) if alternatives is None else alternatives.shape[1]
        part = slice(start, start + width)
        start = part.stop
        yield TermActivity(
            time_s[:, part],
            compute_s[:, part],
            memory_s[:, part],
            {RATE_CLASSES[code]: np.atleast_2d(macs[..., part] * (computed[..., part] == code)) for code in used},
            dram[:, part],
            np.atleast_2d(vector_ops[..., part]),
            np.zeros((1, width)),
            np.atleast_2d(crossing[..., part]),
            conversion_ops=np.atleast_2d(vector_ops[..., part]),
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
    """On-chip cycles of all GEMM columns, or of those in `ids`: one table per width of the operands."""
    rates = rate_ratios(designs)
    index = np.broadcast_to(program.gemm_shape_index, (designs.n_designs, len(computed)))
    index = index if ids is None else program.gemm_shape_index[ids]
    codes = np.broadcast_to(computed if ids is None else computed[ids], index.shape)
    cycles = np.empty(index.shape)
    for code in np.unique(codes):
        here = codes == code
        found = tables.rows(
            (program, OPERAND_BYTES[code]),
            designs,
            CYCLE_FIELDS,
            program.gemm_shape_blocks,
            functools.partial(_shape_cycles, program, OPERAND_BYTES[code]),
            rate_ratio=rates[:, code],
            columns=index,
            wanted=here,
        )
        cycles = np.where(here, found, cycles)
    return cycles


def _shape_cycles(
    program: StepProgram, operand_bytes: float, designs: DesignBatch, rate_ratio: FloatArray, members: IntArray
) -> FloatArray:
    """On-chip cycles of some distinct shapes at one width of the operands, (n_designs, n_members)."""
    first, each = organisations(designs)
    size = np.diff(np.append(first, each.n_designs))
    cycles = _own_shape_cycles(program, members, each, operand_bytes, np.repeat(rate_ratio, size))
    return cycles if each is designs else np.asarray(np.minimum.reduceat(cycles, first, axis=0))


def _own_shape_cycles(
    program: StepProgram, members: IntArray, designs: DesignBatch, operand_bytes: float, rate_ratio: FloatArray
) -> FloatArray:
    """
    On-chip cycles of arrays in one organisation, (n_designs, n_members).

    Equal GEMMs of one kernel run one after the other on all cores, or each on a core of its own: what is faster.
    """
    m, n, k, instances = (program.gemm_shapes[name][members] for name in SHAPE_COLUMNS)
    rates = np.repeat(rate_ratio[:, None], len(m), 1)
    used = program.calibration.gemm
    tiles = program.gemm_tiles if len(m) == len(program.gemm_shape_block) else program.gemm_tiles.take(members)
    cycles = onchip_cycles(designs, m, n, k, np.full(len(m), operand_bytes), rates, used, tiles=tiles) * instances
    many = np.flatnonzero(instances > 1)
    if len(many):
        alone = replace(designs, n_cores=np.ones(designs.n_designs))
        each = onchip_cycles(
            alone, m[many], n[many], k[many], np.full(len(many), operand_bytes), rates[:, many], used,
            tiles=tiles.take(many),
        )  # fmt: skip
        rounds = np.ceil(instances[many] / designs.n_cores[:, None])
        cycles[:, many] = np.minimum(cycles[:, many], each * rounds)
    return cycles


def _gemm_dram(program: StepProgram, designs: DesignBatch) -> FloatArray:
    """Main-memory traffic of every GEMM column; weights stay resident only where those of a whole step fit."""
    columns = program.gemm_columns
    weights, inputs, outputs = (
        columns[name] * columns["instances"] for name in ("weight_bytes", "input_bytes", "output_bytes")
    )
    return gemm_dram_bytes(
        effective_l2_bytes(designs), columns["m"], columns["n"], columns["k"], weights, inputs, outputs,
        copies=columns["copies"], constants=program.calibration.gemm,
    )  # fmt: skip


def _vector_activity(
    op: str, c: Columns, designs: DesignBatch, classes: NativeClasses, calibration: Calibration
) -> TermActivity:
    """Elementwise work on the vector lanes, rounding to a narrow format beside it."""
    elements = np.atleast_2d(c["elements"])
    used = calibration.vector(op)
    moved = c["bytes_moved"] * (1.0 - resident_fraction(designs, c["bytes_moved"], used))
    rounding = np.atleast_2d(c.get("rounding_ops", np.zeros_like(c["elements"])))
    lanes_per_s = designs.vector_lanes_per_core * designs.n_cores * designs.clock_hz
    time_s = elementwise_time_s(designs, op, c["elements"], c["bytes_moved"], rows=c["rows"], constants=used)
    return TermActivity(
        beside_conversions(designs, time_s, rounding),
        elements / lanes_per_s[:, None],
        moved / designs.memory_bandwidth_bytes_per_s[:, None],
        {},
        moved,
        elements + rounding,
        np.zeros_like(moved),
        conversion_ops=rounding,
    )


_NONE = np.zeros(1)


def _collective_activity(
    op: str, c: Columns, designs: DesignBatch, classes: NativeClasses, calibration: Calibration
) -> TermActivity:
    """Communication between chips; its bytes cross the links once per chip."""
    leaves_node = c["scale_out"].max() > 0
    used = calibration.constants("collectives")
    own_start_s = used["one_shot_start_s"] if c.get("engine_kernel", _NONE).max() > 0 else None
    time_s = collective_time_s(
        op,
        c["n_chips"],
        c["message_bytes"],
        designs.scale_out_bytes_per_s if leaves_node else designs.scale_up_bytes_per_s,
        host_bytes_per_s=c["host_bytes_per_s"].flat[0] if "host_bytes_per_s" in c else designs.host_bytes_per_s,
        host_sharing_exponent=_host_sharing_exponent(c, leaves_node=leaves_node),
        latency_scale_ratio=collective_latency_ratio(designs, used),
        in_switch_reduction=_in_switch(c, designs, leaves_node=leaves_node),
        one_shot_start_s=None if leaves_node else own_start_s,
        routes=_routes(c, leaves_node=leaves_node),
        port_bytes_per_s=c.get("port_bytes_per_s", np.inf),
        constants=used,
    )
    wire = np.atleast_2d(wire_bytes(op, c["n_chips"], c["message_bytes"]))
    zero = np.zeros_like(wire)
    covered_s = time_s * (1.0 - c["exposed_fraction"]) if "overlapped" in c else None
    return TermActivity(time_s * c["exposed_fraction"], zero, zero, {}, zero, zero, wire, covered_s=covered_s)


def _host_sharing_exponent(c: Columns, *, leaves_node: bool) -> float | None:
    """How the host's link falls with the chips of a message; each node has its own host, that of None is not known."""
    if leaves_node:
        return 0.0
    return float(c["host_sharing_exponent"].flat[0]) if "host_sharing_exponent" in c else None


def _in_switch(c: Columns, designs: DesignBatch, *, leaves_node: bool) -> BoolArray | bool:
    """Whether the switch of a node adds the vectors."""
    if leaves_node:
        return False
    adds = reduces_in_switch(designs, c["n_chips"])
    return np.asarray(adds & (c["switched"] > 0)) if "switched" in c else adds


def _routes(c: Columns, *, leaves_node: bool) -> list[Route]:
    """Algorithms on the topology that the columns describe, none on the measured one."""
    prefixes = [prefix for prefix in ("", "short_") if f"{prefix}link_fraction" in c]
    parts = [[c[prefix + name] for name in ("link_fraction", "n_steps", "hop_s", "wire_ratio")] for prefix in prefixes]
    if leaves_node:
        return [Route(1.0, steps, hop_s, ratio, network_fraction=share) for share, steps, hop_s, ratio in parts]
    return [Route(*part) for part in parts]


def _host_activity(
    op: str, c: Columns, designs: DesignBatch, classes: NativeClasses, calibration: Calibration
) -> TermActivity:
    """What the host does for every sequence of a step while the chip waits."""
    zero = np.zeros_like(np.atleast_2d(c["seconds"]))
    return TermActivity(np.atleast_2d(c["seconds"]), zero, zero, {}, zero, zero, zero)


def _fused_activity(
    op: str, c: Columns, designs: DesignBatch, classes: NativeClasses, calibration: Calibration
) -> TermActivity:
    """Elementwise work inside the kernel of a neighbour: no start, and only the traffic that this adds."""
    elements = np.atleast_2d(c["elements"])
    moved = np.atleast_2d(c.get("bytes_moved", np.zeros_like(c["elements"])))
    rounding = np.atleast_2d(c.get("rounding_ops", np.zeros_like(c["elements"])))
    lanes_per_s = designs.vector_lanes_per_core * designs.n_cores * designs.clock_hz
    used = calibration.vector(op)
    time_s = elementwise_time_s(designs, op, c["elements"], moved, start_s=0.0, constants=used)
    moved = moved * (1.0 - resident_fraction(designs, moved, used))
    return TermActivity(
        beside_conversions(designs, time_s, rounding),
        elements / lanes_per_s[:, None],
        moved / designs.memory_bandwidth_bytes_per_s[:, None],
        {},
        moved,
        elements + rounding,
        np.zeros_like(moved),
        conversion_ops=rounding,
    )


def _epilogue_activity(
    op: str, c: Columns, designs: DesignBatch, classes: NativeClasses, calibration: Calibration
) -> TermActivity:
    """One operation of a lane on each element inside another kernel (ReLU, multiply-add): neither start nor traffic."""
    elements = np.atleast_2d(c["elements"])
    lanes_per_s = designs.vector_lanes_per_core * designs.n_cores * designs.clock_hz
    time_s, zero = elements / lanes_per_s[:, None], np.zeros_like(elements)
    return TermActivity(time_s, time_s, zero, {}, zero, elements, zero)


def _state_activity(
    op: str, c: Columns, designs: DesignBatch, classes: NativeClasses, calibration: Calibration
) -> TermActivity:
    """Recurrent states of a layer: token by token on the lanes, or whole chunks of a prompt on the arrays."""
    flop = np.atleast_2d(c["tokens"] * c["flop_per_token"])
    traffic = np.atleast_2d(2.0 * c["sequences"] * c["state_bytes"])
    on_arrays = op == "chunked"
    time_s, compute_s = state_time_s(designs, op, flop, traffic, constants=calibration.constants("norm"))
    macs = {"bf16": flop / 2.0} if on_arrays else {}
    return TermActivity(
        time_s, compute_s, traffic / designs.memory_bandwidth_bytes_per_s[:, None], macs, traffic,
        np.zeros_like(flop) if on_arrays else flop, np.zeros_like(flop),
    )  # fmt: skip


_RUN: Mapping[str, Callable[[str, Columns, DesignBatch, NativeClasses, Calibration], TermActivity]] = {
    "experts": expert_activity,
    "decode": decode_activity,
    "prefill": prefill_activity,
    "vector": _vector_activity,
    "fused": _fused_activity,
    "epilogue": _epilogue_activity,
    "state": _state_activity,
    "collective": _collective_activity,
    "host": _host_activity,
}
TERM_KINDS = ("gemm", *_RUN)


def _join(runs: list[StepActivity], order: IntArray) -> StepActivity:
    """Put the runs of several native signatures back into the order of the designs."""

    def join(arrays: list[FloatArray]) -> FloatArray:
        full = [np.broadcast_to(a, run.time_s.shape) for a, run in zip(arrays, runs, strict=True)]
        return np.concatenate(full)[order]

    def join_macs(maps: list[Mapping[str, FloatArray]]) -> dict[str, FloatArray]:
        names = sorted({name for each in maps for name in each})
        return {name: join([each.get(name, np.zeros((1, 1))) for each in maps]) for name in names}

    def join_covered(seconds: list[FloatArray | None]) -> FloatArray | None:
        stated = [each for each in seconds if each is not None]
        return join(stated) if stated else None

    def join_terms(group: list[TermActivity]) -> TermActivity:
        return TermActivity(
            join([t.time_s for t in group]), join([t.compute_s for t in group]), join([t.memory_s for t in group]),
            join_macs([t.macs for t in group]),
            join([t.dram_bytes for t in group]), join([t.vector_ops for t in group]),
            join([t.link_bytes for t in group]), join([t.buffer_bytes for t in group]),
            covered_s=join_covered([t.covered_s for t in group]),
            conversion_ops=join([t.conversion_ops for t in group]),
        )  # fmt: skip

    return StepActivity(
        join([run.time_s for run in runs]),
        join_macs([run.macs for run in runs]),
        join([run.dram_bytes for run in runs]),
        join([run.vector_ops for run in runs]),
        join([run.link_bytes for run in runs]),
        join([run.l2_bytes for run in runs]),
        {name: join_terms([run.terms[name] for run in runs]) for name in runs[0].terms},
    )
