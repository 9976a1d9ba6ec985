"""Training step -> the program of one chip over the plans it may be spread by."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from models.architectures.lowered import AttentionOperator, LoweredNetwork, StateOperator, VectorOperator
from models.architectures.plans import pipeline_depths, tensor_parallel_degrees
from models.architectures.training import (
    TrainingCollective,
    TrainingGemm,
    TrainingOperator,
    TrainingStep,
    training_step,
)
from models.architectures.training_memory import Recompute, TrainingPlan, stored_bits, training_formats
from models.checks import FloatArray
from models.hardware.rates import class_code
from models.operators.collective_terms import Place, two_level_terms
from models.operators.step import Term, step_program, term
from models.precision.formats import number_format
from models.precision.mix import PrecisionMix
from models.precision.promotion import common_classes
from models.serving.programs import STATE_BYTES, STATE_CHUNK_TOKENS
from models.serving.scenario import System
from models.tables import constants
from models.throughput.scenario import TrainingScenario
from models.throughput.work import CompiledWork

SEND = {"send_receive": "send_recv"}
"""Collectives of a training step that the operator registry calls otherwise."""

WIDE_BITS = 16.0
"""Modules whose activations are kept this wide keep their gradients so too."""

ACCUMULATIONS = 2.0
"""A weight gradient is added to what earlier microbatches left: read and written."""

PLAIN_BYTES = 2.0
"""Queries, keys, values and scores are 16 bit."""

SCORE_COPIES = 1e3
"""Operands of an unfused attention are met once: as many others pass before the same address is used again."""

ADAM_PASSES = 4.0
"""Elements that one update touches on the lanes: gradient, master weight and two moments."""


PLAN_CHOICES = (
    "tensor_parallel", "pipeline_parallel", "data_parallel", "microbatch_sequences", "interleave", "sequence_parallel",
    "zero_stage",
)  # fmt: skip
"""What an operating point says of a plan."""

FULL_MICROBATCH_TOKENS = 4096
"""Tokens of a microbatch beyond which more of them make no product faster: rows enough for every matrix."""

INTERLEAVES = (1, 2)
"""Groups of layers that each stage of a pipeline is tried with."""

SHARDED_STATES = (1, 3)
"""ZeRO stages that are tried: optimizer state alone, or everything."""


def training_plans(
    network: LoweredNetwork, system: System, sequence_tokens: int, global_batch_sequences: int, recompute: Recompute
) -> tuple[TrainingPlan, ...]:
    """
    Return the plans that are tried where a study gives none.

    All products of tensor parallel degrees inside a node, pipeline depths and data parallel rest that divide the
    batch; microbatches of one sequence, and of more where that is short; norms split by tokens or not; optimizer
    state or all state sharded; pipelines with and without interleaving. Tensor parallelism over nodes is left out: a
    pipeline divides memory as well, and sends a row once a stage instead of four times a layer.

    Raises
    ------
    ValueError
        If no such plan divides the batch.
    """
    node = min(system.n_chips_per_node, system.n_chips)
    degrees = [t for t in tensor_parallel_degrees(network, system.n_chips, node) if t <= node]
    plans = [
        plan
        for tensor in degrees
        for depth in pipeline_depths(network.n_layers, system.n_chips // tensor)
        for plan in _plans_of(network, system.n_chips, tensor, depth, sequence_tokens, recompute)
        if global_batch_sequences % (plan.data_parallel * plan.microbatch_sequences) == 0
    ]
    if not plans:
        raise ValueError(
            f"global_batch_sequences must be a multiple of n_chips / (tensor_parallel x pipeline_parallel) for one of "
            f"the degrees {degrees} in a node and depths to {network.n_layers}, got {global_batch_sequences} over "
            f"{system.n_chips} chips"
        )
    return tuple(plans)


def _plans_of(
    network: LoweredNetwork, n_chips: int, tensor: int, depth: int, sequence_tokens: int, recompute: Recompute
) -> Iterator[TrainingPlan]:
    """Plans of one degree and depth."""
    longest = max(FULL_MICROBATCH_TOKENS // sequence_tokens, 1)
    microbatches = [2**i for i in range(longest.bit_length())]
    held = math.ceil(network.n_layers / depth)
    interleaves = [v for v in INTERLEAVES if v == 1 or (depth > 1 and held % v == 0)]
    for sequences, interleave, zero, split in itertools.product(
        microbatches, interleaves, SHARDED_STATES, (True, False) if tensor > 1 else (True,)
    ):
        yield TrainingPlan(
            tensor, depth, n_chips // (tensor * depth), sequences, interleave, split, zero, recompute,
        )  # fmt: skip


def compile_training(scenario: TrainingScenario) -> CompiledWork:
    """
    Return the program of the busiest chip of one optimizer step; alternatives are the plans.

    Gradients are reduced and weights gathered while the backward and the next forward pass run: the share of that
    time which stays exposed is a stated constant. Pipelines add their bubble.

    Raises
    ------
    ValueError
        If a plan does not use the chips of the system, or breaks a rule of `training_step`.
    """
    for plan in scenario.plans:
        if plan.n_chips != scenario.system.n_chips:
            raise ValueError(
                f"tensor x pipeline x data parallel must be the {scenario.system.n_chips} chips of the system, "
                f"got {plan.n_chips}"
            )
    steps = [
        training_step(scenario.network, plan, scenario.mix, scenario.sequence_tokens, scenario.global_batch_sequences)
        for plan in scenario.plans
    ]
    frame = _Frame(scenario.mix, steps, scenario.plans, scenario.system)
    plans = scenario.plans
    return CompiledWork(
        scenario,
        "training",
        step_program(
            [*frame.gemm_terms(), *frame.operator_terms(), *frame.collective_terms()],
            overhead_s=0.0,
            calibration=scenario.calibration,
        ),
        units_per_step=1.0,
        tokens_per_unit=steps[0].tokens_per_step,
        idle_ratio=np.array([step.bubble_ratio for step in steps]),
        memory_bytes=np.array([step.memory.total_bytes for step in steps]),
        choices={name: np.array([getattr(plan, name) for plan in plans]) for name in PLAN_CHOICES},
        window_key=np.array(
            [plan.tensor_parallel * scenario.system.n_chips + plan.pipeline_parallel for plan in plans]
        ),
    )


@dataclass(frozen=True)
class _Frame:
    """The steps of all plans, whose operators stand in the same order."""

    mix: PrecisionMix
    steps: Sequence[TrainingStep]
    plans: Sequence[TrainingPlan]
    system: System

    def gemm_terms(self) -> Iterator[Term]:
        """Matrix products of all passes."""
        forward = [[g for g in step.gemms if g.part == "forward"] for step in self.steps]
        weights = np.array([sum(g.n * g.k * g.batch * g.count for g in gemms) for gemms in forward])
        for i, gemms in enumerate(zip(*[step.gemms for step in self.steps], strict=True)):
            yield self._gemm_term(i, gemms, weights)

    def _gemm_term(self, position: int, gemms: Sequence[TrainingGemm], all_weights: FloatArray) -> Term:
        first = gemms[0]
        formats = _gemm_formats(self.mix, first)
        m, n, k, batch, count = (_column(gemms, name) for name in ("m", "n", "k", "batch", "count"))
        return term(
            f"{first.module}_{first.part}_{position}", "gemm", first.part, count,
            m=np.maximum(m, 1.0), n=np.maximum(n, 1.0), k=np.maximum(k, 1.0),
            weight_bytes=formats.stationary_bytes, input_bytes=formats.moving_bytes, output_bytes=formats.output_bytes,
            rate_class=formats.rate_class, weight_native=formats.stationary_native,
            weight_class=formats.stationary_class, dequant_ops=formats.dequant_ops, instances=batch,
            copies=np.maximum(all_weights / (n * k * batch), 1.0), useful_fraction=1.0,
        )  # fmt: skip

    def operator_terms(self) -> Iterator[Term]:
        """Attention, states and vector work, and the update of the weights."""
        for i, works in enumerate(zip(*[step.operators for step in self.steps], strict=True)):
            if isinstance(works[0].operator, AttentionOperator):
                yield from _attention_terms(i, works, [plan.fused_attention for plan in self.plans])
            else:
                yield _OPERATOR_TERMS[type(works[0].operator)](i, works)
        moved = _column(self.steps, "optimizer_bytes")
        formats = training_formats(self.mix)
        state = (formats.master_weight, formats.first_moment, formats.second_moment)
        bits = stored_bits(formats.gradient_storage) + 2.0 * sum(map(stored_bits, state))
        elements = moved / ((bits + self.mix.weight_bits("ffn_down")) / 8.0)
        yield term("optimizer", "vector", "residual", 1.0, elements=ADAM_PASSES * elements, bytes_moved=moved, rows=1.0)

    def collective_terms(self) -> Iterator[Term]:
        """Communication, by what it is and whom it joins; plans that lack one take part with a single chip."""
        exposed = constants("training")["exposed_data_parallel_fraction"]
        tables = [{(c.op, c.group): c for c in step.collectives} for step in self.steps]
        for op, group in dict.fromkeys(key for table in tables for key in table):
            found = [table.get((op, group)) for table in tables]
            yield from two_level_terms(
                f"{op}_{group}", SEND.get(op, op), np.array([0.0 if c is None else c.count for c in found]),
                n_chips=np.array([1.0 if c is None else float(_partners(c)) for c in found]),
                place=self._place(group), interconnect=self.system.interconnect,
                message_bytes=np.array([0.0 if c is None else c.message_bytes for c in found]),
                exposed_fraction=exposed if group == "data" else 1.0,
            )  # fmt: skip

    def _place(self, group: str) -> Place:
        """Where the chips of each plan's groups lie: before them those that come first in a node."""
        node = self.system.n_chips_per_node
        before = np.array([self._before(plan, group) for plan in self.plans], dtype=np.float64)
        inside = np.array([float(self._inside(plan, group)) for plan in self.plans])
        return Place(inside, np.minimum(before, node), np.maximum(before // node, 1.0))

    @staticmethod
    def _before(plan: TrainingPlan, group: str) -> int:
        """Chips that each chip of a group stands for."""
        if group == "tensor":
            return 1
        return plan.tensor_parallel * (plan.data_parallel if group == "pipeline" else 1)

    def _inside(self, plan: TrainingPlan, group: str) -> int:
        """Chips of one group that share a node: tensor parallel neighbours first, then data parallel, then stages."""
        node = self.system.n_chips_per_node
        if group == "tensor":
            return node
        left = max(node // plan.tensor_parallel, 1)
        return left if group == "data" else max(left // plan.data_parallel, 1)


@dataclass(frozen=True)
class _GemmFormats:
    stationary_bytes: float
    moving_bytes: float
    output_bytes: float
    rate_class: float
    stationary_native: float
    stationary_class: float
    dequant_ops: float


def _gemm_formats(mix: PrecisionMix, gemm: TrainingGemm) -> _GemmFormats:
    """Operands k x n and m x k of one GEMM of a step, its result, and the rate they are multiplied at."""
    weight, activation = mix.operand_formats(gemm.module)
    stated = training_formats(mix)
    gradient = activation if activation.activation_bits >= WIDE_BITS else number_format(stated.gradient)
    plain = mix.vector_bits("residual") / 8.0
    stationary, moving, output_bytes = weight, activation, plain
    if gemm.part == "input_gradient":
        moving = gradient
    elif gemm.part == "weight_gradient":
        stationary, output_bytes = gradient, ACCUMULATIONS * stored_bits(stated.gradient_storage) / 8.0
    stationary_bits = stationary.weight_bits if stationary is weight else stationary.activation_bits
    return _GemmFormats(
        stationary_bits / 8.0,
        moving.activation_bits / 8.0,
        output_bytes,
        float(class_code(common_classes(stationary, moving)[0])),
        float(class_code(stationary.native_class)),
        float(class_code(stationary.rate_class)),
        stationary.dequantisation_ops,
    )


def _partners(collective: TrainingCollective) -> int:
    """Chips that meet in one message: a stage sends to the next one only."""
    return min(collective.n_chips, 2) if collective.op == "send_receive" else collective.n_chips


def _attention_terms(position: int, works: Sequence[TrainingOperator], fused: Sequence[bool]) -> Iterator[Term]:
    """One fused kernel, or where scores leave the chip two batched products with a softmax between them."""
    counts, flags = _counts(works), np.array(fused)
    if flags.any():
        yield _attention_term(position, works, counts * flags)
    if not flags.all():
        yield from _unfused_terms(position, works, counts * ~flags)


def _unfused_terms(position: int, works: Sequence[TrainingOperator], counts: FloatArray) -> Iterator[Term]:
    operators = [work.operator for work in works if isinstance(work.operator, AttentionOperator)]
    name, tokens = f"attention_{works[0].part}_{position}", _column(works, "tokens")
    heads = _column(works, "sequences") * _column(operators, "n_heads")
    scores = heads * tokens**2
    dims = {"scores": float(operators[0].head_dim_qk), "context": float(operators[0].head_dim_v)}
    for product, n, k in (("scores", tokens, dims["scores"]), ("context", dims["context"], tokens)):
        yield term(
            f"{name}_{product}", "gemm", works[0].part, counts, m=tokens, n=n, k=k, instances=heads,
            weight_bytes=PLAIN_BYTES, input_bytes=PLAIN_BYTES, output_bytes=PLAIN_BYTES,
            rate_class=float(class_code("bf16")), dequant_ops=0.0, copies=SCORE_COPIES, useful_fraction=1.0,
        )  # fmt: skip
    yield term(
        f"{name}_softmax", "vector", "softmax", counts, elements=scores, bytes_moved=2.0 * PLAIN_BYTES * scores,
        rows=heads * tokens,
    )  # fmt: skip


def _attention_term(position: int, works: Sequence[TrainingOperator], counts: FloatArray) -> Term:
    operators = [work.operator for work in works if isinstance(work.operator, AttentionOperator)]
    first = operators[0]
    window = first.window_tokens / 2 if first.chunked else first.window_tokens
    return term(
        f"attention_{works[0].part}_{position}", "prefill", works[0].part, counts,
        batch=_column(works, "sequences"), tokens=_column(works, "tokens"),
        n_heads=_column(operators, "n_heads"), n_kv_heads=_column(operators, "n_kv_heads"),
        head_dim_qk=float(first.head_dim_qk), head_dim_v=float(first.head_dim_v),
        kv_bytes_per_element=2.0, kv_elements_per_token=_column(operators, "kv_elements_per_token"),
        window_tokens=float(window),
    )  # fmt: skip


def _state_term(position: int, works: Sequence[TrainingOperator]) -> Term:
    operators = [work.operator for work in works if isinstance(work.operator, StateOperator)]
    sequences, tokens = _column(works, "sequences"), _column(works, "tokens")
    return term(
        f"state_{works[0].part}_{position}", "state", "chunked", _counts(works),
        tokens=sequences * tokens, sequences=sequences * np.maximum(tokens / STATE_CHUNK_TOKENS, 1.0),
        state_bytes=_column(operators, "state_elements") * STATE_BYTES,
        flop_per_token=_column(operators, "flop_per_token"),
    )  # fmt: skip


def _vector_term(position: int, works: Sequence[TrainingOperator]) -> Term:
    operators = [work.operator for work in works if isinstance(work.operator, VectorOperator)]
    first = operators[0]
    rows = _column(works, "sequences") * _column(works, "tokens")
    elements = _column(operators, "elements_per_token") * rows
    return term(
        f"{first.module}_{first.op}_{works[0].part}_{position}", "vector", first.op, _counts(works),
        elements=elements, bytes_moved=elements * first.passes * 2.0, rows=rows,
    )  # fmt: skip


_OPERATOR_TERMS = {StateOperator: _state_term, VectorOperator: _vector_term}


def _counts(works: Sequence[TrainingOperator]) -> FloatArray:
    """Passes in a step, weighted by their work over that of a forward pass."""
    return np.array([work.count * work.work_ratio for work in works])


def _column(items: Sequence[object], name: str) -> FloatArray:
    """One number of each plan's item."""
    return np.array([float(getattr(item, name)) for item in items])
