"""Explanations of designs that a study has judged, or of a chip on its work."""

from __future__ import annotations

from explorer.explanation.asked import Asked
from explorer.outside import is_outside
from service.db import queries
from service.db.rows import ConflictError
from service.db.session import Database, reading
from service.engine import Document
from service.jobs.runner import StudyRunner


def explain_study(database: Database, runner: StudyRunner, study_id: str, asked: Asked) -> Document:
    """Return the state of a study and the explanation; no transaction is open while the model works."""
    with reading(database) as session:
        study = queries.get_study(session, study_id)
        if is_outside(study.document):
            raise ConflictError("trials of outside evaluators are not explained: the model did not judge them")
        state = study.state
    return {"state": state, **runner.explanation(study_id, asked)}
