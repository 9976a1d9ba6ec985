"""Chips and technology values over HTTP."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from models.technology import default_technology, technology_with


def test_chips_are_listed_and_found(client: TestClient) -> None:
    listed = client.get("/v1/chips").json()["items"]
    assert client.get("/v1/chips/h100_sxm").json() == next(each for each in listed if each["id"] == "h100_sxm")


def test_technology_values_are_those_that_the_model_reads(client: TestClient) -> None:
    listed = {each["id"]: each for each in client.get("/v1/technologies").json()["items"]}
    for name, curve in default_technology().curves.items():
        assert [value["value"] for value in listed[name]["values"]] == curve.value.tolist()
        assert listed[name]["sources"]
    assert listed["utilization"]["values"][0]["value"] == default_technology().constants["cost"]["utilization"]
    assert client.get("/v1/technologies/fab_energy").json() == listed["fab_energy"]


def test_every_listed_value_may_stand_in_an_overlay(client: TestClient) -> None:
    rows = [
        {"quantity": each["id"], "unit": each["unit"], "source": "the same"}
        | {name: "" if part is None else str(part) for name, part in each["values"][0].items()}
        for each in client.get("/v1/technologies").json()["items"]
        if each["values"][0]["value"] > 0
    ]
    assert len(rows) > 100
    assert technology_with(rows).digest == default_technology().digest


@pytest.mark.parametrize(
    ("path", "detail"),
    [("chips/h10_sxm", "unknown chip 'h10_sxm'"), ("technologies/wafer", "unknown technology 'wafer'")],
)
def test_an_unknown_name_is_404_with_a_suggestion(client: TestClient, path: str, detail: str) -> None:
    answer = client.get(f"/v1/{path}")
    assert answer.status_code == 404
    assert detail in answer.json()["detail"]
