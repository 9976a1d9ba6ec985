"""Answers a what-if evaluation, from the history where the same was asked before."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from service.db import queries
from service.db.session import Database, reading, writing
from service.engine import Document, StudyEngine
from service.stored_inputs import load_inputs


def answer_evaluation(database: Database, engine: StudyEngine, document: Document) -> Document:
    """Return operating point and metrics; no transaction is open while the model works."""
    with reading(database) as session:
        stored = load_inputs(session, document)
        key = answer_key(engine.model_version, [document, sorted(stored.ids)])
        known = queries.find_answer(session, key)
    if known is not None:
        return known
    answer = engine.evaluate_document(document, stored.uploads)
    with writing(database) as session:
        queries.store_answer(session, key, engine.model_version, answer)
    return answer


def answer_key(model_version: str, content: Any) -> str:
    """Hash of the model version and the content of a request, uploads that it names included by their ids."""
    text = json.dumps([model_version, content], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
