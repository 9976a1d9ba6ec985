from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from explorer.document import StudyError
from explorer.evaluation import evaluate_document
from explorer.files import read_yaml
from explorer.fleet import MONTH_HOURS, plan_fleet

EXAMPLES = Path(__file__).parents[2] / "examples"


def demand(**changes: Any) -> dict[str, Any]:
    """The shipped example on two chips; `changes` replace its fields."""
    document = read_yaml(EXAMPLES / "fleet-week.yaml")
    return {**document, "chips": ["h100_sxm", "a100_sxm"], **changes}


def test_a_fleet_holds_the_busiest_hour_with_its_spares() -> None:
    planned = plan_fleet(demand())
    assert [each["chip"] for each in planned["fleets"]] == ["h100_sxm", "a100_sxm"]
    fleet = planned["smallest"]
    alone = evaluate_document({"chip": "h100_sxm", "study": demand()["study"]})
    rate = alone["metrics"]["sustainable_requests_per_s"]
    assert fleet["system_requests_per_s"] == pytest.approx(rate)
    assert fleet["systems"] == math.ceil(160 / (0.7 * rate)) + 2
    assert 160 / ((fleet["systems"] - 2) * rate) == pytest.approx(fleet["peak_load"])
    assert fleet["peak_load"] <= 0.7 < 160 / ((fleet["systems"] - 3) * rate)


def test_a_constant_demand_costs_each_request_the_same_share() -> None:
    fleet = plan_fleet(demand(demand_requests_per_s=[50.0]))["smallest"]
    assert fleet["mean_site_power_w"] == pytest.approx(fleet["peak_site_power_w"])
    requests = 50.0 * 3600 * MONTH_HOURS
    assert fleet["usd_per_million_requests"] == pytest.approx(1e6 * fleet["usd_per_month"] / requests)


def test_more_spares_or_a_lower_load_never_cost_less() -> None:
    usual = plan_fleet(demand())["smallest"]
    for changes in ({"spares": 5}, {"max_load": 0.35}):
        safer = plan_fleet(demand(**changes))["smallest"]
        assert safer["usd_per_month"] > usual["usd_per_month"]
        assert safer["peak_site_power_w"] > usual["peak_site_power_w"]


def test_a_site_with_too_little_power_has_no_smallest_fleet() -> None:
    planned = plan_fleet(demand(site_power="1 kW"))
    assert planned["smallest"] is None
    assert not any(each["fits_site"] for each in planned["fleets"])


def test_a_chip_that_cannot_do_the_work_is_named_with_its_limit() -> None:
    study = demand()["study"]
    study["workload"]["scenarios"][0]["slo"] = {"tpot_p95": "3 ms"}
    planned = plan_fleet(demand(study=study))
    assert {"chip": "a100_sxm", "limit": "tpot_p95"} in planned["cannot_serve"]


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"demand_requests_per_s": [1.0] * 25}, ""),
        ({"demand_requests_per_s": [0.0]}, ""),
        ({"demand_requests_per_s": [-1.0, *[1.0] * 23]}, ""),
        ({"chips": ["h10"]}, "/chips"),
        ({"spares": -1}, "/spares"),
        ({"study": {}}, "/study/name"),
    ],
    ids=["hours", "none", "negative", "chip", "spares", "study"],
)
def test_bad_input_is_named(changes: dict[str, Any], pointer: str) -> None:
    with pytest.raises(StudyError) as refused:
        plan_fleet(demand(**changes))
    assert pointer in [error["pointer"] for error in refused.value.errors]
