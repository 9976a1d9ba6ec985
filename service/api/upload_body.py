"""Request bodies that are files: raw, or the field `file` of a form."""

from __future__ import annotations

from dataclasses import dataclass
from email.message import EmailMessage
from email.parser import BytesHeaderParser
from typing import Annotated, Any

from fastapi import Depends, Query, Request
from starlette.requests import ClientDisconnect

from service.errors import InvalidRequestError

SUFFIXES = {
    "text/csv": ".csv",
    "application/json": ".json",
    "application/x-ndjson": ".jsonl",
    "application/jsonl": ".jsonl",
    "application/yaml": ".yaml",
    "application/x-yaml": ".yaml",
    "text/yaml": ".yaml",
}
"""Media types that say how a file without such a name is to be read."""

FORM = "multipart/form-data"

FILE_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "The file itself, gzipped or not, or a form with a field `file`",
        "content": {
            "application/json": {"schema": {"type": "object", "additionalProperties": True}},
            **{
                kind: {"schema": {"type": "string"}}
                for kind in ("text/csv", "application/x-ndjson", "application/yaml", "application/octet-stream")
            },
            FORM: {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {"file": {"type": "string", "format": "binary", "description": "The file"}},
                }
            },
        },
    }
}
"""How the specification describes such a body."""


@dataclass(frozen=True)
class FileBody:
    """A file with the name its sender gave it."""

    name: str
    content: bytes


async def _file_body(
    request: Request,
    name: Annotated[
        str | None,
        Query(min_length=1, max_length=200, description="Name of the file; that of a form's field by default"),
    ] = None,
) -> FileBody:
    header = EmailMessage()
    header["Content-Type"] = request.headers.get("content-type", "application/octet-stream")
    try:
        kind, body = header.get_content_type(), await request.body()
    except ClientDisconnect as error:
        raise InvalidRequestError("", "the request body ended before its end") from error
    if kind == FORM:
        file = _field_of_form(body, str(header.get_param("boundary", "")).encode("latin-1", "replace"))
        return FileBody(_plain_name(name or file.name, ""), file.content)
    return FileBody(_plain_name(name or "workload", SUFFIXES.get(kind, "")), body)


def _field_of_form(body: bytes, boundary: bytes) -> FileBody:
    """The field `file` of a form (RFC 7578)."""
    parts = (b"\r\n" + body).split(b"\r\n--" + boundary) if boundary else []
    for part in parts[1:]:
        head, _, content = part.partition(b"\r\n\r\n")
        headers = BytesHeaderParser().parsebytes(head.lstrip(b"\r\n"))
        if headers.get_param("name", header="content-disposition") == "file":
            return FileBody(headers.get_filename() or "workload", content)
    raise InvalidRequestError("/file", "the form must hold a file in its field 'file'")


def _plain_name(name: str, suffix: str) -> str:
    """The last part of a path, in printable characters, with a suffix that says how to read it."""
    last = name.replace("\\", "/").rpartition("/")[2]
    plain = "".join(character for character in last if character.isprintable())[:180].strip() or "workload"
    known = plain.lower().removesuffix(".gz").endswith((*SUFFIXES.values(), ".yml"))
    return plain if known else plain + suffix


FileBodyOf = Annotated[FileBody, Depends(_file_body)]
