"""The precision section of an explanation: what it states and that its numbers hang together."""

import json

import numpy as np
import pytest

from explorer.inner_optimum import Operation
from explorer.module_returns import RESOURCES, module_resource_return
from explorer.precision_report import precision_report
from explorer.problem import judge_points
from explorer.records import records_of
from explorer.report import result_document
from models.architectures.plans import ParallelPlan
from models.hardware.design import reference_design, replace
from models.precision.mix import RECIPES
from tests.explorer.small_studies import CHAT, RATE, problem_of, study
from tests.models.serving_scenarios import scenario


def best_record(problem):
    rng = np.random.default_rng(0)
    points = np.stack([rng.integers(0, size, 30) for size in problem.space.sizes], axis=1)
    records = records_of(problem, points, judge_points(problem, points), 0)
    return max((r for r in records if r.feasible), key=lambda r: r.objectives[0]), records


PROBLEM = problem_of(study(quality={"no_worse_than": "deepseek_v3"}))
BEST, RECORDS = best_record(PROBLEM)
REPORT = precision_report(PROBLEM, BEST)


def test_error_bill_adds_to_the_error_of_the_mix_within_the_budget():
    assert sum(row["kl_nats"] for row in REPORT["modules"]) == pytest.approx(REPORT["kl_nats"])
    assert sum(row["error_share_fraction"] for row in REPORT["modules"]) == pytest.approx(1.0)
    assert REPORT["kl_nats"] <= REPORT["budget_nats"] * (1 + 1e-9)


def test_savings_of_modules_add_to_those_of_the_whole_mix():
    whole = REPORT["against_bf16"]
    assert sum(row["weight_bytes_saved"] for row in REPORT["modules"]) == pytest.approx(
        whole["weight_bytes_bf16"] - whole["weight_bytes"], rel=1e-9
    )
    saved_s = whole["step_time_bf16_s"] - whole["step_time_s"]
    assert sum(row["step_time_saved_s"] for row in REPORT["modules"]) == pytest.approx(saved_s, rel=0.1)


def test_the_exact_mix_is_never_worse_than_the_one_searched_with():
    exact = REPORT["exact_mix"]
    assert exact["gain_fraction"] >= 0
    assert exact["kl_nats"] <= REPORT["budget_nats"] * (1 + 1e-9)
    assert exact["n_combinations"] > 1000 * exact["n_evaluated"]


def test_a_larger_error_budget_never_costs_more_and_its_price_is_stated():
    costs = [row["cost_ratio"] for row in REPORT["price_of_quality"]["budgets"] if row["cost_ratio"] is not None]
    assert len(costs) >= 4
    assert np.all(np.diff(costs) <= 1e-12)
    assert 0 <= REPORT["price_of_quality"]["saved_fraction"] < 0.2


def test_every_module_of_the_error_bill_has_a_class_with_advice():
    classified = {row["module"] for row in REPORT["classes"]["modules"]}
    assert {row["module"] for row in REPORT["modules"]} <= classified
    assert all(row["advice"] for row in REPORT["classes"]["modules"])
    assert all(set(row["module_resource_return"]) == set(RESOURCES) for row in REPORT["classes"]["modules"])


def test_returns_are_shares_of_what_the_whole_design_gets_from_the_resource():
    operation = Operation(
        scenario(mixes=("bf16",)), replace(reference_design(), tdp_w=1500.0), ParallelPlan(), 8, (RATE,)
    )
    returns = module_resource_return(operation, RECIPES["bf16"])
    bandwidth = {module: row["memory_bandwidth"] for module, row in returns.items()}
    assert 0.5 < sum(bandwidth.values()) <= 1.0
    assert max(bandwidth, key=lambda module: bandwidth[module]) == "ffn_up"
    assert bandwidth["query"] == 0.0


def test_the_result_of_a_study_carries_the_section_and_stays_json():
    document = result_document(PROBLEM, RECORDS)
    section = json.loads(json.dumps(document["explanation"]["precision"], allow_nan=False))
    assert section["mix"] == document["recommended"]["operating_point"]["precision_mix"]


def test_several_scenarios_have_one_report_each():
    second = CHAT | {"name": "second", "requests": {"input": {"mean": 200}, "output": {"mean": 50}}}
    document = study(objectives=[{"metric": "combined_relative_rate", "direction": "maximize"}])
    document["workload"]["scenarios"].append(second)
    problem = problem_of(document)
    record, _ = best_record(problem)
    reports = precision_report(problem, record)
    assert set(reports) == {"chat", "second"}
    assert all(report["modules"] for report in reports.values())


def test_without_a_quality_budget_the_exact_mix_is_no_worse_than_the_one_chosen():
    document = study()
    del document["quality"]
    problem = problem_of(document)
    record, _ = best_record(problem)
    report = precision_report(problem, record)
    assert report["budget_nats"] == report["kl_nats"]
