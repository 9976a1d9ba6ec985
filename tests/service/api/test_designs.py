"""The history over HTTP: filters, orders, pages, fronts, neighbours, facets, another workload."""

from __future__ import annotations

import re
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.service.api.test_studies import run_study
from tests.service.test_http import problem_of


def found(client: TestClient, **params: Any) -> list[int]:
    """Numbers of the designs on the first page."""
    answer = client.get("/v1/designs", params={"order_by": "area_mm2", **params})
    assert answer.status_code == 200, answer.text
    return [item["number"] for item in answer.json()["items"]]


@pytest.fixture(scope="module")
def study_id(client: TestClient) -> str:
    """A study of 25 designs: area 100 + number, every third one infeasible."""
    return str(run_study(client, trials=25)["id"])


class TestAFilter:
    def test_combines_comparisons_and_the_order_is_kept(self, client: TestClient, study_id: str) -> None:
        chosen = f'study_id = "{study_id}" AND area_mm2 < 110 AND NOT (number IN (4, 5) OR feasible = false)'
        assert found(client, filter=chosen, order_by="area_mm2 desc") == [8, 7, 2, 1]

    def test_takes_words_in_small_letters_and_quantities_with_units(self, client: TestClient, study_id: str) -> None:
        chosen = f'study_id = "{study_id}" and (area_mm2 <= "1.03 cm2" or area_mm2 > "124e-6 m2") and not number = 2'
        assert found(client, filter=chosen) == [0, 1, 3]

    def test_names_what_the_study_is(self, client: TestClient, study_id: str) -> None:
        chosen = f'study_id = "{study_id}" and study_name = "s" and model_version = "fake-1" and number < 2'
        assert found(client, filter=chosen) == [0, 1]

    def test_a_design_without_a_value_meets_no_comparison(self, client: TestClient, study_id: str) -> None:
        for text in ("images_per_s > 1", "not images_per_s > 1", "images_per_s != 1"):
            assert found(client, filter=f'study_id = "{study_id}" and {text}') == []

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("area_mm2 <", "malformed"),
            ("area_mm2 < 600; DROP TABLE designs", "malformed at character 15"),
            ("study_id = \"x' OR 1=1 --", "malformed"),
            ("area_mm < 600", "did you mean 'area_mm2'"),
            ('area_mm2 < "600"', "must carry a unit"),
            ('area_mm2 < "6 s"', "must have the dimension"),
            ('n_cores < "6 mm2"', "a number without a unit"),
            ("feasible = 1", "holds true or false"),
            ("(" * 400 + "number = 1" + ")" * 400, "nested too deeply|malformed"),
            ("not " * 200 + "number = 1", "nested too deeply"),
            (" OR ".join(["number = 1"] * 60), "at most 50"),
        ],
        ids=["end", "injection", "quote", "field", "unitless", "dimension", "unit", "kind", "depth", "nots", "count"],
    )
    def test_that_is_bad_is_refused(self, client: TestClient, text: str, said: str) -> None:
        problem = problem_of(client.get("/v1/designs", params={"filter": text}), 422)
        assert problem["errors"][0]["pointer"] == "query.filter"
        assert re.search(said, problem["detail"])

    def test_with_sql_in_a_text_finds_nothing_and_changes_nothing(self, client: TestClient, study_id: str) -> None:
        assert found(client, filter="study_name = \"s' OR '1'='1\"") == []
        assert found(client, filter=f'study_id = "{study_id}" and number = 7') == [7]


class TestPages:
    def test_join_without_gap_or_overlap(self, client: TestClient, study_id: str) -> None:
        for order, numbers in (("area_mm2", list(range(25))), ("area_mm2 desc", list(range(24, -1, -1)))):
            assert walk(client, filter=f'study_id = "{study_id}"', order_by=order, page_size=10) == numbers

    def test_refuse_a_token_of_another_query(self, client: TestClient, study_id: str) -> None:
        params = {"filter": f'study_id = "{study_id}"', "page_size": 10}
        token = client.get("/v1/designs", params=params).json()["next_page_token"]
        other = client.get("/v1/designs", params={"page_token": token, "page_size": 10})
        assert problem_of(other, 422)["errors"][0] == {
            "pointer": "query.page_token", "detail": "page_token belongs to another query",
        }  # fmt: skip

    @pytest.mark.parametrize("token", ["x", "bnVsbA", "WzEsMl0", "W05hTl0"])
    def test_refuse_a_token_that_is_none_of_ours(self, client: TestClient, token: str) -> None:
        problem = problem_of(client.get("/v1/designs", params={"page_token": token}), 422)
        assert problem["errors"][0]["pointer"] == "query.page_token"

    @pytest.mark.parametrize("order", ["colour", "memory_kind", "area_mm2 up"])
    def test_refuse_an_order_by_no_number(self, client: TestClient, order: str) -> None:
        problem = problem_of(client.get("/v1/designs", params={"order_by": order}), 422)
        assert problem["errors"][0]["pointer"] == "query.order_by"


def walk(client: TestClient, **params: Any) -> list[int]:
    """Numbers of the designs on all pages."""
    numbers: list[int] = []
    token: str | None = ""
    while token is not None:
        page = client.get("/v1/designs", params=params | ({"page_token": token} if token else {})).json()
        numbers += [item["number"] for item in page["items"]]
        token = page["next_page_token"]
    return numbers


class TestAFront:
    def test_holds_the_feasible_designs_that_no_other_one_beats(self, client: TestClient, study_id: str) -> None:
        params = {"filter": f'study_id = "{study_id}"', "page_size": 500}
        items = client.get("/v1/designs", params=params).json()["items"]
        points = {i["number"]: (i["metrics"]["area_mm2"], i["metrics"]["ttft_p95_s"]) for i in items if i["feasible"]}
        best = [n for n, (area, ttft) in points.items() if all(a > area or t >= ttft for a, t in points.values())]
        expected = sorted(best, key=lambda n: points[n])
        assert walk(client, **{**params, "pareto": "area_mm2,ttft_p95_s"}) == expected
        assert walk(client, **{**params, "pareto": "area_mm2,ttft_p95_s", "page_size": 1}) == expected

    @pytest.mark.parametrize("names", ["n_cores", "area_mm", "area_mm2,area_mm2", ""])
    def test_is_refused_for_what_has_no_better_direction(self, client: TestClient, names: str) -> None:
        problem = problem_of(client.get("/v1/designs", params={"pareto": names}), 422)
        assert problem["errors"][0]["pointer"] == "query.pareto"


class TestNeighbours:
    def test_come_nearest_first_with_their_distance(self, client: TestClient, study_id: str) -> None:
        request = {"point": {"area_mm2": "1.1 cm2", "memory_kind": "hbm3"}, "filter": f'study_id = "{study_id}"'}
        items = client.post("/v1/designs:nearest", json={**request, "limit": 3}).json()["items"]
        assert [item["number"] for item in items] == [10, 11, 9]
        assert [item["distance"] for item in items] == pytest.approx([0.0, 0.5 / 221, 0.5 / 219])

    def test_of_an_unknown_field_are_refused(self, client: TestClient) -> None:
        problem = problem_of(client.post("/v1/designs:nearest", json={"point": {"area": 3}}), 422)
        assert problem["errors"][0]["pointer"] == "/point/area"


class TestFacets:
    def test_count_values_and_bin_numbers_that_have_many(self, client: TestClient) -> None:
        big = run_study(client, trials=80)["id"]
        params = {"filter": f'study_id = "{big}"', "fields": "memory_kind,feasible,area_mm2"}
        answer = client.get("/v1/designs:facets", params=params).json()
        kinds, feasible, area = answer["items"]
        assert answer["count"] == 80
        assert kinds["values"] == [{"value": "hbm3", "count": 80}]
        assert {entry["count"] for entry in feasible["values"]} == {53, 27}
        assert area["values"] is None
        assert area["histogram"]["counts"] == [4] * 20
        assert (area["histogram"]["lowest"], area["histogram"]["highest"]) == (100.0, 179.0)


class TestReevaluation:
    def test_judges_a_selection_and_the_second_time_from_the_history(self, client: TestClient, study_id: str) -> None:
        request = {"filter": f'study_id = "{study_id}" and number < 3', "study": {"area": 7.0, "id": study_id}}
        answers = [client.post("/v1/designs:reevaluate", json=request).json() for _ in range(2)]
        assert [answer["from_history"] for answer in answers] == [0, 3]
        assert [item["answer"]["metrics"] for item in answers[0]["items"]] == [{"area_mm2": 7.0}] * 3
        assert answers[0]["items"][1]["metrics"]["area_mm2"] == 101.0
