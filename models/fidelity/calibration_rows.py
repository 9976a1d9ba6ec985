"""Measured rows as a calibration sees them: one operator family on one chip, with prediction, bound and shapes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from models.checks import BoolArray, FloatArray, IntArray
from models.fidelity import attention, collective, elementwise, moe
from models.fidelity.gemm_prediction import (
    compute_bound_s,
    gemm_prediction_under,
)
from models.fidelity.gemm_rows import FORMAT_OF_DTYPE, OPERAND_BYTES, GemmRows, read_gemm_rows
from models.fidelity.layer_rows import LAYER_COLUMNS, cache_rows, layer_rows
from models.fidelity.report import TableError
from models.fidelity.rows import read_measured
from models.hardware.catalog import chip_designs
from models.hardware.design import peak_flop_per_s
from models.operators.calibration import FAMILY_OF_VECTOR, Calibration

_ARRAYS = ("group", "shapes", "measured_s", "bound_s", "lines", "typical")
TYPICAL_SIDE = 512
"""Least n and k of a GEMM that constants describe."""
Predictor = Callable[[Calibration], FloatArray]


@dataclass(frozen=True)
class FamilyRows:
    """Rows of one family on one chip; arrays of shape (n_rows,), shapes (n_rows, n_sizes)."""

    families: tuple[str, ...]
    """Families of constants that the rows can tell: the first is the operator's."""
    table: str
    chip_id: str
    group: np.ndarray
    """What weighs alike in a fit: the formats of the table."""
    shapes: FloatArray
    measured_s: FloatArray
    bound_s: FloatArray
    """Time that no such operator can beat: arithmetic at peak, and traffic that no memory on the chip can hold."""
    lines: IntArray
    typical: BoolArray
    """Whether constants decide a row; GEMMs of few tiles depend on choices of the library that none describes."""
    part: Callable[[Any], Predictor]
    """Positions of rows -> what predicts them under a calibration."""

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.measured_s)

    @property
    def predictor(self) -> Predictor:
        """What predicts all rows under a calibration."""
        return self.part(np.arange(len(self)))

    def take(self, index: BoolArray | IntArray) -> FamilyRows:
        """Rows where `index` holds, or at its positions."""
        positions = np.arange(len(self))[index]
        arrays = {name: getattr(self, name)[index] for name in _ARRAYS}
        return dataclasses.replace(self, **arrays, part=lambda inner: self.part(positions[inner]))


def calibration_rows(path: Path) -> list[FamilyRows]:
    """
    Return the rows of a measured file by family and chip; its columns tell which kind of table it is.

    Raises
    ------
    TableError
        If the columns are those of no kind of measured table, or break its rules.
    """
    names = set(read_measured(path, ()).columns)
    for columns, read in _KINDS:
        if set(columns) <= names:
            return list(read(path))
    known = "; ".join(", ".join(columns) for columns, _ in _KINDS)
    raise TableError(f"columns are those of no measured table, known: {known}", path.name, 1)


def _gemm(rows: GemmRows) -> Iterator[FamilyRows]:
    """GEMM rows of each chip; rows of narrow formats tell the quantisation too."""
    for chip_id in np.unique(rows.chip.astype(str)):
        own = np.flatnonzero(rows.chip == chip_id)
        part = rows.take(own)
        narrow = any(FORMAT_OF_DTYPE[str(name)] != "bf16" for name in np.unique(part.dtype.astype(str)))
        yield FamilyRows(
            families=("gemm", "quantise") if narrow and rows.source.quantises else ("gemm",),
            table=rows.table,
            chip_id=str(chip_id),
            group=part.dtype.astype(str),
            shapes=np.column_stack([part.n, part.k, part.m]),
            measured_s=part.latency_s,
            bound_s=np.maximum(compute_bound_s(part), _unkept_s(part)),
            lines=part.lines,
            typical=np.minimum(part.n, part.k) >= TYPICAL_SIDE,
            part=_predictors(part, gemm_prediction_under),
        )


def _unkept_s(rows: GemmRows) -> FloatArray:
    """Time to move what the memory of the chip cannot hold from one call to the next, shape (n_rows,) [s]."""
    design = chip_designs([str(rows.chip[0])])
    element = np.array([OPERAND_BYTES[FORMAT_OF_DTYPE[str(name)]] for name in rows.dtype])
    moved = element * (rows.n * rows.k + rows.m * rows.k) + 2.0 * rows.m * rows.n
    kept = design.l2_bytes + design.n_cores * design.scratchpad_bytes_per_core
    return np.asarray(np.maximum(moved - kept, 0.0) / design.memory_bandwidth_bytes_per_s)


def _vector(rows: elementwise.ElementwiseRows) -> Iterator[FamilyRows]:
    """Row-wise operators of each chip, one family each."""
    family = np.array([FAMILY_OF_VECTOR[str(name)] for name in rows.operator])
    for chip_id, name in sorted(set(zip(rows.chip_id.tolist(), family.tolist(), strict=True))):
        own = np.flatnonzero((rows.chip_id == chip_id) & (family == name))
        part = rows.take(own)
        yield FamilyRows(
            families=(name,),
            table=rows.rows.table,
            chip_id=chip_id,
            group=np.char.add(part.operator, part.rows.text("op")),
            shapes=np.column_stack([part.elements, part.n_rows, part.traffic_bytes]),
            measured_s=part.measured_s,
            bound_s=np.zeros(len(own)),
            lines=part.rows.lines,
            typical=np.ones(len(own), dtype=np.bool_),
            part=_predictors(part, elementwise.time_under_s),
        )


def _attention(rows: attention.AttentionRows) -> Iterator[FamilyRows]:
    """Prompts and steps of each chip, one family each."""
    for chip_id in np.unique(rows.chip_id):
        for decode in (False, True):
            own = np.flatnonzero((rows.chip_id == chip_id) & (rows.decode == decode))
            if not own.size:
                continue
            part = rows.take(own)
            sizes = (part.batch, part.tokens, part.past_tokens, part.n_heads, part.n_kv_heads, part.head_dim_qk)
            yield FamilyRows(
                families=("attention_decode" if decode else "attention_prefill",),
                table=rows.rows.table,
                chip_id=str(chip_id),
                group=part.dtype,
                shapes=np.concatenate(sizes, axis=1),
                measured_s=part.measured_s,
                bound_s=attention.compute_bound_s(part),
                lines=part.rows.lines,
                typical=np.ones(len(own), dtype=np.bool_),
                part=_predictors(part, attention.time_under_s),
            )


def _experts(rows: moe.ExpertRows, model: Any, kept: BoolArray) -> Iterator[FamilyRows]:
    """Routed experts of each chip, untuned kernels left out."""
    for chip_id in np.unique(rows.chip_id):
        own = np.flatnonzero((rows.chip_id == chip_id) & kept)
        part = rows.take(own)
        work = 2.0 * part.routed_rows * part.macs_per_row * (1.0 if model is moe.layer_time_s else 1.0 / 3.0)
        yield FamilyRows(
            families=("experts",),
            table=rows.rows.table,
            chip_id=str(chip_id),
            group=part.dtype,
            shapes=np.column_stack([part.hidden, part.inter, part.local_experts, part.routed_choices]),
            measured_s=part.measured_s,
            bound_s=work / (peak_flop_per_s(part.designs) * part.rate_ratio),
            lines=part.rows.lines,
            typical=np.ones(len(own), dtype=np.bool_),
            part=_predictors(part, lambda some, used: model(some, used.constants("experts"))),
        )


def _collectives(rows: collective.CollectiveRows) -> Iterator[FamilyRows]:
    """Collectives of each system; kinds of kernel and operations weigh alike."""
    for device in np.unique(rows.device):
        own = np.flatnonzero(rows.device == device)
        part = rows.take(own)
        yield FamilyRows(
            families=("collectives",),
            table=rows.rows.table,
            chip_id=str(device),
            group=np.char.add(part.kind, part.group),
            shapes=np.column_stack([part.n_chips, part.message_bytes]),
            measured_s=part.measured_s,
            bound_s=collective.roofline_s(part),
            lines=part.rows.lines,
            typical=np.ones(len(own), dtype=np.bool_),
            part=_predictors(part, lambda some, used: collective.predicted_time_s(some, used.constants("collectives"))),
        )


def _layers(path: Path) -> Iterator[FamilyRows]:
    """Linear layers, row-wise operators and prompts of a table of network layers."""
    rows = layer_rows(path)
    if rows.linear is not None:
        yield from _gemm(rows.linear.take(~rows.resident))
    if rows.vector is not None:
        yield from _vector(rows.vector)
    if rows.attention is not None:
        yield from _attention(rows.attention)


def _predictors(rows: Any, model: Callable[[Any, Calibration], FloatArray]) -> Callable[[Any], Predictor]:
    """Positions of rows -> what predicts them; the rows are taken once."""

    def part(index: Any) -> Predictor:
        some = rows.take(index)
        return lambda calibration: model(some, calibration)

    return part


def _nccl(path: Path) -> Iterator[FamilyRows]:
    rows = collective.aiconfigurator_rows(path)
    return _collectives(rows.take(np.flatnonzero(np.isin(rows.group, ("nccl", "pcie")))))


def _routed(path: Path) -> Iterator[FamilyRows]:
    rows = moe.aiconfigurator_rows(path)
    return _experts(rows, moe.layer_time_s, ~moe.is_fallback(rows))


def _grouped(path: Path) -> Iterator[FamilyRows]:
    rows = moe.infersim_rows(path)
    return _experts(rows, moe.grouped_gemm_rows_time_s, np.ones(len(rows.measured_s), dtype=np.bool_))


_KINDS: tuple[tuple[tuple[str, ...], Callable[[Path], Iterator[FamilyRows]]], ...] = (
    (("m", "n", "k", "dtype", "latency_us"), lambda path: _gemm(read_gemm_rows(path, of_users=True))),
    (moe.LAYER_COLUMNS, _routed),
    (moe.GROUPED_COLUMNS, _grouped),
    (("op", "head_cfg", "kv_dtype"), lambda path: _attention(attention.infersim_rows(path))),
    (("op", "batch", "n_heads", "n_kv_heads", "head_dim", "kv_dtype"),
     lambda path: _attention(attention.aiconfigurator_rows(path))),
    (("op", "rows", "cols", "dtype"), lambda path: _vector(elementwise.elementwise_rows(path))),
    (("op", "impl", "n_devices", "message_elements"), _nccl),
    (("device", "op", "n_devices", "size_bytes"), lambda path: _collectives(collective.llmcompass_rows(path))),
    (("system", "op", "n_devices", "devices_per_node"), lambda path: _collectives(collective.vidur_rows(path)[0])),
    (LAYER_COLUMNS, _layers),
    (("op", "model", "batch", "prefill_chunk_tokens", "kv_tokens"), lambda path: _attention(cache_rows(path))),
)  # fmt: skip
"""Columns that tell a kind of table -> its reader; the first that fits is taken."""
