"""The OpenAPI document: FastAPI's own, with problem documents and the study's schema in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from explorer.outside import OutsideStudyDocument
from service.engine import StudyEngine
from service.errors import problem_responses
from service.security import OPEN_PATHS, needed_scope

EXAMPLES: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("openapi_examples.yaml").read_text())
"""Bodies by operation, and examples of fields and parameters by name."""

STUDY_EXAMPLE: dict[str, Any] = EXAMPLES["bodies"]["create_study"]
"""A study that ends within seconds."""

EVALUATION: dict[str, Any] = {
    "type": "object",
    "description": "Exactly one of chip, design and designs, and a study; nothing but a profile goes with designs",
    "required": ["study"],
    "additionalProperties": False,
    "properties": {
        "chip": {"type": "string", "description": "Id of a chip of the catalogue"},
        "design": {"type": "object", "description": "Design parameter -> value in SI units, codes by name"},
        "designs": {"type": "array", "items": {"type": "object"}, "description": "Many designs, judged together"},
        "study": {"$ref": "#/components/schemas/ModelStudy", "description": "Its space and search are not used"},
        "replay": {
            "anyOf": [{"type": "boolean"}, {"type": "string"}],
            "description": "Whether the study's arrivals are replayed, or the name of a trace that is",
        },
        "scaling": {
            "anyOf": [{"type": "boolean"}, {"type": "object"}],
            "description": "Whether systems of other sizes are judged, or which: max_chips, or chips as a list",
        },
        "explanation": {"type": "boolean", "description": "Whether it is explained what binds and what relief brings"},
        "profile": {
            "anyOf": [{"type": "string"}, {"type": "object"}],
            "description": "Calibration profile in place of the study's",
        },
        "against": {
            "type": "object",
            "description": "{chip} or {design} on the same work, and where the cost of moving data went from it",
        },
        "sizes": {
            "type": "boolean",
            "description": "Whether sizes of the work and the cost of moving data come along: half as long again",
        },
        "unrolling": {
            "type": "boolean",
            "description": "Whether the same peak cut into the other arrays of the full space is compared",
        },
    },
}
"""Schema of the body of an evaluation."""

_UNIT = re.compile(r"\[([^\]]+)\]")


def document_openapi(app: FastAPI, engine: StudyEngine, problem: type[BaseModel], keys_required: bool) -> None:
    """Make the application describe itself; the document is built once, when it is first asked for."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(
                title=app.title, version=app.version, description=app.description, routes=app.routes,
                servers=app.servers or None,
            )  # fmt: skip
            _add_problem(document, problem)
            _add_access(document, keys_required)
            _add_study(document, engine.study_schema())
            _add_examples(document)
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _add_problem(document: dict[str, Any], problem: type[BaseModel]) -> None:
    """Add the problem schema, and take out FastAPI's own 422, which the service never sends."""
    schema = problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas.update(schema.pop("$defs", {}))
    schemas[problem.__name__] = schema
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for path in document["paths"].values():
        for operation in path.values():
            answer = operation["responses"].get("422", {})
            if "application/json" in answer.get("content", {}):
                answer["content"] = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}


def _add_access(document: dict[str, Any], keys_required: bool) -> None:
    """Say how a key is shown, and what every call but the open ones may answer without one."""
    document["components"]["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer", "description": "API key `cf_<id>_<secret>`"},
        "password": {"type": "http", "scheme": "basic", "description": "The same key as password, for browsers"},
    }
    answers = {str(status): answer for status, answer in problem_responses(400, 401, 403, 408, 421, 429).items()}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if path in OPEN_PATHS:
                continue
            scope = needed_scope(method.upper(), path)
            operation["security"] = [*([] if keys_required else [{}]), {"key": []}, {"password": []}]
            note = f"Needs a key with scope `{scope}` where the server asks for keys."
            operation["description"] = f"{operation.get('description', '')}\n\n{note}".strip()
            operation["responses"] = {**answers, **operation["responses"]}


def _add_study(document: dict[str, Any], schema: dict[str, Any]) -> None:
    """Describe the body of a new study by the explorer's own schema."""
    schemas = document["components"]["schemas"]
    outside = OutsideStudyDocument.model_json_schema(ref_template="#/components/schemas/{model}")
    for each in (schema, outside):
        schemas.update(each.pop("$defs", {}))
    schemas["ModelStudy"], schemas["OutsideStudy"] = schema, outside
    schemas["Study"] = {"anyOf": [{"$ref": f"#/components/schemas/{name}"} for name in ("ModelStudy", "OutsideStudy")]}
    schemas["Evaluation"] = EVALUATION
    for path, name in (("/v1/studies", "Study"), ("/v1/evaluations", "Evaluation")):
        body = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
        body["schema"] = {"$ref": f"#/components/schemas/{name}"}


def _add_examples(document: dict[str, Any]) -> None:
    """Give every body, field and parameter an example, and every quantity the unit that its description states."""
    for operation in _operations(document):
        for part, kind in (("bodies", "application/json"), ("files", "text/csv")):
            if operation["operationId"] in EXAMPLES[part]:
                operation["requestBody"]["content"][kind]["example"] = EXAMPLES[part][operation["operationId"]]
        for parameter in operation.get("parameters", []):
            if parameter["name"] in EXAMPLES["parameters"] and "examples" not in parameter["schema"]:
                parameter["schema"]["examples"] = [EXAMPLES["parameters"][parameter["name"]]]
            _add_unit(parameter["schema"], parameter.get("description", ""))
    for name, schema in document["components"]["schemas"].items():
        known = EXAMPLES["fields"] | EXAMPLES["schemas"].get(name, {})
        for field, described in schema.get("properties", {}).items():
            if field in known and not {"example", "examples", "$ref"} & described.keys():
                described["examples"] = [known[field]]
            _add_unit(described, described.get("description", ""))


def _add_unit(schema: dict[str, Any], description: str) -> None:
    unit = _UNIT.search(description)
    if unit:
        schema["x-unit"] = unit[1]


def _operations(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for operations in document["paths"].values():
        yield from operations.values()
