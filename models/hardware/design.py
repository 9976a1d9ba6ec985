"""Many accelerator designs as one struct of arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from models.checks import FloatArray, require_at_least, require_known, require_non_negative


class Stationarity(IntEnum):
    """Which operand of a GEMM stays in the array while the others stream."""

    OUTPUT = 0
    WEIGHT = 1
    INPUT = 2


class MemoryKind(IntEnum):
    """Kind of main memory; its numbers are the row of the same name in `memory_kinds.csv`."""

    NONE = 0
    HBM2 = 1
    HBM2E = 2
    HBM3 = 3
    HBM3E = 4
    GDDR6 = 5
    GDDR6X = 6
    GDDR7 = 7
    LPDDR5X = 8
    DDR4 = 9
    DDR5 = 10


class SecondTier(IntEnum):
    """Optional slower, larger memory; its numbers are the row of the same name in `second_tiers.csv`."""

    NONE = 0
    LPDDR5X_256GB = 1
    CXL_512GB = 2


class CoreControl(IntEnum):
    """What issues the work of a core, which decides the area of its control."""

    LANE_SCALED = 0
    """Control grows with the vector lanes it feeds: the default of a searched design."""
    SIMT = 1
    """A GPU core with its warp schedulers."""
    TENSOR = 2
    """A large core with one VLIW or dataflow sequencer, as a TPU core."""
    SMALL = 3
    """A small tile core, tens to hundreds on a die."""


def parameter(unit: str, description: str, default: float | None = None) -> Any:
    """Declare one design parameter with its unit, meaning and the value a caller may leave out."""
    return field(metadata={"unit": unit, "description": description, "default": default})


@dataclass(frozen=True)
class DesignBatch:
    """
    One array of shape (n_designs,) per parameter; codes of a choice are stored as float64 too.

    Rates, bandwidths and capacities are per chip and per direction. Build one with `design_batch`, which
    broadcasts, fills defaults and checks.
    """

    node_nm: FloatArray = parameter("nm", "process node of the compute die")
    array_m: FloatArray = parameter("1", "rows of one matrix array")
    array_n: FloatArray = parameter("1", "columns of one matrix array")
    array_k: FloatArray = parameter("1", "depth of the dot product of one array; 1 is an outer product")
    arrays_per_core: FloatArray = parameter("1", "matrix arrays in one core")
    n_cores: FloatArray = parameter("1", "cores on the chip")
    clock_hz: FloatArray = parameter("Hz", "highest clock of the cores")
    vector_lanes_per_core: FloatArray = parameter("1", "fp32 multiply-add lanes of one core")
    scratchpad_bytes_per_core: FloatArray = parameter("B", "software-managed or level-1 memory of one core")
    l2_bytes: FloatArray = parameter("B", "buffer shared by all cores")
    noc_bytes_per_cycle_per_core: FloatArray = parameter("B/cycle", "port of one core to the shared buffer")
    memory_kind: FloatArray = parameter("code", "kind of main memory (MemoryKind)")
    memory_stacks: FloatArray = parameter("1", "HBM stacks, or pairs of 32-bit channels for other kinds")
    memory_bandwidth_bytes_per_s: FloatArray = parameter("B/s", "peak main-memory bandwidth")
    memory_capacity_bytes: FloatArray = parameter("B", "main-memory capacity")
    scale_up_bytes_per_s: FloatArray = parameter("B/s", "links to chips of the same node, one direction")
    tdp_w: FloatArray = parameter("W", "power cap under which the clock settles")
    stationarity: FloatArray = parameter("code", "operand that stays in the array (Stationarity)", 0.0)
    array_groups: FloatArray = parameter("1", "groups inside one array that must be coordinated", 1.0)
    array_variants: FloatArray = parameter("code", "organisations to take the best of; 0 its own (array_variants)", 0.0)
    scale_out_bytes_per_s: FloatArray = parameter("B/s", "links to other nodes, one direction", 0.0)
    host_bytes_per_s: FloatArray = parameter("B/s", "link to the host, one direction", 32e9)
    second_tier: FloatArray = parameter("code", "second memory tier (SecondTier)", 0.0)
    bf16_rate_ratio: FloatArray = parameter("1", "bf16/fp16 multiply-adds per array element and cycle", 1.0)
    fp32_rate_ratio: FloatArray = parameter("1", "fp32 rate over bf16 rate on the arrays; 0 not native", 0.0)
    tf32_rate_ratio: FloatArray = parameter("1", "tf32 rate over bf16 rate; 0 not native", 0.0)
    int8_rate_ratio: FloatArray = parameter("1", "int8 rate over bf16 rate; 0 not native", 0.0)
    fp8_rate_ratio: FloatArray = parameter("1", "fp8 rate over bf16 rate; 0 not native", 0.0)
    fp6_rate_ratio: FloatArray = parameter("1", "fp6 rate over bf16 rate; 0 not native", 0.0)
    fp4_rate_ratio: FloatArray = parameter("1", "fp4 rate over bf16 rate; 0 not native", 0.0)
    bulk_async_copy: FloatArray = parameter("flag", "1 where data is copied in bulk beside computing", 1.0)
    l2_halves: FloatArray = parameter("1", "partitions of the shared buffer that each hold a copy", 1.0)
    core_control: FloatArray = parameter("code", "what issues the work of a core (CoreControl)", 0.0)
    register_file_bytes_per_core: FloatArray = parameter("B", "register files of one core", 0.0)
    fp64_lanes_per_core: FloatArray = parameter("1", "fp64 multiply-add lanes of one core", 0.0)
    spare_core_fraction: FloatArray = parameter("1", "cores on the die beyond the enabled, over enabled", 0.08)
    spare_l2_fraction: FloatArray = parameter("1", "shared buffer on the die beyond the enabled", 0.0)
    spare_memory_stacks: FloatArray = parameter("1", "memory interfaces on the die beyond the enabled", 0.0)
    short_reach_bytes_per_s: FloatArray = parameter("B/s", "die-to-die links, one direction", 0.0)
    n_dies: FloatArray = parameter("1", "compute dies of one chip", 1.0)
    other_area_mm2: FloatArray = parameter("mm2", "declared units outside the model at this node", 0.0)

    @property
    def n_designs(self) -> int:
        """Number of designs in the batch."""
        return len(self.node_nm)


DESIGN_FIELDS: Mapping[str, dataclasses.Field[Any]] = {f.name: f for f in dataclasses.fields(DesignBatch)}

BOUND_FIELDS = frozenset({"array_variants"})
"""Fields that only bounds on many designs set; no real design has them."""

_AT_LEAST_ONE = ("array_m", "array_n", "array_k", "arrays_per_core", "n_cores", "array_groups", "n_dies", "l2_halves")
_POSITIVE = ("node_nm", "clock_hz", "tdp_w", "noc_bytes_per_cycle_per_core", "vector_lanes_per_core")


def design_batch(**columns: ArrayLike) -> DesignBatch:
    """
    Return a batch from columns that broadcast against each other, with defaults for those left out.

    Raises
    ------
    UnknownNameError
        If a column is no design parameter.
    ValueError
        If a required column is missing, or a value breaks the rule of its parameter.

    Examples
    --------
    >>> batch = take(reference_design(), [0, 0])
    >>> batch.n_designs
    2
    """
    for name in columns:
        require_known("design parameter", name, DESIGN_FIELDS)
    filled = {}
    for name, declared in DESIGN_FIELDS.items():
        if name not in columns and declared.metadata["default"] is None:
            raise ValueError(f"design parameter {name} [{declared.metadata['unit']}] is missing")
        filled[name] = np.atleast_1d(np.asarray(columns.get(name, declared.metadata["default"]), dtype=np.float64))
    length = max(len(values) for values in filled.values())
    table = np.empty((len(filled), length))
    for row, (name, values) in zip(table, filled.items(), strict=True):
        if len(values) not in (1, length):
            raise ValueError(f"design parameter {name} has {len(values)} entries where others have {length}")
        row[:] = values
    good = np.isfinite(table) & (table >= _LEAST[:, None])
    if not good.all():
        name = list(filled)[int(np.argmin(good.all(axis=1)))]
        _require_allowed(name, filled[name])
    return DesignBatch(**dict(zip(filled, table, strict=True)))


def _require_allowed(name: str, values: FloatArray) -> None:
    """Refuse values that break the rule of their parameter."""
    unit, least = str(DESIGN_FIELDS[name].metadata["unit"]), _least(name)
    if least > 0:
        require_at_least(name, values, least, unit)
    else:
        require_non_negative(name, values, unit)


def _least(name: str) -> float:
    """Least value of a parameter, in its unit."""
    if name in _AT_LEAST_ONE:
        return 1.0
    return float(np.finfo(float).tiny) if name in _POSITIVE else 0.0


_LEAST = np.array([_least(name) for name in DESIGN_FIELDS])


def require_equal_groups(designs: DesignBatch) -> DesignBatch:
    """Return the designs, refusing groups that do not divide the outputs of an array into equal parts."""
    groups, m, n = designs.array_groups, designs.array_m, designs.array_n
    uneven = np.flatnonzero((m * n) % groups != 0)
    if len(uneven):
        i = uneven[0]
        raise ValueError(
            f"array_groups must divide array_m x array_n, got {groups[i]:g} groups of {m[i]:g} x {n[i]:g}"
            f" at index {i} ({len(uneven)} of {len(m)} entries)"
        )
    return designs


def checked_columns(n_designs: int, **columns: ArrayLike) -> DesignBatch:
    """
    Return a batch of `n_designs` from columns that were checked before, as values of a design space are.

    Those left out have their defaults. The columns may share memory with others and are not to be written to.
    """
    filled = {
        name: np.broadcast_to(np.asarray(columns.get(name, declared.metadata["default"]), dtype=np.float64), n_designs)
        for name, declared in DESIGN_FIELDS.items()
    }
    return DesignBatch(**filled)


def reference_design() -> DesignBatch:
    """Return one plain design, a mid-size dot-product accelerator at 5 nm, for examples and tests."""
    return design_batch(
        node_nm=5, array_m=16, array_n=16, array_k=16, arrays_per_core=1, n_cores=64, clock_hz=1.6e9,
        vector_lanes_per_core=128, scratchpad_bytes_per_core=256 * 1024, l2_bytes=48 * 1024**2,
        noc_bytes_per_cycle_per_core=128, memory_kind=MemoryKind.HBM3, memory_stacks=4,
        memory_bandwidth_bytes_per_s=4 * 819.2e9, memory_capacity_bytes=4 * 16 * 1024**3,
        scale_up_bytes_per_s=300e9, tdp_w=500, fp8_rate_ratio=2,
    )  # fmt: skip


def take(designs: DesignBatch, index: ArrayLike) -> DesignBatch:
    """Return the designs at `index` (integers or a mask), in that order."""
    chosen = np.asarray(index)
    return DesignBatch(**{name: getattr(designs, name)[chosen] for name in DESIGN_FIELDS})


def one_of(designs: DesignBatch, index: int) -> DesignBatch:
    """Return one design as a batch; of a single one that batch itself."""
    return designs if designs.n_designs == 1 else take(designs, [index])


def concatenate(batches: list[DesignBatch]) -> DesignBatch:
    """Return one batch with the designs of all `batches` in order."""
    return DesignBatch(**{name: np.concatenate([getattr(b, name) for b in batches]) for name in DESIGN_FIELDS})


def replace(designs: DesignBatch, **columns: ArrayLike) -> DesignBatch:
    """Return the batch with some columns exchanged; the new ones are checked and broadcast."""
    return design_batch(**{name: getattr(designs, name) for name in DESIGN_FIELDS} | columns)


def macs_per_cycle_per_core(designs: DesignBatch) -> FloatArray:
    """bf16 multiply-accumulates of all arrays of one core, shape (n_designs,) [1/cycle]."""
    return np.asarray(designs.array_m * designs.array_n * designs.array_k * designs.arrays_per_core)


def peak_flop_per_s(designs: DesignBatch, rate_ratio: ArrayLike = 1.0) -> FloatArray:
    """Dense peak of the arrays at a format that runs at `rate_ratio` times bf16, shape (n_designs,) [FLOP/s]."""
    macs_per_s = macs_per_cycle_per_core(designs) * designs.n_cores * designs.clock_hz
    return np.asarray(2.0 * macs_per_s * np.asarray(rate_ratio))
