"""Explanations over HTTP."""

from fastapi.testclient import TestClient

from tests.service.api.test_studies import run_study


class TestExplanation:
    def test_the_recommended_trial_is_explained(self, client: TestClient) -> None:
        study = run_study(client, trials=25)
        answer = client.get(f"/v1/studies/{study['id']}/explanation").json()
        assert answer["state"] == "succeeded" and answer["chip"] is None
        assert answer["design"] == study["result"]["recommended"]["design"]
        assert answer["explanation"]["summary"]

    def test_a_trial_or_a_chip_can_be_named(self, client: TestClient) -> None:
        study = run_study(client, trials=25)
        path = f"/v1/studies/{study['id']}/explanation"
        assert client.get(path, params={"trial": 3}).json()["trial"] == 3
        assert client.get(path, params={"chip": "a100_sxm"}).json()["chip"] == "a100_sxm"

    def test_an_unknown_trial_is_a_broken_rule_with_its_place(self, client: TestClient) -> None:
        study = run_study(client, trials=25)
        answer = client.get(f"/v1/studies/{study['id']}/explanation", params={"trial": 999})
        assert answer.status_code == 422
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["errors"][0]["pointer"] == "/trial"

    def test_an_unknown_study_is_missing(self, client: TestClient) -> None:
        assert client.get("/v1/studies/nothing/explanation").status_code == 404
