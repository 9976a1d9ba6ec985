"""Answers what-if evaluations, from the history where the same was asked before under this version of the model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from explorer.inputs import Uploads
from service.db import queries
from service.db.history import HistoryRow
from service.db.session import Database, reading, writing
from service.engine import Document, StudyEngine
from service.errors import InvalidRequestError
from service.stored_inputs import load_inputs


def answer_evaluation(database: Database, engine: StudyEngine, document: Document) -> Document:
    """Return operating point and metrics; no transaction is open while the model works."""
    with reading(database) as session:
        uploads = load_inputs(session, document).uploads
        key = answer_key(engine, document, uploads)
        known = queries.find_answers(session, [] if key is None else [key])
    if key is None:
        return engine.evaluate_document(document, uploads)
    if key in known:
        return {**known[key], "from_history": True}
    answer = engine.evaluate_document(document, uploads)
    with writing(database) as session:
        queries.store_answers(session, engine.model_version, {key: answer})
    return {**answer, "from_history": False}


def answer_batch(database: Database, engine: StudyEngine, document: Document, max_designs: int) -> Document:
    """Return what many designs do on one workload; it is not kept, since only its workload is likely to come again."""
    if isinstance(document["designs"], list) and len(document["designs"]) > max_designs:
        raise InvalidRequestError("/designs", f"must be at most {max_designs} designs, got {len(document['designs'])}")
    with reading(database) as session:
        uploads = load_inputs(session, document).uploads
    return engine.evaluate_batch(document, uploads)


def reevaluate_designs(
    database: Database, engine: StudyEngine, study: Document, rows: Sequence[HistoryRow]
) -> Document:
    """Return designs of the history with their answers on the workload of `study`, new ones judged in one call."""
    with reading(database) as session:
        uploads = load_inputs(session, {"study": study}).uploads
        keys = [answer_key(engine, {"design": row.record["design"], "study": study}, uploads) for row in rows]
        known = queries.find_answers(session, [key for key in keys if key is not None])
    missing = {key: row for key, row in zip(keys, rows, strict=True) if key is not None and key not in known}
    judged = engine.evaluate_designs(study, [row.record["design"] for row in missing.values()], uploads)
    new = dict(zip(missing, judged, strict=True))
    if new:
        with writing(database) as session:
            queries.store_answers(session, engine.model_version, new)
    items = []
    skipped = []
    for key, row in zip(keys, rows, strict=True):
        where = {"study_id": row.study_id, "number": row.record["number"]}
        if key is None:
            skipped.append({**where, "reason": "its parameters are no design of this version of the model"})
            continue
        answer = {**(known.get(key) or new[key]), "from_history": key in known}
        items.append({**where, "metrics": row.record["metrics"], "answer": answer})
    return {"items": items, "from_history": sum(item["answer"]["from_history"] for item in items), "skipped": skipped}


def answer_key(engine: StudyEngine, document: Document, uploads: Uploads) -> str | None:
    """Hash of the model version, the workload and the design; None where the request is at fault."""
    identity = engine.evaluation_identity(document, uploads)
    if identity is None:
        return None
    return hashlib.sha256(json.dumps([engine.model_version, identity]).encode()).hexdigest()
