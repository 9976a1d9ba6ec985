"""Studies that begin with, or take over, what past studies found; with the explorer behind the service."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.service.test_http import problem_of
from tests.service.test_real_engine import ended, real_client, study_document

__all__ = ["real_client"]


TRIALS = 20


def quick_study(**changes: Any) -> dict[str, Any]:
    """The chat study with few random trials."""
    return study_document(search__sampler="random", search__trials=TRIALS, **changes)


@pytest.fixture(scope="module")
def first(real_client: TestClient) -> dict[str, Any]:
    """A study of the past."""
    return ended(real_client, quick_study(name="first"))


def trials_of(client: TestClient, study_id: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = client.get(f"/v1/studies/{study_id}/designs?page_size=500").json()["items"]
    return items


def test_an_equal_study_is_answered_from_the_history(real_client: TestClient, first: dict[str, Any]) -> None:
    again = ended(real_client, quick_study(name="again"))
    assert first["progress"]["from_history_done"] == 0
    assert again["progress"]["from_history_done"] == again["progress"]["trials_done"] == TRIALS
    assert again["workload_hash"] == first["workload_hash"]
    assert trials_of(real_client, again["id"]) == trials_of(real_client, first["id"])
    assert again["result"]["recommended"] == first["result"]["recommended"]


def test_another_workload_is_judged_anew(real_client: TestClient, first: dict[str, Any]) -> None:
    other = ended(real_client, quick_study(budget__area="500 mm2"))
    assert other["progress"]["from_history_done"] == 0


def test_a_warm_start_begins_with_the_best_designs_of_the_past(real_client: TestClient, first: dict[str, Any]) -> None:
    front = [point["params"] for point in first["result"]["pareto"]]
    space = {"n_cores": sorted({params["n_cores"] for params in front})[:1]}
    document = quick_study(budget__area="500 mm2", search__seed=9, space=space)
    document["search"]["warm_start"] = {"studies": [first["id"]], "designs": 3}
    warm = ended(real_client, document)
    start = warm["warm_start"]
    params = [trial["params"] for trial in trials_of(real_client, warm["id"])]
    assert params[: len(start["designs"])] == start["designs"]
    assert 1 <= len(start["designs"]) <= 3
    assert all(design in front for design in start["designs"])
    outside = {each["trial"] for each in start["dropped"] if "n_cores" in each["reason"]}
    assert outside == {p["trial"] for p in first["result"]["pareto"] if p["params"]["n_cores"] not in space["n_cores"]}
    assert warm["progress"]["trials_done"] == TRIALS
    assert len({str(each) for each in params}) == TRIALS


def test_a_warm_start_finds_similar_studies_itself(real_client: TestClient, first: dict[str, Any]) -> None:
    document = quick_study(budget__tdp="450 W", search__warm_start=True)
    warm = ended(real_client, document)
    assert first["id"] in warm["warm_start"]["studies"]
    assert warm["warm_start"]["designs"]


def test_a_warm_start_from_an_unknown_study_is_refused(real_client: TestClient) -> None:
    document = quick_study(search__warm_start={"studies": ["none"]})
    problem = problem_of(real_client.post("/v1/studies", json=document), 422)
    assert problem["errors"] == [{"pointer": "/search/warm_start/studies/0", "detail": "unknown study 'none'"}]
