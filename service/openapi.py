"""The OpenAPI document: FastAPI's own, with problem documents and the study's schema in it."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from service.engine import StudyEngine


def document_openapi(app: FastAPI, engine: StudyEngine, problem: type[BaseModel]) -> None:
    """Make the application describe itself; the document is built once, when it is first asked for."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            _add_problem(document, problem)
            _add_study(document, engine.study_schema())
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


def _add_study(document: dict[str, Any], schema: dict[str, Any]) -> None:
    """Describe the body of a new study by the explorer's own schema."""
    schemas = document["components"]["schemas"]
    schemas.update(schema.pop("$defs", {}))
    schemas["Study"] = schema
    body = document["paths"]["/v1/studies"]["post"]["requestBody"]["content"]["application/json"]
    body["schema"] = {"$ref": "#/components/schemas/Study"}
