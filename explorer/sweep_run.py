"""A whole sweep in this process: what `chipfit sweep` does without a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from explorer.document import StudyError
from explorer.inputs import Inputs
from explorer.run import explore_study
from explorer.sweep import (
    Cell,
    SweepDocument,
    axes_document,
    cells,
    heat_map,
    objective_metrics,
    pointing_to_axis,
    read_sweep,
)

MOST_CELLS = 1000

Report = Callable[[int, int], None]
"""Told how many cells are done, of how many."""


def explore_sweep(document: Any, inputs: Inputs, report: Report) -> dict[str, Any]:
    """
    Return what every cell of a sweep recommends, and a heat map of each objective.

    Parameters
    ----------
    document : dict
        As read from YAML or JSON.
    inputs : Path or Uploads, optional
        Where files and networks named by the study lie.
    report : callable
        Told the progress after every cell.

    Raises
    ------
    StudyError
        With a pointer to the axis or the field at fault.
    """
    sweep = read_sweep(document, MOST_CELLS)
    grid = list(cells(sweep))
    found = []
    for cell in grid:
        found.append(_explored(sweep, cell, inputs))
        report(len(found), len(grid))
    metrics = objective_metrics(sweep)
    return {
        "name": sweep.name,
        "axes": axes_document(sweep),
        "metrics": metrics,
        "cells": found,
        "heat_maps": [heat_map(sweep, _values(found, metric), metric) for metric in metrics],
    }


def _explored(sweep: SweepDocument, cell: Cell, inputs: Inputs) -> dict[str, Any]:
    try:
        result = explore_study(cell.document, inputs, lambda done, of: None)
    except StudyError as error:
        raise pointing_to_axis(sweep, cell, error) from error
    best = result["recommended"]
    return {
        "coordinates": list(cell.coordinates),
        "feasible": best is not None,
        "binding_limit": result.get("binding_limit"),
        "design": None if best is None else best["design"],
        "operating_point": None if best is None else best["operating_point"],
        "metrics": None if best is None else best["metrics"],
        "certificate": result["certificate"],
        "evaluated": result["evaluated"],
        "wall_s": result["wall_s"],
    }


def _values(found: list[dict[str, Any]], metric: str) -> dict[tuple[int, ...], float | None]:
    return {tuple(each["coordinates"]): (each["metrics"] or {}).get(metric) for each in found}
