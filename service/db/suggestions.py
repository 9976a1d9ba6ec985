"""Queries on trials that are judged elsewhere: leased to a client, taken back when the lease ends, done or failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db.design_rows import insert_designs
from service.db.queries import add_event, end_study, locked_study
from service.db.rows import ConflictError, NotFoundError, StaleError
from service.db.session import clock_s
from service.db.tables import Study, Suggestion

LEASED, DONE, FAILED = "leased", "done", "failed"


def begin_outside_study(session: Session, study: Study, n_trials: int) -> None:
    """Turn a queued study that nobody here runs into a running one."""
    if study.state == "queued":
        study.state = "running"
        study.chunks_planned = n_trials
        study.started_at_s = study.started_at_s or clock_s(session)
        study.version += 1
        add_event(session, study, f"running-{study.attempt}", "state")


def lease_known(session: Session, study_id: str, client: str, lease_s: float, count: int) -> list[Suggestion]:
    """Renew a client's own leases, then give it trials whose lease has ended, up to `count`; the study gets locked."""
    _running_study(session, study_id)
    now_s = clock_s(session)
    rows = session.scalars(_of_study(study_id).where(Suggestion.state == LEASED)).all()
    own = [row for row in rows if row.client == client and row.lease_expires_at_s > now_s]
    returned = [row for row in rows if row.lease_expires_at_s <= now_s]
    taken = [*own, *returned][:count]
    for row in taken:
        row.leases += row.client != client or row.lease_expires_at_s <= now_s
        row.client, row.lease_expires_at_s = client, now_s + lease_s
    session.flush()
    return taken


def lease_new(
    session: Session, study_id: str, client: str, lease_s: float, first: int, proposals: Sequence[tuple[Any, Any]]
) -> list[Suggestion]:
    """
    Hand out new trials with numbers from `first` on; the study gets locked.

    Raises
    ------
    StaleError
        If another client was given trials since these were proposed.
    """
    _running_study(session, study_id)
    if count_suggested(session, study_id) != first:
        raise StaleError(f"study '{study_id}' has handed out other trials meanwhile")
    expires_at_s = clock_s(session) + lease_s
    rows = [
        Suggestion(
            study_id=study_id, number=first + i, state=LEASED, client=client, leases=1,
            lease_expires_at_s=expires_at_s, params=params, design=design, failure=None,
        )
        for i, (params, design) in enumerate(proposals)
    ]  # fmt: skip
    session.add_all(rows)
    session.flush()
    return rows


def count_suggested(session: Session, study_id: str) -> int:
    """Number of trials handed out so far."""
    query = sa.select(sa.func.count()).select_from(Suggestion).where(Suggestion.study_id == study_id)
    return session.scalar(query) or 0


def without_figures(session: Session, study_id: str) -> list[dict[str, Any]]:
    """Return the parameters of trials that are away or have failed, by number."""
    query = sa.select(Suggestion.params).where(Suggestion.study_id == study_id, Suggestion.state != DONE)
    return list(session.scalars(query.order_by(Suggestion.number)))


def owned(session: Session, study_id: str, client: str, numbers: Sequence[int]) -> dict[int, Suggestion]:
    """
    Return trials whose results a client may bring now; the study gets locked.

    Raises
    ------
    NotFoundError
        If a trial was never handed out.
    ConflictError
        If its lease has ended or is another client's, or the study does not run.
    """
    _running_study(session, study_id)
    now_s = clock_s(session)
    found = {row.number: row for row in session.scalars(_of_study(study_id).where(Suggestion.number.in_(numbers)))}
    for number in numbers:
        row = found.get(number)
        if row is None:
            raise NotFoundError(f"trial {number} of study '{study_id}' was never suggested")
        if row.state != LEASED:
            raise ConflictError(f"trial {number} is {row.state} already")
        if row.client != client:
            raise ConflictError(f"trial {number} is leased to client '{row.client}', not to '{client}'")
        if row.lease_expires_at_s <= now_s:
            raise ConflictError(f"the lease of trial {number} expired {now_s - row.lease_expires_at_s:.1f} s ago")
    return found


def record_results(
    session: Session, study_id: str, records: Sequence[dict[str, Any]], failures: dict[int, str]
) -> Study:
    """Write what came back of a locked study, with one event; those trials are away no more."""
    study = locked_study(session, study_id)
    done = [record["number"] for record in records]
    _set_state(session, study_id, done, DONE)
    for number, reason in failures.items():
        _set_state(session, study_id, [number], FAILED, reason)
    insert_designs(session, study_id, study.chunks_done, records)
    study.chunks_done += len(done) + len(failures)
    study.trials_done += len(done)
    study.feasible_done += sum(bool(record["feasible"]) for record in records)
    study.busy_s = clock_s(session) - (study.started_at_s or 0.0)
    study.version += 1
    add_event(session, study, f"trials-{study.chunks_done}", "progress")
    return study


def end_outside_study(session: Session, study: Study, result: dict[str, Any]) -> None:
    """Store the result of a study all of whose trials are back."""
    study.result = {**result, "wall_s": study.busy_s}
    end_study(session, study, "succeeded")


def _set_state(session: Session, study_id: str, numbers: Sequence[int], state: str, failure: str | None = None) -> None:
    named = sa.update(Suggestion).where(Suggestion.study_id == study_id, Suggestion.number.in_(numbers))
    session.execute(named.values(state=state, failure=failure))


def _of_study(study_id: str) -> sa.Select[Suggestion]:
    return sa.select(Suggestion).where(Suggestion.study_id == study_id).order_by(Suggestion.number)


def _running_study(session: Session, study_id: str) -> Study:
    study = locked_study(session, study_id)
    if study.state != "running":
        raise ConflictError(f"study '{study_id}' is {study.state} and takes no results")
    return study
