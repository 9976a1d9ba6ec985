"""Queries on the shards of a proof: what each has found."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db.tables import ShardOutcome, Study

Document = dict[str, Any]


def store_outcome(session: Session, study_id: str, shard: int, outcome: Document) -> None:
    """Store what a shard has found; one that is there stays, so that a shard which ran twice changes nothing."""
    if session.get(Study, study_id) is not None and session.get(ShardOutcome, (study_id, shard)) is None:
        session.add(ShardOutcome(study_id=study_id, shard=shard, outcome=outcome))


def has_outcome(session: Session, study_id: str, shard: int) -> bool:
    """Whether a shard has reported."""
    return session.get(ShardOutcome, (study_id, shard)) is not None


def outcomes_before(session: Session, study_id: str, count: int) -> list[Document] | None:
    """Outcomes of the first `count` shards in order; None while one is missing."""
    query = sa.select(ShardOutcome.outcome).where(ShardOutcome.study_id == study_id, ShardOutcome.shard < count)
    found = list(session.scalars(query.order_by(ShardOutcome.shard)))
    return found if len(found) == count else None


def drop_outcomes(session: Session, study_id: str) -> None:
    """Forget every shard of a study."""
    session.execute(sa.delete(ShardOutcome).where(ShardOutcome.study_id == study_id))
