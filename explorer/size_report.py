"""The three sizes side by side: the task, where a design computes well against where the work is, the data it moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from models.checks import FloatArray
from models.evaluation import ScenarioEvaluation
from models.hardware.design import DesignBatch
from models.hardware.rates import RATE_CLASSES
from models.metrics.phases import Phase
from models.metrics.reshape_cost import level_bytes
from models.metrics.size_hit_rate import (
    NEAR_BEST_FRACTION,
    RESOURCES,
    ROWS,
    SIDES,
    Products,
    products_of,
    row_curve,
    size_fit,
    square_curve,
)
from models.operators.factor_tables import FactorTables
from models.serving.scenario import ServingScenario
from models.throughput.scenario import ConvnetScenario, GemmListScenario, TrainingScenario

MAX_LISTED = 20
"""Products listed one by one, those with most of the time first."""

METRIC_OF = {"hit_rate": "size_hit_rate", "typical_to_best": "typical_to_best"}
"""What a size fit says -> key of the metric, that of the binding resource with a suffix."""


def sizes_document(
    scenario: Any, phases: Sequence[Phase], evaluation: ScenarioEvaluation, designs: DesignBatch, tables: FactorTables
) -> dict[str, Any]:
    """
    Return task, compute and data of one design at its operating point.

    Parameters
    ----------
    scenario : ServingScenario, ConvnetScenario, GemmListScenario or TrainingScenario
    phases : sequence of Phase
        Of the one design.
    evaluation : ScenarioEvaluation
        At the chosen alternative, arrays of shape (1, 1).
    designs : DesignBatch
        The one design.
    tables : FactorTables
        Shared rows.

    Returns
    -------
    dict
        task, compute, data and metrics; no compute where the work has no matrix products.
    """
    document = {"task": _task(scenario, evaluation), "data": _data(phases, designs, evaluation), "metrics": {}}
    products = products_of(phases, designs)
    if not products.names or not products.weight_s.any():
        return document
    fit = size_fit(products, designs, tables)
    document["metrics"] = {
        METRIC_OF[part] + suffix: float(getattr(fit, part)[name][0])
        for part in METRIC_OF
        for name, suffix in zip(RESOURCES, ("", "_binding"), strict=True)
    }
    typical = int(fit.typical[0])
    document["compute"] = {
        "best_fraction": {name: float(fit.best[name][0]) for name in RESOURCES},
        "typical": _product(products, typical),
        "curve": _curve(products, typical, designs, tables),
        "curves_of_own_products": _row_curves(phases, products, designs, tables),
        "products": [_product(products, int(i)) for i in np.argsort(-products.weight_s[0], kind="stable")[:MAX_LISTED]],
        "products_time_fraction": _products_time_fraction(phases, products),
    }
    return document


def _product(products: Products, index: int) -> dict[str, Any]:
    """Size, format, share of the work and shares of the peak of one product."""
    sizes = {name: float(getattr(products, name)[0, index]) for name in ("m", "n", "k")}
    return {
        "name": products.names[index],
        **sizes,
        "format": RATE_CLASSES[int(products.rate_class[0, index])],
        "work_fraction": float(products.weight_s[0, index] / products.weight_s[0].sum()),
        **{f"{name}_utilization": float(products.utilization[name][0, index]) for name in RESOURCES},
    }


def _curve(products: Products, typical: int, designs: DesignBatch, tables: FactorTables) -> dict[str, Any]:
    """Share of the peak over the side of square products, and the work over the side of a cube of the same m n k."""
    code = int(products.rate_class[0, typical])
    curve = {name: values[0] for name, values in square_curve(designs, code, tables).items()}
    side = np.cbrt(products.m[0] * products.n[0] * products.k[0])
    good = np.flatnonzero(curve["compute"] >= NEAR_BEST_FRACTION * curve["compute"].max())
    return {
        "format": RATE_CLASSES[code],
        "side": SIDES.tolist(),
        **{f"{name}_utilization": values.tolist() for name, values in curve.items()},
        "work_fraction": _shares(side, products.weight_s[0], SIDES),
        "smallest_good_side": float(SIDES[good[0]]),
    }


def _row_curves(
    phases: Sequence[Phase], products: Products, designs: DesignBatch, tables: FactorTables
) -> list[dict[str, Any]]:
    """Share of the peak over the rows of the products of the network itself, those with most work first."""
    works = {f"{phase.name}.{each.name}": each for phase in phases for each in phase.operators}
    curves: list[dict[str, Any]] = []
    for i in np.argsort(-products.weight_s[0], kind="stable"):
        work = works[products.names[int(i)]]
        if work.kind == "gemm" and len(curves) < 3 and products.weight_s[0, int(i)] > 0:
            used = row_curve(work, 0, designs, tables)
            row = _product(products, int(i))
            curves.append(
                {name: row[name] for name in ("name", "m", "n", "k", "work_fraction")}
                | {"rows": ROWS.tolist()}
                | {f"{name}_utilization": values[0].tolist() for name, values in used.items()}
            )
    return curves


def _shares(values: FloatArray, weight_s: FloatArray, grid: FloatArray) -> list[float]:
    """Share of the weight at the nearest point of a grid, by ratio."""
    edges = np.sqrt(grid[1:] * grid[:-1])
    summed = np.bincount(np.searchsorted(edges, values), weights=weight_s, minlength=len(grid))
    return list((summed / weight_s.sum()).tolist())


def _products_time_fraction(phases: Sequence[Phase], products: Products) -> float:
    """Share of the time in which matrix products run: the rest is attention, lanes, links, the host."""
    found = set(products.names)
    busy = sum(
        float((each.activity.time_s * phase.slowdown * phase.runs_per_unit)[0, 0])
        for phase in phases
        for each in phase.operators
        if f"{phase.name}.{each.name}" in found
    )
    return busy / sum(float(phase.seconds_per_unit[0, 0]) for phase in phases)


def _data(phases: Sequence[Phase], designs: DesignBatch, evaluation: ScenarioEvaluation) -> dict[str, Any]:
    """Bytes at each level for one useful result: an output or trained token, an image, a pass."""
    results = evaluation.tokens_per_unit
    flop = sum(float(phase.flop_per_unit[0, 0]) for phase in phases)
    moved = {name: float(values[0, 0]) for name, values in level_bytes(phases, designs).items()}
    return {
        "flop_per_result": flop / results,
        "bytes_per_result": {name: value / results for name, value in moved.items()},
        "flop_per_byte": {name: flop / value if value else None for name, value in moved.items()},
    }


def _task(scenario: Any, evaluation: ScenarioEvaluation) -> dict[str, Any]:
    return _TASKS[type(scenario)](scenario) | {"results_per_unit": evaluation.tokens_per_unit}


def _serving_task(scenario: ServingScenario) -> dict[str, Any]:
    requests = scenario.requests
    names = (
        "input_tokens",
        "input_p95_tokens",
        "prompt_tokens",
        "output_tokens",
        "output_p95_tokens",
        "context_tokens",
    )
    return {"unit": "request", **{name: getattr(requests, name) for name in names}}


def _convnet_task(scenario: ConvnetScenario) -> dict[str, Any]:
    return {"unit": "image", "batch": scenario.batch, "macs": float(scenario.layers.macs.sum())}


def _gemm_list_task(scenario: GemmListScenario) -> dict[str, Any]:
    return {"unit": "pass", "gemms": float((scenario.gemms.count * scenario.gemms.batch).sum())}


def _training_task(scenario: TrainingScenario) -> dict[str, Any]:
    return {
        "unit": "step",
        "sequence_tokens": scenario.sequence_tokens,
        "global_batch_sequences": scenario.global_batch_sequences,
    }


_TASKS: Mapping[type, Callable[[Any], dict[str, Any]]] = {
    ServingScenario: _serving_task,
    ConvnetScenario: _convnet_task,
    GemmListScenario: _gemm_list_task,
    TrainingScenario: _training_task,
}
