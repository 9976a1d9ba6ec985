"""What documents name, taken from the database: uploaded workloads and networks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy.orm import Session

from explorer.document import StudyError
from explorer.inputs import WORKLOAD_ID, InputFile, NamedConfig, Uploads, names_in, with_named_workload
from models.architectures import network_names
from models.workload.requests import ZeroRows
from service.db import uploads
from service.engine import Document, StudyEngine


@dataclass(frozen=True)
class StoredInputs:
    """Uploads that a document names, with their ids in the database."""

    uploads: Uploads
    ids: tuple[str, ...]


def prepare_study(session: Session, engine: StudyEngine, document: Document) -> Any:
    """Return the problem of a study, with what it names read from the database."""
    stored = load_inputs(session, document)
    return engine.prepare(read_named_study(engine, document, stored), stored.uploads)


def read_named_study(engine: StudyEngine, document: Document, stored: StoredInputs) -> Any:
    """Return the checked study, its named workload written out."""
    return engine.read_study(with_named_workload(document, stored.uploads))


def load_inputs(session: Session, document: Any) -> StoredInputs:
    """Return the uploads that a study (or an evaluation with one) names, itself or through its named workload."""
    found = _stored(session, document)
    is_within = isinstance(document, dict) and "study" in document
    study = document["study"] if is_within else document
    try:
        written = with_named_workload(study, found.uploads)
    except StudyError as error:
        place = "/study" if is_within else ""
        raise StudyError([{**each, "pointer": place + each["pointer"]} for each in error.errors]) from None
    return found if written is study else _stored(session, [document, written])


def _stored(session: Session, document: Any) -> StoredInputs:
    named = list(names_in(document))
    files = uploads.workload_contents(session, {each.name for each in named if WORKLOAD_ID.fullmatch(each.name)})
    shipped = network_names()
    networks = uploads.networks_named(
        session, {each.name for each in named if each.key == "network" and each.name not in shipped}
    )
    configs = {name: NamedConfig(row.name, row.config) for row in networks for name in (row.id, row.name)}
    read = {row.id: InputFile(row.name, content, cast(ZeroRows, row.zero_token_rows)) for row, content in files}
    return StoredInputs(Uploads(read, configs), (*read, *(row.id for row in networks)))
