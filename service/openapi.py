"""The OpenAPI document: FastAPI's own, with problem documents and the study's schema in it."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from explorer.outside import OutsideStudyDocument
from service.engine import StudyEngine
from service.errors import problem_responses
from service.security import OPEN_PATHS, needed_scope

STUDY_EXAMPLE: dict[str, Any] = {
    "name": "chat",
    "workload": {
        "scenarios": [
            {
                "name": "chat",
                "kind": "llm_serving",
                "network": "llama-3.1-8b",
                "requests": {"preset": "llmperf-550-150"},
                "slo": {"ttft_p95": "1 s", "tpot_p95": "50 ms"},
            }
        ]
    },
    "budget": {"area": "600 mm2", "tdp": "500 W"},
    "objectives": [{"metric": "sustainable_output_tokens_per_s_per_w", "direction": "maximize"}],
    "search": {"sampler": "tpe", "trials": 20, "timeout": "30 s"},
}
"""A study that ends within seconds."""

EVALUATION: dict[str, Any] = {
    "type": "object",
    "description": "Exactly one of chip, design and designs, and a study",
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
        "profile": {
            "anyOf": [{"type": "string"}, {"type": "object"}],
            "description": "Calibration profile in place of the study's",
        },
        "against": {
            "type": "object",
            "description": "{chip} or {design} on the same work, and where the cost of moving data went from it",
        },
    },
}
"""Schema of the body of an evaluation."""


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
    for path, name, example in (
        ("/v1/studies", "Study", STUDY_EXAMPLE),
        ("/v1/evaluations", "Evaluation", {"chip": "h100_sxm", "study": STUDY_EXAMPLE}),
    ):
        body = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
        body |= {"schema": {"$ref": f"#/components/schemas/{name}"}, "example": example}
