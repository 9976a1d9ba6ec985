"""Studies that are judged elsewhere: created, handed out trial by trial, and brought to their result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy.orm import Session

from explorer.outside import (
    OutsideProblem,
    Proposal,
    is_outside,
    outside_record,
    outside_result,
    prepare_outside,
    propose_outside,
)
from explorer.records import record_from_json
from service.db import queries, suggestions
from service.db.rows import ConflictError, StaleError
from service.db.session import Database, reading, writing
from service.db.tables import Study, Suggestion
from service.engine import Document, Extent
from service.schemas.suggestions import TrialOutcome

_TRIES = 20


def outside_extent(problem: OutsideProblem) -> Extent:
    """How much such a study asks for."""
    return Extent(problem.document.search.trials, 0.0, float(problem.space.n_designs))


def create_outside_study(
    session: Session, study_id: str, problem: OutsideProblem, document: Document, model_version: str, owner: str
) -> Study:
    """Add a study that runs as soon as somebody asks for its trials."""
    study = queries.create_study(session, study_id, problem.document.name, document, model_version, owner)
    suggestions.begin_outside_study(session, study, problem.n_trials)
    return study


def suggest(database: Database, study_id: str, client: str, count: int) -> list[Suggestion]:
    """
    Return up to `count` trials for a client: its own first, then returned ones, then new ones.

    Nothing is locked while the sampler works: where another client was quicker, it is asked again.
    """
    problem = _problem(database, study_id)
    lease_s = problem.document.search.lease
    with writing(database) as session:
        known = suggestions.lease_known(session, study_id, client, lease_s, count)
    for _ in range(_TRIES):
        if len(known) >= count:
            return known
        with reading(database) as session:
            records = [record_from_json(row) for row in queries.records_before(session, study_id)]
            away = suggestions.without_figures(session, study_id)
        proposals = propose_outside(problem, records, away, count - len(known))
        pairs = [(each.params, each.design) for each in proposals]
        try:
            with writing(database) as session:
                first = len(records) + len(away)
                return [*known, *suggestions.lease_new(session, study_id, client, lease_s, first, pairs)]
        except StaleError:
            continue
    raise ConflictError(f"too many clients ask study '{study_id}' for trials at once")


def complete(session: Session, study_id: str, client: str, outcomes: Sequence[TrialOutcome]) -> Study:
    """Take results in, all or none; the last ones end the study."""
    problem = prepare_outside(_document(queries.get_study(session, study_id)))
    rows = suggestions.owned(session, study_id, client, [outcome.number for outcome in outcomes])
    records, failures = [], {}
    for i, outcome in enumerate(outcomes):
        if outcome.failure is not None:
            failures[outcome.number] = outcome.failure
            continue
        row = rows[outcome.number]
        proposal = Proposal(row.params, row.design)
        pointer = f"/trials/{i}"
        records.append(
            outside_record(problem, row.number, proposal, outcome.metrics, outcome.constraints, pointer).as_json()
        )
    study = suggestions.record_results(session, study_id, records, failures)
    if study.chunks_done >= problem.n_trials:
        suggestions.end_outside_study(session, study, _result(session, study_id, problem))
    return study


def result_so_far(session: Session, study: Study) -> Document:
    """The result of the trials that are back."""
    return _result(session, study.id, prepare_outside(study.document))


def _result(session: Session, study_id: str, problem: OutsideProblem) -> Document:
    records = [record_from_json(row) for row in queries.records_before(session, study_id)]
    return outside_result(problem, records)


def _problem(database: Database, study_id: str) -> OutsideProblem:
    with reading(database) as session:
        return prepare_outside(_document(queries.get_study(session, study_id)))


def _document(study: Study) -> Any:
    if not is_outside(study.document):
        raise ConflictError(f"study '{study.id}' is judged here: its document does not say 'evaluator: outside'")
    return study.document
