"""Queues the cells of a sweep: each is a study of its own, under an id that the sweep and its place determine."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from sqlalchemy.orm import Session

from explorer.document import StudyError
from explorer.sweep import Cell, SweepDocument, cells, pointing_to_axis, read_sweep
from service.db import sweeps
from service.db.session import Database, reading
from service.db.tables import Sweep
from service.engine import Document, StudyEngine
from service.errors import InvalidRequestError
from service.quotas import require_extent
from service.settings import Settings
from service.stored_inputs import StoredInputs, load_inputs, read_named_study
from service.study_creation import PlannedStudy, queue_planned

QUEUE, PRIORITY = "sweeps", 200


@dataclass(frozen=True)
class PlannedSweep:
    """A checked sweep with all its studies."""

    document: Document
    sweep: SweepDocument
    planned: list[tuple[Cell, PlannedStudy]]


def plan_sweep(database: Database, engine: StudyEngine, settings: Settings, document: Document) -> PlannedSweep:
    """
    Return a sweep ready to be queued. Every study is checked; the first one is prepared, the others by their workers.

    Raises
    ------
    StudyError, InvalidRequestError
        With a pointer to the axis or the field at fault.
    """
    sweep = read_sweep(document, settings.max_sweep_cells)
    grid = list(cells(sweep))
    with reading(database) as session:
        inputs = load_inputs(session, [cell.document for cell in grid])
    planned = []
    for cell in grid:
        try:
            planned.append((cell, _planned_cell(engine, settings, cell, inputs)))
        except (engine.study_error, InvalidRequestError) as error:
            faults = StudyError(list(getattr(error, "errors", [])))
            raise pointing_to_axis(sweep, cell, faults) from error
    return PlannedSweep(document, sweep, planned)


def _planned_cell(engine: StudyEngine, settings: Settings, cell: Cell, inputs: StoredInputs) -> PlannedStudy:
    spec = read_named_study(engine, cell.document, inputs)
    require_extent(engine.extent(spec), settings)
    if getattr(getattr(spec, "search", None), "warm_start", False):
        raise InvalidRequestError("/search/warm_start", "cells of a sweep begin without a warm start")
    problem = engine.prepare(spec, inputs.uploads) if cell.position == 0 else None
    return PlannedStudy(cell.document, spec, problem, inputs, "", None)


def queue_sweep(session: Session, engine: StudyEngine, sweep_id: str, planned: PlannedSweep, owner: str) -> Sweep:
    """Add a sweep and its cells; what is there under these ids stays as it is."""
    row = sweeps.add_sweep(session, sweep_id, planned.sweep.name, planned.document, owner)
    for cell, study in planned.planned:
        study_id = cell_id(sweep_id, cell.position)
        queue_planned(session, engine, study_id, study, owner, QUEUE, PRIORITY)
        sweeps.add_cell(session, sweep_id, cell.position, cell.coordinates, study_id)
    session.flush()
    return row


def cell_id(sweep_id: str, position: int) -> str:
    """Id of a cell's study."""
    return hashlib.sha256(f"{sweep_id}/{position}".encode()).hexdigest()[:32]
