"""Queries on sweeps and their cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db import queries
from service.db.queries import UNFINISHED_STATES
from service.db.rows import ConflictError, Cursor, get_row, newest_first
from service.db.session import clock_s
from service.db.tables import Study, Sweep, SweepCell

Document = dict[str, Any]


@dataclass(frozen=True)
class CellRow:
    """One cell: where it is, how far its study is, and what that recommends."""

    position: int
    coordinates: tuple[int, ...]
    study_id: str
    name: str
    state: str
    trials_done: int
    error: str | None
    metrics: Document | None
    design: Document | None


def add_sweep(session: Session, sweep_id: str, name: str, document: Document, owner: str) -> Sweep:
    """Add a sweep without cells; one that is there under this id is returned as it is."""
    known = session.get(Sweep, sweep_id)
    if known is None:
        known = Sweep(id=sweep_id, name=name, owner=owner, document=document, created_at_s=clock_s(session))
        session.add(known)
        session.flush()
    return known


def add_cell(session: Session, sweep_id: str, position: int, coordinates: Sequence[int], study_id: str) -> None:
    """Add a cell; one that is there stays."""
    if session.get(SweepCell, (sweep_id, position)) is None:
        session.add(SweepCell(sweep_id=sweep_id, position=position, coordinates=list(coordinates), study_id=study_id))


def get_sweep(session: Session, sweep_id: str) -> Sweep:
    """Return the sweep, or raise NotFoundError."""
    return get_row(session, Sweep, "sweep", sweep_id)


def list_sweeps(session: Session, before: Cursor | None, limit: int) -> list[Sweep]:
    """Return sweeps, newest first, that come after a cursor."""
    return newest_first(session, Sweep, sa.select(Sweep), before, limit)


def cell_rows(session: Session, sweep_id: str) -> list[CellRow]:
    """Return every cell of a sweep whose study is still there, in the order of the grid."""
    metrics = Study.result[("recommended", "metrics")]
    design = Study.result[("recommended", "design")]
    query = sa.select(
        SweepCell.position, SweepCell.coordinates, SweepCell.study_id, Study.name, Study.state, Study.trials_done,
        Study.error, metrics, design,
    )  # fmt: skip
    query = query.join(Study, Study.id == SweepCell.study_id).where(SweepCell.sweep_id == sweep_id)
    rows = session.execute(query.order_by(SweepCell.position))
    return [CellRow(row[0], tuple(row[1]), *row[2:]) for row in rows]


def count_cells(session: Session, sweep_ids: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return, for each sweep, the number of its cells in each state that occurs."""
    query = sa.select(SweepCell.sweep_id, Study.state, sa.func.count()).join(Study, Study.id == SweepCell.study_id)
    query = query.where(SweepCell.sweep_id.in_(sweep_ids)).group_by(SweepCell.sweep_id, Study.state)
    counts: dict[str, dict[str, int]] = {each: {} for each in sweep_ids}
    for sweep_id, state, count in session.execute(query):
        counts[sweep_id][state] = count
    return counts


def cancel_sweep(session: Session, sweep_id: str) -> None:
    """Cancel every cell that has not ended; what was found stays."""
    for study_id in _studies_of(session, sweep_id, UNFINISHED_STATES):
        queries.cancel_study(session, study_id)


def delete_sweep(session: Session, sweep_id: str) -> None:
    """Remove a finished sweep with the studies of its cells."""
    get_sweep(session, sweep_id)
    unfinished = _studies_of(session, sweep_id, UNFINISHED_STATES)
    if unfinished:
        raise ConflictError(f"sweep '{sweep_id}' has {len(unfinished)} unfinished cells: cancel it before deleting it")
    for study_id in _studies_of(session, sweep_id, queries.FINISHED_STATES):
        queries.delete_study(session, study_id)
    session.execute(sa.delete(SweepCell).where(SweepCell.sweep_id == sweep_id))
    session.execute(sa.delete(Sweep).where(Sweep.id == sweep_id))


def _studies_of(session: Session, sweep_id: str, states: Sequence[str]) -> list[str]:
    query = sa.select(Study.id).join(SweepCell, SweepCell.study_id == Study.id)
    query = query.where(SweepCell.sweep_id == sweep_id, Study.state.in_(states))
    return list(session.scalars(query.order_by(Study.id)))
