"""The service with the explorer behind it, on the reference studies."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from explorer.files import read_yaml
from explorer.inputs import Uploads
from explorer.run import explore_study
from service.app import create_app
from service.real_engine import real_engine
from tests.service.api.test_studies import result_of, wait_until
from tests.service.conftest import quick_settings
from tests.service.test_http import problem_of

EXAMPLES = Path(__file__).parents[2] / "examples"
TRIALS = 40


def study_document(**changes: Any) -> dict[str, Any]:
    """The chat study with few trials; `changes` replace fields by their dotted path."""
    document = copy.deepcopy(read_yaml(EXAMPLES / "chat-550-150.yaml"))
    document["search"] |= {"sampler": "tpe", "trials": TRIALS, "certify": False}
    document.pop("robustness", None)
    for path, value in changes.items():
        *parents, last = path.split("__")
        inner = document
        for step in parents:
            inner = inner[int(step)] if step.isdigit() else inner[step]
        inner[last] = value
    return document


@pytest.fixture(scope="module")
def real_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    database_file = tmp_path_factory.mktemp("real") / "chipfit.sqlite"
    app = create_app(quick_settings(f"sqlite:///{database_file}"), real_engine())
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


def ended(client: TestClient, document: dict[str, Any]) -> dict[str, Any]:
    posted = client.post("/v1/studies", json=document)
    assert posted.status_code == 202, posted.text
    return wait_until(client, posted.json()["id"], "succeeded", "failed")


def test_a_study_over_http_ends_as_one_in_this_process(real_client: TestClient) -> None:
    study = ended(real_client, study_document())
    assert study["error"] is None
    alone = explore_study(study_document(), None, lambda done, of: None)
    alone.pop("wall_s")
    assert result_of(study) == json.loads(json.dumps(alone))
    assert study["result"]["wall_s"] == study["progress"]["busy_s"]


def test_the_explanation_of_a_study_holds_that_of_its_result(real_client: TestClient) -> None:
    study = ended(real_client, study_document())
    answer = real_client.get(f"/v1/studies/{study['id']}/explanation")
    assert answer.status_code == 200, answer.text
    explained, stored = answer.json()["explanation"], result_of(study)["explanation"]
    assert explained["bottleneck_chain"] == stored["bottleneck_chain"]
    assert explained["slack_fractions"] == stored["slack_fractions"]
    assert explained["build_or_buy"] and explained["parameter_sensitivity"]


def test_records_survive_the_database_unchanged() -> None:
    engine = real_engine()
    problem = engine.prepare(engine.read_study(study_document()), Uploads())
    records = engine.run_chunk(problem, [], 0)
    back = [engine.record_from_json(json.loads(json.dumps(r.as_json(), allow_nan=False))) for r in records]
    assert back == records
    assert [r.as_json() for r in engine.run_chunk(problem, back, 1)] == [
        r.as_json() for r in engine.run_chunk(problem, records, 1)
    ]


def test_a_budget_in_which_nothing_fits_is_a_result(real_client: TestClient) -> None:
    study = ended(real_client, study_document(budget__area="20 mm2"))
    assert study["state"] == "succeeded"
    recommendation = real_client.get(f"/v1/studies/{study['id']}/recommendation").json()
    assert recommendation["feasible"] is False
    assert recommendation["recommended"] is None
    assert recommendation["binding_limit"]["excess_fraction"] > 0
    assert real_client.get(f"/v1/studies/{study['id']}/pareto").json()["pareto"] == []


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"workload__scenarios__0__network": "llama-9"}, "/workload/scenarios/0/network"),
        ({"budget__area": "-5 mm2"}, "/budget/area"),
        ({"budget__area": 600}, "/budget/area"),
        ({"budget__colour": "red"}, "/budget/colour"),
        ({"search__sampler": "magic"}, "/search/sampler"),
    ],
    ids=["network", "negative", "unitless", "unknown field", "sampler"],
)
def test_bad_input_is_named_by_its_pointer(real_client: TestClient, changes: dict[str, Any], pointer: str) -> None:
    problem = problem_of(real_client.post("/v1/studies", json=study_document(**changes)), 422)
    assert pointer in [error["pointer"] for error in problem["errors"]]


def test_a_chip_of_the_catalogue_is_evaluated_at_once(real_client: TestClient) -> None:
    answer = real_client.post("/v1/evaluations", json={"chip": "h100_sxm", "study": study_document()})
    assert answer.status_code == 200, answer.text
    assert answer.json()["metrics"]["area_mm2"] > 0
    renamed = study_document(name="another", search__seed=7)
    again = real_client.post("/v1/evaluations", json={"study": renamed, "chip": "h100_sxm"})
    assert again.json() == {**answer.json(), "from_history": True}
    assert answer.json()["from_history"] is False


def test_an_evaluation_of_an_unknown_chip_is_refused(real_client: TestClient) -> None:
    answer = real_client.post("/v1/evaluations", json={"chip": "h10", "study": study_document()})
    assert problem_of(answer, 422)["errors"][0]["pointer"] == "/chip"


def test_catalogues_list_the_chips_and_networks_of_the_model(real_client: TestClient) -> None:
    chips = {item["id"] for item in real_client.get("/v1/chips").json()["items"]}
    assert {"a100_sxm", "h100_sxm"} <= chips
    assert real_client.get("/v1/networks/llama-3.1-70b").json()["n_parameters"] == pytest.approx(70.55e9, rel=0.005)


def test_a_batch_of_designs_comes_in_its_order_and_each_fault_has_a_pointer(real_client: TestClient) -> None:
    chip = real_client.post("/v1/evaluations", json={"chip": "h100_sxm", "study": study_document()}).json()
    designs = [chip["design"] | {"clock_hz": clock_hz} for clock_hz in (1.6e9, 1.2e9)]
    answer = real_client.post("/v1/evaluations", json={"designs": designs, "study": study_document()})
    assert answer.status_code == 200, answer.text
    assert [item["design"]["clock_hz"] for item in answer.json()["items"]] == [1.6e9, 1.2e9]
    wrong = [designs[0], designs[0] | {"n_cores": 0}, designs[0] | {"cores": 1}]
    refused = problem_of(real_client.post("/v1/evaluations", json={"designs": wrong, "study": study_document()}), 422)
    assert [error["pointer"] for error in refused["errors"]] == ["/designs/1", "/designs/2/cores"]


def test_a_batch_beyond_the_limit_is_refused(real_client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    state = real_client.app.state  # type: ignore[attr-defined]
    monkeypatch.setattr(state, "settings", state.settings.model_copy(update={"max_evaluated_designs": 2}))
    asked = {"designs": [{}, {}, {}], "study": study_document()}
    refused = problem_of(real_client.post("/v1/evaluations", json=asked), 422)
    assert refused["errors"] == [{"pointer": "/designs", "detail": "must be at most 2 designs, got 3"}]
