"""Takes in workload files and network configurations: checks, inspects and identifies them by their content."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any

from explorer.document import StudyError
from explorer.inputs import InputFile, document_sha256
from explorer.workload import pointing_at
from explorer.workload_file import inspect_input, stated_study
from models.architectures import network_names, read_network
from models.workload.requests import TooManyBytesError, ZeroRows, unpacked
from service.catalogues import network_document
from service.db import uploads
from service.db.rows import ConflictError
from service.db.session import Database, reading, writing
from service.db.tables import UploadedNetwork, UploadedWorkload
from service.engine import Document
from service.errors import InvalidRequestError, TooLargeError
from service.stored_inputs import load_inputs


@dataclass(frozen=True)
class Taken:
    """What an upload has become, and whether it was not there before."""

    row: Any
    is_new: bool


def take_workload(database: Database, body: bytes, name: str, zero_token_rows: ZeroRows, max_bytes: int) -> Taken:
    """
    Store a workload file, or find it where the same content was sent before; no transaction is open meanwhile.

    Raises
    ------
    TooLargeError
        If it is larger than `max_bytes` once it is unpacked.
    StudyError
        If it breaks a rule; nothing is stored then.
    """
    with pointing_at(""):
        try:
            content = unpacked(body, name, max_bytes)
        except TooManyBytesError as error:
            raise TooLargeError(str(error)) from None
    sha256 = hashlib.sha256(content).hexdigest()
    workload_id = "wl_" + hashlib.sha256(f"{zero_token_rows} {sha256}".encode()).hexdigest()[:32]
    with reading(database) as session:
        known = uploads.find_workload(session, workload_id)
    if known is not None:
        return Taken(known, False)
    inspection = _inspection(database, InputFile(name.removesuffix(".gz"), content, zero_token_rows))
    fields: Document = {
        "id": workload_id, "name": name, "kind": inspection["kind"], "sha256": sha256,
        "zero_token_rows": zero_token_rows, "inspection": inspection,
    }  # fmt: skip
    return _stored_workload(database, content, fields)


def _stored_workload(database: Database, content: bytes, fields: Document) -> Taken:
    with writing(database) as session:
        is_new = uploads.add_workload(session, content, fields)
        row: UploadedWorkload = uploads.get_workload(session, fields["id"])
    return Taken(row, is_new)


def _inspection(database: Database, file: InputFile) -> Document:
    with reading(database) as session, pointing_at(""):
        stored = load_inputs(session, stated_study(file))
    return inspect_input(file, stored.uploads)


def _figures(config: Document, name: str) -> Document:
    """Main figures of a network; a fault is pointed at by the path its message names."""
    try:
        return network_document(read_network(config, name))
    except (ValueError, LookupError) as error:
        path = re.search(r"network((\.\w+)+)", str(error))
        raise StudyError([{"pointer": path[1].replace(".", "/") if path else "", "detail": str(error)}]) from None


def take_network(database: Database, config: Document, name: str | None) -> Taken:
    """
    Store the configuration of a network, or find it where the same was sent before under this name.

    Raises
    ------
    StudyError
        If a field is not understood or out of bounds; nothing is stored then.
    ConflictError
        If the name is taken by another configuration or by the catalogue.
    """
    sha256 = document_sha256(config)
    own_name = name or f"net_{sha256[:12]}"
    if name is not None and name.startswith(("net_", "wl_")):
        raise InvalidRequestError("query.name", f"name must not begin as an id does, got '{name}'")
    if own_name in network_names():
        raise ConflictError(f"network '{own_name}' is one of the catalogue: choose another name")
    figures = _figures(config, own_name)
    network_id = "net_" + document_sha256([own_name, config])[:32]
    fields = {"id": network_id, "name": own_name, "sha256": sha256, "config": config, "figures": figures}
    with writing(database) as session:
        is_new = uploads.add_network(session, fields)
        row: UploadedNetwork = uploads.networks_named(session, [network_id])[0]
    return Taken(row, is_new)
