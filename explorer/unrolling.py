"""The same machine cut into other arrays: which unrolling serves a piece of work best as its scale grows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from explorer.document import StudyError
from explorer.problem import Problem
from explorer.space import full_space
from models.checks import BoolArray, FloatArray
from models.evaluate import Compiled, compile_scenario, evaluate
from models.hardware.area import die_area_mm2
from models.hardware.arrays import accumulators_per_array, operand_bandwidth_bytes_per_s, outputs_to_fill
from models.hardware.design import DesignBatch, Stationarity, macs_per_cycle_per_core, replace, take
from models.hardware.energy import operand_bytes_per_mac
from models.serving.steady import CompiledServing
from models.throughput.scenario import ConvnetScenario

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Images of a batch, or sequences of a micro-batch, at which unrollings are compared."""

TOTALS = ("scratchpad_bytes_per_core", "noc_bytes_per_cycle_per_core", "vector_lanes_per_core")
"""What a core has and the chip keeps as a whole, however many cores it is cut into."""

MOST_ARRAYS_PER_CORE = 64


def unrolling_document(problem: Problem, designs: DesignBatch) -> dict[str, Any]:
    """
    Return the work of each scenario on the design and on the same peak cut into the other arrays of the full space.

    Products a cycle, clock, memories, ports, lanes and links of the chip stay; only the unrolling changes. An inner
    product (array_k above 1) keeps the outputs of few elements, an outer product those of many.

    Returns
    -------
    dict
        shapes: what each asks for and takes; scenarios by name: units_per_s and energy_per_unit_j of every shape at
        every scale, the best shape of each scale in rate, rate per area and rate per energy, and where the kind of
        that best in rate flips.

    Raises
    ------
    StudyError
        If the peak is smaller than that of any array.
    """
    cut = same_peak(designs)
    if not cut.n_designs:
        raise StudyError(
            [{"pointer": "/unrolling", "detail": "needs a peak that some array of the full space divides"}]
        )
    return {
        "macs_per_cycle": float((macs_per_cycle_per_core(designs) * designs.n_cores)[0]),
        "shapes": _shapes(cut, problem),
        "scenarios": {each.name: _scenario(problem, each, cut) for each in problem.scenarios},
    }


def same_peak(designs: DesignBatch) -> DesignBatch:
    """
    Return the one design with its products a cycle in each array shape of the full space that divides them.

    A shape that gives fewer arrays than the design has cores makes fewer cores, each with its share of what the chip
    has in all.
    """
    total = float((macs_per_cycle_per_core(designs) * designs.n_cores)[0])
    shapes = np.array(full_space()["array_shape"], dtype=np.float64)
    arrays = total / shapes.prod(axis=1)
    fits = (arrays >= 1) & (arrays == np.floor(arrays))
    shapes, arrays = shapes[fits], arrays[fits]
    own = float(designs.n_cores[0])
    cores = np.where(arrays % own == 0, own, arrays)
    copies = take(designs, np.zeros(len(shapes), dtype=np.int64))
    shared = {name: getattr(copies, name) * own / cores for name in TOTALS}
    return replace(
        copies, array_m=shapes[:, 0], array_n=shapes[:, 1], array_k=shapes[:, 2], n_cores=cores,
        arrays_per_core=arrays / cores, **shared,
    )  # fmt: skip


def _shapes(cut: DesignBatch, problem: Problem) -> list[dict[str, Any]]:
    """What each shape asks of the memories around it, and takes on the die."""
    columns = {
        "array_m": cut.array_m, "array_n": cut.array_n, "array_k": cut.array_k, "n_cores": cut.n_cores,
        "arrays_per_core": cut.arrays_per_core,
        "area_mm2": die_area_mm2(cut, problem.technology),
        "operand_bandwidth_bytes_per_s": operand_bandwidth_bytes_per_s(cut),
        "operand_bytes_per_mac": operand_bytes_per_mac(cut, "bf16"),
        "accumulators": accumulators_per_array(cut) * cut.arrays_per_core * cut.n_cores,
        "outputs_to_fill": outputs_to_fill(cut),
    }  # fmt: skip
    return [
        {"kind": _kind(cut, i)} | {name: float(values[i]) for name, values in columns.items()}
        for i in range(cut.n_designs)
    ]


def _kind(cut: DesignBatch, index: int) -> str:
    return "inner_product" if cut.array_k[index] > 1 else "outer_product"


def _scenario(problem: Problem, compiled: Compiled, cut: DesignBatch) -> dict[str, Any]:
    """Rates of one scenario at every scale, each shape at its better stationarity and best inner choices."""
    scales, rates, energies_j = [], [], []
    for scale, work, allowed in _scales(compiled):
        rate, energy_j = _best_rates(problem, work, allowed, cut)
        scales.append(scale)
        rates.append(rate)
        energies_j.append(energy_j)
    table, area = np.array(rates), die_area_mm2(cut, problem.technology)
    best = {"": table, "_per_mm2": table / area, "_per_j": 1.0 / np.array(energies_j)}
    kinds = [_kind(cut, int(i)) for i in table.argmax(axis=1)]
    return {
        "scale": "batch" if len(scales) > 1 else "workload",
        "scales": scales,
        "units_per_s": {_shape_name(cut, i): table[:, i].tolist() for i in range(cut.n_designs)},
        "energy_per_unit_j": {_shape_name(cut, i): np.array(energies_j)[:, i].tolist() for i in range(cut.n_designs)},
        **{f"best_shape{by}": [_shape_name(cut, int(i)) for i in v.argmax(axis=1)] for by, v in best.items()},
        "best_kind": kinds,
        "flips_at": [scales[i] for i in range(1, len(kinds)) if kinds[i] != kinds[i - 1]],
    }


def _shape_name(cut: DesignBatch, index: int) -> str:
    return "x".join(f"{getattr(cut, name)[index]:.0f}" for name in ("array_m", "array_n", "array_k"))


def _scales(compiled: Compiled) -> Iterator[tuple[int, Compiled, BoolArray | None]]:
    """Each scale of the work: compiled for it, and the alternatives that belong to it (None for all)."""
    scenario = compiled.scenario
    if isinstance(scenario, ConvnetScenario):
        for batch in BATCHES:
            yield batch, compile_scenario(dataclasses.replace(scenario, batch=batch)), None
    elif isinstance(compiled, CompiledServing):
        batches = compiled.choices.batch
        for batch in (b for b in BATCHES if np.any(batches == b)):
            yield batch, compiled, batches == batch
    else:
        yield 1, compiled, None


def _best_rates(
    problem: Problem, compiled: Compiled, allowed: BoolArray | None, cut: DesignBatch
) -> tuple[FloatArray, FloatArray]:
    """Rate and energy of each shape at its best stationarity and inner choice whose memory holds, (n_shapes,)."""
    kept = [replace(cut, stationarity=float(kind)) for kind in (Stationarity.OUTPUT, Stationarity.WEIGHT)]
    found = []
    for designs in kept:
        (whole,) = evaluate(designs, designs, [compiled], problem.tables, technology=problem.technology)
        fits = np.broadcast_to(whole.violations["memory_capacity"] <= 0, whole.units_per_s.shape)
        fits = fits if allowed is None else fits & allowed
        rate = np.where(fits, whole.units_per_s, 0.0)
        place = rate.argmax(axis=1)[:, None]
        energy_j = np.broadcast_to(whole.energy_per_unit_j, rate.shape)
        found.append([np.take_along_axis(values, place, axis=1)[:, 0] for values in (rate, energy_j)])
    first, second = found
    better = second[0] > first[0]
    rate, energy_j = (np.where(better, b, a) for a, b in zip(first, second, strict=True))
    return rate, energy_j
