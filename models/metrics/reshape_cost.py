"""What is spent on moving and reshaping data without computing: by what it is, where it comes from, when it is paid."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from models.checks import FloatArray, IntArray
from models.hardware.design import DesignBatch
from models.hardware.energy import EnergyPerAccess, operand_bytes_per_mac, operand_delivery_j_per_byte
from models.hardware.power import switching_energy_ratio
from models.hardware.rates import OPERAND_BYTES, native_signature
from models.metrics.phases import OperatorWork, Paid, Phase, buffer_bytes
from models.operators.activity import class_rates, codes
from models.operators.attention import FOLD_EXPONENT
from models.operators.expert_term import expert_parts_s, expert_rate, permuted_expert_bytes
from models.operators.gemm import (
    effective_l2_bytes,
    memory_time_s,
    miss_fraction,
)
from models.operators.gemm_constants import GemmConstants
from models.operators.tiling_parts import tiling_parts
from models.technology import Technology

Layer = Literal["operator", "unrolling", "interconnect"]
"""Whether the network's operators, the shape of the arrays, or the links between chips make it."""

LEVELS = ("second_tier", "main_memory", "shared_buffer", "arrays", "scale_up", "scale_out")
"""Where bytes move: each is counted at the level that it comes from."""

COLLECTIVES: Mapping[str, str] = {
    "all_reduce": "cross_chip_reduction", "reduce_scatter": "cross_chip_reduction", "all_gather": "cross_chip_gather",
    "all_to_all": "expert_exchange", "send_recv": "pipeline_handover",
}  # fmt: skip
"""Collective -> what it moves for, where the name of the term does not say."""

NAMED: Mapping[str, str] = {
    "experts_dispatch": "expert_dispatch", "experts_combine": "expert_combine", "experts_": "expert_exchange",
    "handover": "pipeline_handover", "cache_transfer": "cache_transfer", "im2col": "im2col",
}  # fmt: skip
"""Begin of a term's name -> what it moves for."""

GATHERS = ("embedding",)
"""Row-wise operators that only move."""


@dataclass(frozen=True)
class Moved:
    """
    One item of one operator, per unit of work and over all chips; arrays of shape (n_designs, 1).

    `seconds` are those of the chips that work together, at the settled clock; `bytes` by level; `energy_j` is what
    switches for it.
    """

    item: str
    layer: Layer
    paid: Paid
    phase: str
    operator: str
    seconds: FloatArray
    bytes: Mapping[str, FloatArray]
    energy_j: FloatArray


@dataclass(frozen=True)
class _Part:
    """One item of one operator in one run of one chip at the highest clock."""

    item: str
    layer: Layer
    seconds: FloatArray
    bytes: Mapping[str, FloatArray]
    lane_ops: FloatArray


@dataclass(frozen=True)
class _Site:
    """The designs, with what every operator needs of them."""

    designs: DesignBatch
    access: EnergyPerAccess
    delivery_j_per_byte: FloatArray
    promoted: IntArray
    """Class that computes each class, shape (n_designs, n_classes)."""


def moved_items(
    phases: Sequence[Phase], designs: DesignBatch, access: EnergyPerAccess, technology: Technology | None = None
) -> list[Moved]:
    """
    Return every item of the phases that moves data without computing.

    Seconds are shares of the times of the operators: where parts overlap in a smooth maximum, each has what it
    weighs in it, so that all parts of an operator, computing included, add up to its time.

    Parameters
    ----------
    phases : sequence of Phase
        Of `phases_of`.
    designs : DesignBatch
        Of n_designs designs.
    access : EnergyPerAccess
        Of the same designs.
    technology : Technology, optional
        The shipped one where left out.
    """
    signatures, inverse = native_signature(designs)
    promoted = np.stack([each.promoted for each in signatures])[inverse]
    site = _Site(designs, access, operand_delivery_j_per_byte(designs, technology), promoted)
    own = [item for phase in phases for each in phase.operators for item in _items(site, phase, each)]
    return own + [_fetch(phase, access) for phase in phases if phase.tier_bytes.any()]


def _fetch(phase: Phase, access: EnergyPerAccess) -> Moved:
    """What the second tier holds on its way to the main memory, and the time that it adds."""
    read = phase.tier_bytes * phase.runs_per_unit * phase.n_chips
    return Moved(
        "second_tier_fetch", "operator", "request" if phase.name == "prompt" else "step", phase.name, "second_tier",
        phase.tier_s * phase.runs_per_unit, {"second_tier": read}, read * access.second_tier_j_per_byte[:, None],
    )  # fmt: skip


def reshape_fraction(items: Sequence[Moved], phases: Sequence[Phase]) -> FloatArray:
    """Share of the time of a unit of work that moves without computing, shape (n_designs, 1) [1]."""
    moving = sum((each.seconds for each in items), np.zeros((1, 1)))
    return np.asarray(moving / sum(phase.seconds_per_unit for phase in phases))


def moved_bytes(items: Sequence[Moved]) -> dict[str, FloatArray]:
    """Bytes of all items by level, shape (n_designs, 1) [B]."""
    return {
        level: np.asarray(sum((each.bytes[level] for each in items if level in each.bytes), np.zeros((1, 1))))
        for level in LEVELS
    }


def level_bytes(phases: Sequence[Phase], designs: DesignBatch) -> dict[str, FloatArray]:
    """All bytes of a unit of work by level, computing or not, over all chips, shape (n_designs, 1) [B]."""
    totals = {level: np.zeros((designs.n_designs, 1)) for level in LEVELS}
    for phase in phases:
        scale = phase.runs_per_unit * phase.n_chips
        totals["second_tier"] = totals["second_tier"] + phase.tier_bytes * scale
        for each in phase.operators:
            for level, values in _operator_bytes(each, designs).items():
                totals[level] = totals[level] + values * scale
    return totals


def _operator_bytes(work: OperatorWork, designs: DesignBatch) -> dict[str, FloatArray]:
    """Bytes of an operator in a run, by level [B]."""
    done = work.activity
    found = {"main_memory": done.dram_bytes, "shared_buffer": buffer_bytes(done), "arrays": _array_bytes(work, designs)}
    if work.kind == "collective":
        outside = work.columns["scale_out"] > 0
        found["scale_up"] = np.where(outside, 0.0, done.link_bytes)
        found["scale_out"] = np.where(outside, done.link_bytes, 0.0)
    return found


def _array_bytes(work: OperatorWork, designs: DesignBatch) -> FloatArray:
    """Operands on their way from the scratchpads into the arrays [B]."""
    total = np.zeros((designs.n_designs, 1))
    for name, macs in work.activity.macs.items():
        total = total + macs * operand_bytes_per_mac(designs, name)[:, None]
    return total


def _items(site: _Site, phase: Phase, work: OperatorWork) -> Iterator[Moved]:
    """Items of one operator, scaled to a unit of work."""
    saving = switching_energy_ratio(phase.slowdown)
    runs, chips = phase.runs_per_unit, phase.runs_per_unit * phase.n_chips
    own = _PARTS_OF[work.kind](site, phase, work) if work.kind in _PARTS_OF else iter(())
    for each in (*own, *_delivery(site, work)):
        energy_j = sum((v * _j_per_byte(site, level)[:, None] for level, v in each.bytes.items()), np.zeros((1, 1)))
        energy_j = energy_j + each.lane_ops * site.access.vector_j_per_op[:, None]
        yield Moved(
            each.item, each.layer, work.paid, phase.name, work.name, each.seconds * phase.slowdown * runs,
            {level: values * chips for level, values in each.bytes.items()}, energy_j * saving * chips,
        )  # fmt: skip


def _j_per_byte(site: _Site, level: str) -> FloatArray:
    access = site.access
    return {
        "main_memory": access.dram_j_per_byte, "shared_buffer": access.l2_j_per_byte,
        "arrays": site.delivery_j_per_byte, "scale_up": access.link_j_per_byte, "scale_out": access.link_j_per_byte,
    }[level]  # fmt: skip


_ZERO = np.zeros((1, 1))


def _delivery(site: _Site, work: OperatorWork) -> Iterator[_Part]:
    """Operands broadcast into the arrays: beside computing, so that it takes energy and no time."""
    if work.activity.macs:
        yield _Part("operand_delivery", "unrolling", _ZERO, {"arrays": _array_bytes(work, site.designs)}, _ZERO)


def _gemm_parts(site: _Site, phase: Phase, work: OperatorWork) -> Iterator[_Part]:
    """What a matrix product waits for and moves beside its work."""
    c, done, designs = work.columns, work.activity, site.designs
    constants = phase.calibration.gemm
    code = _computed(site, c["rate_class"])
    rate = class_rates(designs, code)
    parts = tiling_parts(designs, c["m"], c["n"], c["k"], OPERAND_BYTES[code], rate, c["instances"], constants)
    clock = designs.clock_hz[:, None]
    onchip_s = work.count * parts.total_cycles / clock
    converting_s = _lanes_s(designs, done.conversion_ops)
    dram = np.divide(done.dram_bytes, work.count, out=np.zeros_like(done.dram_bytes), where=work.count > 0)
    memory_s = work.count * memory_time_s(dram, designs.memory_bandwidth_bytes_per_s[:, None], constants)
    inside, outside = _weights(onchip_s + converting_s, memory_s, constants.overlap_exponent)
    seconds = {name: work.count * cycles / clock * inside for name, cycles in parts.cycles.items()}
    refetched = buffer_bytes(done)
    spilled = np.maximum(done.dram_bytes - work.count * _missed_weights(c, designs, constants), 0.0)
    yield _Part("operand_broadcast", "unrolling", seconds["operand_wait"], {"shared_buffer": refetched}, _ZERO)
    yield _Part("operand_staging", "unrolling", seconds["staging"], {}, _ZERO)
    yield _Part("array_fill_drain", "unrolling", seconds["fill_drain"], {}, _ZERO)
    yield _Part("cross_group_coordination", "unrolling", seconds["group_coordination"], {}, _ZERO)
    yield _Part("split_k_reduction", "unrolling", seconds["split_k"], {}, _ZERO)
    yield _Part("format_conversion", "operator", converting_s * inside, {}, done.conversion_ops)
    share = np.divide(spilled, done.dram_bytes, out=np.zeros_like(spilled), where=done.dram_bytes > 0)
    yield _Part("activations_through_memory", "operator", memory_s * outside * share, {"main_memory": spilled}, _ZERO)


def _computed(site: _Site, rate_class: FloatArray) -> IntArray:
    """Codes of the classes that compute operands of a class on each design, shape (n_designs, 1)."""
    asked = np.broadcast_to(codes(rate_class), (len(site.promoted), 1))
    return np.asarray(np.take_along_axis(site.promoted, asked, axis=1))


def _missed_weights(c: Mapping[str, FloatArray], designs: DesignBatch, constants: GemmConstants) -> FloatArray:
    """Weights that come from main memory, each once: what no order of operators saves [B]."""
    weights = c["n"] * c["k"] * c["weight_bytes"] * c["instances"]
    footprint = weights + c["instances"] * (c["m"] * c["k"] * c["input_bytes"] + c["m"] * c["n"] * c["output_bytes"])
    store = constants.l2_effective_ratio * effective_l2_bytes(designs)[:, None]
    return weights * miss_fraction(c["copies"] * footprint, store, constants.l2_hit_sharpness_exponent)


def _weights(first: FloatArray, second: FloatArray, exponent: float) -> tuple[FloatArray, FloatArray]:
    """What a second of each of two counts in their smooth maximum, so that both together make it up [1]."""
    larger = np.maximum(np.maximum(first, second), 1e-300)
    a, b = first / larger, second / larger
    busy = (a**exponent + b**exponent) ** (1.0 / exponent)
    return (a / np.maximum(busy, 1e-300)) ** (exponent - 1.0), (b / np.maximum(busy, 1e-300)) ** (exponent - 1.0)


def _lanes_s(designs: DesignBatch, ops: FloatArray) -> FloatArray:
    """Operations of the vector lanes [s]."""
    return np.asarray(ops / (designs.vector_lanes_per_core * designs.n_cores * designs.clock_hz)[:, None])


def _converted(site: _Site, work: OperatorWork) -> tuple[FloatArray, FloatArray]:
    """Seconds of the conversions beside an operator, and what a second of the rest counts."""
    converting_s, total_s = _lanes_s(site.designs, work.activity.conversion_ops), work.activity.time_s
    rest_s = np.cbrt(np.maximum(total_s**FOLD_EXPONENT - converting_s**FOLD_EXPONENT, 0.0))
    rest, own = _weights(rest_s, converting_s, FOLD_EXPONENT)
    return converting_s * own, rest


def _conversion_parts(site: _Site, phase: Phase, work: OperatorWork) -> Iterator[_Part]:
    """Operands that are widened or rounded beside an operator."""
    if work.activity.conversion_ops.any():
        yield _Part("format_conversion", "operator", _converted(site, work)[0], {}, work.activity.conversion_ops)


def _expert_parts(site: _Site, phase: Phase, work: OperatorWork) -> Iterator[_Part]:
    """Rows sorted by expert, moved there and back."""
    yield from _conversion_parts(site, phase, work)
    rest, c = _converted(site, work)[1], work.columns
    up, down = (
        class_rates(site.designs, _computed(site, each))
        for each in (c["rate_class"], c.get("down_class", c["rate_class"]))
    )
    rate = expert_rate(work.op, up, down)
    inside = expert_parts_s(work.op, work.columns, site.designs, rate, phase.calibration)
    seconds = work.count * (inside["sorting"] + inside["moving"]) * rest
    moved = work.count * permuted_expert_bytes(work.columns, phase.calibration)
    yield _Part("expert_permutation", "operator", seconds, {"main_memory": moved}, _ZERO)


def _vector_parts(site: _Site, phase: Phase, work: OperatorWork) -> Iterator[_Part]:
    """Kernels that only move, and roundings of those that compute."""
    item = _named(work.name) or ("gather" if work.op in GATHERS else None)
    if item is None:
        yield from _conversion_parts(site, phase, work)
        return
    done = work.activity
    yield _Part(item, "operator", done.time_s, {"main_memory": done.dram_bytes}, done.vector_ops)


def _collective_parts(site: _Site, phase: Phase, work: OperatorWork) -> Iterator[_Part]:
    """Everything that crosses a link."""
    found = _operator_bytes(work, site.designs)
    links = {level: found[level] for level in ("scale_up", "scale_out")}
    yield _Part(_named(work.name) or COLLECTIVES[work.op], "interconnect", work.activity.time_s, links, _ZERO)


def _named(name: str) -> str | None:
    """What a term moves for, as its name says."""
    return next((item for start, item in NAMED.items() if name.removeprefix("draft_").startswith(start)), None)


_PARTS_OF: Mapping[str, Callable[[_Site, Phase, OperatorWork], Iterator[_Part]]] = {
    "gemm": _gemm_parts,
    "experts": _expert_parts,
    "decode": _conversion_parts,
    "prefill": _conversion_parts,
    "vector": _vector_parts,
    "fused": _conversion_parts,
    "collective": _collective_parts,
}
"""Kind of term -> the items that it has beside the delivery of operands."""
