"""Sizes and cost of movement of one design on each scenario, at its operating point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from explorer.lowering_report import lowering_document
from explorer.problem import Judgement, Problem
from explorer.reshape_report import reshape_document
from explorer.size_report import sizes_document
from models.evaluate import Compiled
from models.evaluation import ScenarioEvaluation
from models.hardware.design import DesignBatch
from models.hardware.figures import chip_figures
from models.metrics.phases import phases_of
from models.operators.factor_tables import FactorTables
from models.technology import Technology
from models.throughput.work import CompiledWork


def with_work_report(problem: Problem, judgement: Judgement, document: dict[str, Any]) -> dict[str, Any]:
    """
    Return the document of one judged design with its sizes, its cost of movement, and the metrics of both.

    Keyed by scenario where there are several.
    """
    chosen = [int(each[0]) for each in judgement.chosen]
    reports = work_report(
        problem.scenarios, chosen, judgement.evaluations, judgement.designs, problem.tables, problem.technology
    )
    parts = parts_of(reports)
    return document | {"metrics": with_reported(document["metrics"], parts.pop("reported_metrics"))} | parts


def with_reported(metrics: Mapping[str, Any], reported: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics of the search beside the reported ones, of several scenarios those of each."""
    if "scenarios" not in metrics:
        return {**metrics, **reported}
    return {**metrics, "scenarios": {name: each | reported[name] for name, each in metrics["scenarios"].items()}}


PARTS = {"sizes": "sizes", "reshape_cost": "reshape_cost", "metrics": "reported_metrics"}
"""Part of a report -> key in a document."""


def parts_of(reports: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Sizes, reshape_cost and reported metrics of the one scenario, or of each by name."""
    parts = {}
    for part, key in PARTS.items():
        by_name = {name: each[part] for name, each in reports.items()}
        parts[key] = by_name if len(by_name) > 1 else next(iter(by_name.values()))
    return parts


def work_report(
    compiled: Sequence[Compiled],
    alternatives: Sequence[int],
    evaluations: Sequence[ScenarioEvaluation],
    designs: DesignBatch,
    tables: FactorTables,
    technology: Technology,
) -> dict[str, dict[str, Any]]:
    """
    Return sizes and reshape_cost of each scenario by its name, each {sizes, reshape_cost, metrics}.

    Parameters
    ----------
    compiled : sequence
        Scenarios.
    alternatives : sequence of int
        Inner choice of the design in each.
    evaluations : sequence of ScenarioEvaluation
        At these choices, arrays of shape (1, 1).
    designs : DesignBatch
        The one design.
    tables : FactorTables
        Shared rows.
    technology : Technology
    """
    access = chip_figures(designs, technology).access
    reports = {}
    for each, chosen, evaluation in zip(compiled, alternatives, evaluations, strict=True):
        phases = phases_of(each, evaluation, np.array([chosen]), designs, access, tables)
        sizes = sizes_document(each.scenario, phases, evaluation, designs, tables)
        moved = reshape_document(each, phases, evaluation, designs, access, technology)
        metrics = sizes.pop("metrics") | moved.pop("metrics")
        if isinstance(each, CompiledWork) and each.kind == "convnet":
            sizes["lowering"] = lowering_document(each, chosen, designs, tables)
        reports[each.name] = {"sizes": sizes, "reshape_cost": moved, "metrics": metrics}
    return reports
