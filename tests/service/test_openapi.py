"""The specification says what the service does; schemathesis calls it with whatever it allows and forbids."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import httpx
import hypothesis
import jsonschema_rs
import pytest
import schemathesis
from schemathesis.specs.openapi.checks import positive_data_acceptance

from service.app import create_app
from service.db.session import open_database
from service.openapi import EXAMPLES
from service.real_engine import real_engine
from service.security import create_key
from service.settings import Settings
from tests.service.fake_engine import fake_engine
from tests.service.test_durability import Processes

CASES = int(os.environ.get("CHIPFIT_API_CASES", "8"))
"""Generated requests for each operation; a hundred of them before a release."""


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """The specification with the schema of real studies."""
    return create_app(Settings(), real_engine()).openapi()


@pytest.fixture(scope="module")
def specification() -> dict[str, Any]:
    return create_app(Settings(), fake_engine()).openapi()


def operations(specification: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{method.upper()} {path}", operation)
        for path, methods in specification["paths"].items()
        for method, operation in methods.items()
    ]


def test_every_operation_has_a_summary_a_name_and_its_parameters_described(specification: dict[str, Any]) -> None:
    found = operations(specification)
    assert len(found) >= 18
    for name, operation in found:
        assert operation["summary"], name
        assert operation["operationId"].islower(), name
        assert all(parameter.get("description") for parameter in operation.get("parameters", [])), name


class TestEveryField:
    """Descriptions, examples and units of whatever a body, a parameter or an answer holds."""

    def test_is_described(self, document: dict[str, Any]) -> None:
        assert [name for name, value in fields(document) if "description" not in value and "$ref" not in value] == []

    def test_has_an_example_or_is_made_of_fields_that_have_one(self, document: dict[str, Any]) -> None:
        assert [name for name, value in fields(document) if not has_example(value)] == []

    def test_states_a_unit_where_it_is_a_quantity(self, document: dict[str, Any]) -> None:
        assert [name for name, value in fields(document) if is_quantity(name, value) and "x-unit" not in value] == []

    def test_examples_are_what_the_schema_allows(self, document: dict[str, Any]) -> None:
        wrong = []
        for name, value in fields(document):
            if "examples" in value:
                rules = jsonschema_rs.validator_for({**value, "components": document["components"]})
                wrong += [f"{name}: {error}" for each in value["examples"] for error in rules.iter_errors(each)]
        assert wrong == []

    def test_no_example_is_left_over(self, document: dict[str, Any]) -> None:
        properties = {name: schema.get("properties", {}) for name, schema in document["components"]["schemas"].items()}
        known = {field for schema in properties.values() for field in schema}
        assert set(EXAMPLES["fields"]) <= known
        assert [f"{n}.{f}" for n, own in EXAMPLES["schemas"].items() for f in own if f not in properties[n]] == []
        assert set(EXAMPLES["bodies"]) <= {operation["operationId"] for _, operation in operations(document)}
        assert set(EXAMPLES["parameters"]) <= {name.split(".")[-1] for name, _ in parameters(document)}


def fields(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Name and schema of every field of a schema and of every parameter that a caller writes."""
    written = [(name, value) for name, value in parameters(document) if not name.endswith(".page_token")]
    return written + [
        (f"{name}.{field}", value)
        for name, schema in document["components"]["schemas"].items()
        for field, value in schema.get("properties", {}).items()
    ]


def parameters(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{operation['operationId']}.{each['name']}", {"description": each.get("description"), **each["schema"]})
        for _, operation in operations(document)
        for each in operation.get("parameters", [])
    ]


def branches(value: dict[str, Any]) -> list[dict[str, Any]]:
    inner = [each for kind in ("anyOf", "oneOf", "allOf") for each in value.get(kind, [])]
    inner += [value["items"]] if "items" in value else []
    return [value, *(found for each in inner for found in branches(each))]


def has_example(value: dict[str, Any]) -> bool:
    return any({"example", "examples", "$ref"} & each.keys() for each in branches(value))


def is_quantity(name: str, value: dict[str, Any]) -> bool:
    """Whether it is a number that is no count, or a count of something with a unit in its name."""
    kinds = {each.get("type") for each in branches(value)}
    return "number" in kinds or ("integer" in kinds and name.endswith(("_bytes", "_tokens", "_s", "_hz", "_w", "_j")))


def test_every_problem_is_declared_as_a_problem_document(specification: dict[str, Any]) -> None:
    for name, operation in operations(specification):
        for status, answer in operation["responses"].items():
            if status >= "400":
                assert list(answer["content"]) == ["application/problem+json"], f"{name} {status}"


def test_no_reference_leads_nowhere(specification: dict[str, Any]) -> None:
    def references(value: Any) -> list[str]:
        if isinstance(value, dict):
            own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            return own + [r for inner in value.values() for r in references(inner)]
        return [r for inner in value for r in references(inner)] if isinstance(value, list) else []

    known = {f"#/components/schemas/{name}" for name in specification["components"]["schemas"]}
    assert set(references(specification)) <= known


@pytest.mark.filterwarnings("ignore::DeprecationWarning:schemathesis")
def test_the_service_answers_as_it_says(database_url: str, tmp_path: Path) -> None:
    """Every operation with values its schema allows and others it forbids, against a server of its own."""
    processes = Processes(database_url, tmp_path)
    try:
        server = processes.serve("--require-keys")
        headers = admin_key(database_url)
        schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json", headers=headers)
        names = [check_operation(found.ok(), headers) for found in schema.get_all_operations()]
        assert len(names) >= 18
        assert httpx.get(f"{server.url}/readyz", headers=headers).status_code == 200
    finally:
        processes.end()


def admin_key(database_url: str) -> dict[str, str]:
    database = open_database(database_url)
    token = create_key(database, "tests", "admin", None).token
    database.close()
    return {"Authorization": f"Bearer {token}"}


def check_operation(operation: Any, headers: dict[str, str]) -> str:
    """Call one operation with generated cases and compare every answer with the specification."""

    @hypothesis.given(case=operation.as_strategy())
    @hypothesis.settings(max_examples=CASES, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
    def check(case: Any) -> None:
        # page tokens, filters and studies follow rules that a schema cannot say
        answer = case.call_and_validate(timeout=20, headers=headers, excluded_checks=[positive_data_acceptance])
        if answer.status_code == 422:
            assert answer.json()["errors"], "a broken rule is named with its place"

    check()
    return str(operation.label)
