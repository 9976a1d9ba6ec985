"""Queries on calibration profiles and measurements that callers sent."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db.rows import Cursor, get_row, newest_first
from service.db.session import clock_s
from service.db.tables import Measurement, StoredProfile

Document = dict[str, Any]


def add_profile(session: Session, profile_id: str, document: Document) -> tuple[StoredProfile, bool]:
    """Store a profile under the hash of its content and return it, and whether it is new."""
    known = session.get(StoredProfile, profile_id)
    if known is not None:
        return known, False
    row = StoredProfile(
        id=profile_id, name=document["name"], device=document["device"], document=document,
        created_at_s=clock_s(session),
    )  # fmt: skip
    session.add(row)
    session.flush()
    return row, True


def find_profiles(session: Session, names: Collection[str]) -> dict[str, Document]:
    """Return id or name -> document of stored profiles; of equal names the newest."""
    rows = session.scalars(
        sa.select(StoredProfile)
        .where(StoredProfile.id.in_(names) | StoredProfile.name.in_(names))
        .order_by(StoredProfile.created_at_s, StoredProfile.id)
    )
    found: dict[str, Document] = {}
    for row in rows:
        found[row.name] = found[row.id] = row.document
    return found


def get_profile(session: Session, profile_id: str) -> StoredProfile:
    """Return a stored profile, or raise NotFoundError."""
    return get_row(session, StoredProfile, "profile", profile_id)


def list_profiles(session: Session, before: Cursor | None, limit: int) -> list[StoredProfile]:
    """Return stored profiles, newest first, that come after a cursor."""
    return newest_first(session, StoredProfile, sa.select(StoredProfile), before, limit)


def delete_profile(session: Session, profile_id: str) -> None:
    """Remove a stored profile; studies keep what they were given."""
    session.delete(get_profile(session, profile_id))


def add_measurements(session: Session, rows: Sequence[Document]) -> int:
    """Store measured rows at the database's time and return how many."""
    now = clock_s(session)
    session.execute(sa.insert(Measurement), [{**row, "created_at_s": now} for row in rows])
    return len(rows)


def list_measurements(
    session: Session, device: str | None, family: str | None, after: int, limit: int
) -> list[Measurement]:
    """Return measurements in order of arrival behind the cursor `after`."""
    query = sa.select(Measurement).where(Measurement.id > after).order_by(Measurement.id)
    if device is not None:
        query = query.where(Measurement.device == device)
    if family is not None:
        query = query.where(Measurement.family == family)
    return list(session.scalars(query.limit(limit)))


def error_trend(session: Session, device: str | None, family: str | None) -> list[Document]:
    """Return the errors of the predictions of the time, by version of the model, device and family."""
    error = sa.func.abs(Measurement.predicted_s / Measurement.measured_s - 1.0)
    query = sa.select(
        Measurement.model_version, Measurement.device, Measurement.family, sa.func.count().label("rows"),
        sa.func.avg(error).label("mape"),
        sa.func.avg(Measurement.predicted_s / Measurement.measured_s - 1.0).label("mean_error"),
        sa.func.min(Measurement.created_at_s).label("first_at_s"),
        sa.func.max(Measurement.created_at_s).label("last_at_s"),
    )  # fmt: skip
    if device is not None:
        query = query.where(Measurement.device == device)
    if family is not None:
        query = query.where(Measurement.family == family)
    keys = (Measurement.model_version, Measurement.device, Measurement.family)
    rows = session.execute(query.group_by(*keys).order_by(sa.func.min(Measurement.created_at_s), *keys))
    return [dict(row) for row in rows.mappings()]
