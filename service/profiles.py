"""Stored calibration profiles: kept by the hash of their content, and put into documents that name them."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from models.fidelity.profiles import profile_document, profile_from_document, shipped_profiles
from service.db import profiles as queries
from service.db.session import Database, reading
from service.engine import Document
from service.errors import InvalidRequestError


def checked_profile(document: Document) -> tuple[str, Document]:
    """
    Return the id of a profile and its content.

    Raises
    ------
    InvalidRequestError
        If it is no profile.
    """
    try:
        content = profile_document(profile_from_document(document))
    except (ValueError, LookupError, TypeError) as error:
        raise InvalidRequestError("", str(error)) from None
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return f"profile-{hashlib.sha256(text.encode()).hexdigest()[:24]}", content


def with_stored_profiles(database: Database, document: Document) -> Document:
    """Return a request with the content of stored profiles in place of their ids and names, its study's included."""
    named = {each["profile"] for each in _holders(document) if isinstance(each.get("profile"), str)}
    named -= set(shipped_profiles())
    if not named:
        return document
    with reading(database) as session:
        found = queries.find_profiles(session, named)
    return _replaced(document, found)


def _holders(document: Document) -> list[dict[str, Any]]:
    study = document.get("study")
    return [document, study] if isinstance(study, dict) else [document]


def _replaced(document: Document, found: dict[str, Document]) -> Document:
    changed = dict(document)
    if isinstance(changed.get("study"), dict):
        changed["study"] = _replaced(changed["study"], found)
    if isinstance(changed.get("profile"), str):
        changed["profile"] = found.get(changed["profile"], changed["profile"])
    return changed
