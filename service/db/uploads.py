"""Queries on uploaded workloads and networks, and on the studies that read them."""

from __future__ import annotations

import gzip
from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session, undefer

from service.db.rows import ConflictError, Cursor, NotFoundError, newest_first
from service.db.session import clock_s
from service.db.tables import StudyInput, UploadedNetwork, UploadedWorkload

Document = dict[str, Any]

MOST_NETWORKS = 1000
"""Uploaded networks that a server keeps: they are listed on one page with the catalogue."""


def find_workload(session: Session, workload_id: str) -> UploadedWorkload | None:
    """Return the workload with its inspection and without its content, None where there is none of this id."""
    return session.get(UploadedWorkload, workload_id, options=[undefer(UploadedWorkload.inspection)])


def get_workload(session: Session, workload_id: str) -> UploadedWorkload:
    """Return the workload with its inspection, or raise NotFoundError."""
    workload = find_workload(session, workload_id)
    if workload is None:
        raise NotFoundError(f"unknown workload '{workload_id}'")
    return workload


def add_workload(session: Session, content: bytes, fields: Document) -> bool:
    """Store a workload and return whether it is new; of two writers of the same content the second changes nothing."""
    packed = gzip.compress(content, compresslevel=1, mtime=0)
    values = {**fields, "packed": packed, "size_bytes": len(content), "created_at_s": clock_s(session)}
    return _added(session, UploadedWorkload, values)


def list_workloads(session: Session, before: Cursor | None, limit: int) -> list[UploadedWorkload]:
    """Return workloads without content, newest first, that come after a cursor."""
    return newest_first(session, UploadedWorkload, sa.select(UploadedWorkload), before, limit)


def delete_workload(session: Session, workload_id: str) -> None:
    """Remove a workload that no study reads."""
    if not _locked(session, UploadedWorkload, [workload_id]):
        raise NotFoundError(f"unknown workload '{workload_id}'")
    _require_unread(session, "workload", workload_id)
    session.execute(sa.delete(UploadedWorkload).where(UploadedWorkload.id == workload_id))


def workload_contents(session: Session, ids: Collection[str]) -> list[tuple[UploadedWorkload, bytes]]:
    """Return those of the workloads that are stored, each with its content."""
    if not ids:
        return []
    query = sa.select(UploadedWorkload).where(UploadedWorkload.id.in_(ids)).options(undefer(UploadedWorkload.packed))
    return [(row, gzip.decompress(row.packed)) for row in session.scalars(query)]


def list_networks(session: Session) -> list[UploadedNetwork]:
    """Return every uploaded network by name."""
    return list(session.scalars(sa.select(UploadedNetwork).order_by(UploadedNetwork.name)))


def networks_named(session: Session, names: Collection[str]) -> list[UploadedNetwork]:
    """Return the uploaded networks with one of these names or ids."""
    if not names:
        return []
    named = UploadedNetwork.name.in_(names) | UploadedNetwork.id.in_(names)
    return list(session.scalars(sa.select(UploadedNetwork).where(named)))


def add_network(session: Session, fields: Document) -> bool:
    """
    Store a network and return whether it is new.

    Raises
    ------
    ConflictError
        If its name stands for another configuration, or the server keeps as many networks as it may.
    """
    known = session.scalar(sa.select(UploadedNetwork).where(UploadedNetwork.name == fields["name"]))
    if known is not None and known.id != fields["id"]:
        raise ConflictError(f"network '{known.name}' is there with another configuration: choose another name")
    stored = session.scalar(sa.select(sa.func.count()).select_from(UploadedNetwork)) or 0
    if known is None and stored >= MOST_NETWORKS:
        raise ConflictError(f"uploaded networks must be at most {MOST_NETWORKS}: delete one that no study reads")
    return _added(session, UploadedNetwork, {**fields, "created_at_s": clock_s(session)})


def delete_network(session: Session, name: str) -> None:
    """Remove a network, by id or name, that no study reads."""
    found = networks_named(session, [name])
    if not found:
        raise NotFoundError(f"unknown uploaded network '{name}'")
    _locked(session, UploadedNetwork, [found[0].id])
    _require_unread(session, "network", found[0].id)
    session.execute(sa.delete(UploadedNetwork).where(UploadedNetwork.id == found[0].id))


def note_inputs(session: Session, study_id: str, input_ids: Sequence[str]) -> None:
    """
    Note what a study reads, so that it is kept as long as the study.

    Raises
    ------
    ConflictError
        If some of it was deleted meanwhile.
    """
    wanted = set(input_ids)
    there = {each for table in (UploadedWorkload, UploadedNetwork) for each in _locked(session, table, wanted)}
    if wanted - there:
        raise ConflictError(f"'{min(wanted - there)}' has just been deleted")
    dialect = postgresql if session.get_bind().dialect.name == "postgresql" else sqlite
    rows = [{"study_id": study_id, "input_id": each} for each in sorted(wanted)]
    if rows:
        session.execute(dialect.insert(StudyInput).values(rows).on_conflict_do_nothing())


def _require_unread(session: Session, kind: str, input_id: str) -> None:
    readers = session.scalar(sa.select(sa.func.count()).where(StudyInput.input_id == input_id)) or 0
    if readers:
        studies = "a study reads" if readers == 1 else f"{readers} studies read"
        raise ConflictError(f"{kind} '{input_id}' cannot be deleted: {studies} it")


def _added(session: Session, table: type[UploadedWorkload] | type[UploadedNetwork], values: Document) -> bool:
    dialect = postgresql if session.get_bind().dialect.name == "postgresql" else sqlite
    statement = dialect.insert(table).values(values).on_conflict_do_nothing(index_elements=["id"])
    return bool(session.execute(statement.returning(table.id)).first())


def _locked(session: Session, table: type[UploadedWorkload] | type[UploadedNetwork], ids: Collection[str]) -> list[str]:
    """Return those of the ids that are there, locked, so that reading and deleting do not cross."""
    return list(session.scalars(sa.select(table.id).where(table.id.in_(ids)).with_for_update()))
