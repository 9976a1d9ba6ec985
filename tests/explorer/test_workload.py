"""Scenarios of every kind from a study document, and what is refused of them."""

import copy
from pathlib import Path

import numpy as np
import pytest
import yaml

from explorer.bounds import alternative_costs, bound_boxes
from explorer.boxes import idle_parameters, mixture_point_boxes
from explorer.document import StudyError
from explorer.evaluation import evaluate_document
from explorer.exact import ExactSearch
from explorer.files import read_yaml
from explorer.objectives import COMBINED, Objective
from explorer.problem import judge_points, prepare
from explorer.regret import alone, bests
from explorer.run import explore_study
from explorer.study import read_study
from tests.explorer.small_studies import CHAT, SPACE, all_points, problem_of, study

EXAMPLES = Path(__file__).parents[2] / "examples"
VISION = {"name": "vision", "kind": "convnet", "network": "resnet-50", "batch": 4}
LIST = {"name": "list", "kind": "gemm_list", "rows": [{"m": 512, "n": 512, "k": 512, "count": 2}]}
TRAINING = {
    "name": "training", "kind": "training", "network": "llama-3.1-8b", "sequence_tokens": 1024,
    "global_batch_sequences": 16, "precision": "deepseek_v3_training",
}  # fmt: skip
FEW_POINTS = {name: values[:1] for name, values in SPACE.items() if name not in ("n_cores", "clock", "memory_stacks")}


def of_kind(scenario, metric="units_per_s", direction="maximize", **changes):
    """A small study of one scenario."""
    budget = {"area": "800 mm2", "tdp": "600 W"}
    document = study(objectives=[{"metric": metric, "direction": direction}], budget=budget, **changes)
    document["workload"]["scenarios"] = [copy.deepcopy(scenario)]
    return document


def mixture(**changes):
    """Vision and chat on one chip, judged by combined rate and regret, in 18 designs."""
    objectives = [
        {"metric": "combined_relative_rate", "direction": "maximize"},
        {"metric": "regret", "direction": "minimize"},
    ]
    document = study(objectives=objectives, space=FEW_POINTS, **changes)
    document["workload"]["scenarios"] = [copy.deepcopy(VISION) | {"weight": 0.5}, copy.deepcopy(CHAT) | {"weight": 0.5}]
    return document


@pytest.mark.parametrize("file", sorted(p.name for p in EXAMPLES.glob("*.yaml") if "objectives" in read_yaml(p)))
def test_every_reference_study_is_prepared(file):
    problem = prepare(read_study(yaml.safe_load((EXAMPLES / file).read_text())), EXAMPLES)
    assert all(each.n_alternatives > 0 for each in problem.scenarios)


@pytest.mark.parametrize(
    ("scenario", "metric", "system"),
    [
        (VISION, "images_per_s", {"n_chips": 1}),
        (LIST, "units_per_s", {"n_chips": 4}),
        (TRAINING, "trained_tokens_per_s_per_w", {"n_chips": 16, "n_chips_per_node": 8}),
    ],
    ids=["convnet", "gemm_list", "training"],
)
class TestEveryKind:
    def test_runs_through_a_study_and_says_how_it_is_used(self, scenario, metric, system):
        document = of_kind(scenario, metric, system=system, search={"trials": 12})
        document["space"] |= {"memory_stacks": [4]}
        result = explore_study(document, None, lambda done, total: None)
        assert result["evaluated"] == 12
        assert result["feasible"]
        assert result["recommended"]["metrics"]["area_mm2"] <= 800
        assert result["recommended"]["operating_point"]["precision_mix"]
        assert result["recommended"]["metrics"][metric] > 0

    def test_exact_search_finds_the_best_of_all_designs(self, scenario, metric, system):
        document = of_kind(scenario, metric, system=system)
        document["space"] |= {"memory_stacks": [4]}
        problem = problem_of(document)
        judgement = judge_points(problem, all_points(problem.space))
        best = judgement.objectives[judgement.feasible, 0].max()
        search = ExactSearch(problem, Objective(metric, True), 0.0)
        while not search.complete:
            search.advance(1)
        assert -search.incumbent.cost == pytest.approx(best, rel=1e-9)


def test_links_that_no_kind_of_work_uses_are_idle():
    document = of_kind(VISION, system={"n_chips": 8, "n_chips_per_node": 4})
    assert set(idle_parameters(problem_of(document))) == {"second_tier", "scale_up_link", "scale_out_link"}
    document = of_kind(TRAINING, system={"n_chips": 16, "n_chips_per_node": 8})
    assert set(idle_parameters(problem_of(document))) == {"second_tier"}


def test_a_list_of_gemms_is_read_from_a_file_beside_the_study(tmp_path):
    (tmp_path / "list.csv").write_text("m,n,k,count,format\n512,512,512,2,\n64,64,64,1,bf16\n")
    scenario = {"name": "list", "kind": "gemm_list", "file": "list.csv"}
    problem = prepare(read_study(of_kind(scenario)), tmp_path)
    assert len(problem.scenarios[0].program.terms) == 2


def test_a_layer_table_beside_the_study_is_a_network(tmp_path):
    (tmp_path / "mine.csv").write_text("in_h,in_w,in_c,out_c,kernel_h,kernel_w\n8,8,16,32,1,1\n")
    problem = prepare(read_study(of_kind(VISION | {"network": "mine.csv"})), tmp_path)
    assert problem.scenarios[0].kind == "convnet"


def test_without_a_quality_budget_other_work_stays_in_16_bit():
    document = of_kind(VISION)
    del document["quality"]
    assert [mix.name for mix in problem_of(document).qualities[0].mixes] == ["bf16"]


class TestMixtures:
    def test_bounds_use_the_technology_of_the_study(self):
        static = {"quantity": "static_w_per_mm2", "value": 0.9, "unit": "W/mm2", "source": "own silicon"}
        plain, ours = mixture(), mixture()
        ours["technology"] = {"node_nm": 5, "overlay": [static]}
        rates = []
        for problem in map(problem_of, (plain, ours)):
            points, idle = all_points(problem.space), np.zeros(problem.space.n_designs, dtype=np.int64)
            objectives = (Objective(COMBINED, True),)
            exact = alternative_costs(problem, points, idle, idle, objectives)[0][:, 0, 0]
            bound = bound_boxes(problem, mixture_point_boxes(problem, points), objectives).cost[:, 0]
            np.testing.assert_allclose(bound, exact, rtol=1e-8)
            rates.append(exact)
        assert np.isfinite(rates[0]).any() and not np.array_equal(*rates)

    def test_regret_is_the_largest_loss_against_the_best_of_each_scenario_alone(self):
        problem = problem_of(mixture())
        points = all_points(problem.space)
        judgement = judge_points(problem, points)
        losses = []
        for i, each in enumerate(judgement.evaluations):
            single = judge_points(alone(problem, i), points)
            best = single.objectives[single.feasible, 0].max()
            losses.append(1 - each.units_per_s[:, 0] / best)
        regret = judgement.objectives[judgement.feasible, 1]
        exact = np.max(losses, axis=0)[judgement.feasible]
        assert (regret >= exact - 1e-9).all()
        assert (regret <= exact + 0.011).all()

    def test_no_design_beats_the_best_rate_of_a_scenario(self):
        problem = problem_of(mixture())
        judgement = judge_points(problem, all_points(problem.space))
        for best, each in zip(bests(problem)[0], judgement.evaluations, strict=True):
            assert (each.units_per_s[judgement.feasible, 0] <= best * (1 + 1e-9)).all()

    def test_the_combined_rate_of_equal_scenarios_is_their_relative_rate(self):
        document = of_kind(VISION, "images_per_s")
        twin = [VISION | {"name": name} for name in ("first", "second")]
        both = of_kind(VISION, "combined_relative_rate")
        both["workload"]["scenarios"] = twin
        points = all_points(problem_of(document).space)[:5]
        single, double = problem_of(document), problem_of(both)
        rate = judge_points(single, points).objectives[:, 0] / double.mixture.reference_units_per_s[0]
        np.testing.assert_allclose(judge_points(double, points).objectives[:, 0], rate)

    def test_each_scenario_has_its_own_operating_point_and_metrics(self):
        result = explore_study(mixture(search={"trials": 8}), None, lambda done, total: None)
        best = result["recommended"]
        assert set(best["operating_point"]) == set(best["metrics"]["scenarios"]) == {"vision", "chat"}
        assert best["operating_point"]["vision"]["lowering"] in ("direct", "im2col")
        assert 0 <= best["metrics"]["regret"] < 1

    def test_exact_search_proves_the_least_regret(self):
        problem = problem_of(mixture())
        judgement = judge_points(problem, all_points(problem.space))
        search = ExactSearch(problem, Objective("regret", False), 0.0)
        while not search.complete:
            search.advance(1)
        least = judgement.objectives[judgement.feasible, 1].min()
        assert search.objective.value(search.incumbent.cost) == pytest.approx(least, abs=1e-9)


def test_the_reference_chip_itself_has_a_relative_rate_of_one():
    document = mixture()
    document["workload"]["scenarios"][1] |= {"slo": {"tpot_p95": "30 ms"}}
    answer = evaluate_document({"chip": "a100_sxm", "study": document})
    assert answer["metrics"]["combined_relative_rate"] == pytest.approx(1.0)


def test_a_chip_is_evaluated_on_a_mixture_without_searching_the_space():
    answer = evaluate_document({"chip": "h100_sxm", "study": mixture()})
    assert answer["metrics"]["combined_relative_rate"] > 1
    assert "regret" not in answer["metrics"]
    assert answer["serves"]


@pytest.mark.parametrize("scenario", [VISION, LIST, TRAINING], ids=lambda s: s["kind"])
def test_the_newer_chip_is_ahead_by_less_than_its_resources_are(scenario):
    # H100 over A100: 3.2 times the bf16 rate, 6.3 times with fp8, 1.6 times the bandwidth
    study = of_kind(scenario, system={"n_chips": 16, "n_chips_per_node": 8})
    a100, h100 = (evaluate_document({"chip": chip, "study": study}) for chip in ("a100_sxm", "h100_sxm"))
    assert 1.2 < h100["metrics"]["units_per_s"] / a100["metrics"]["units_per_s"] < 6.5


def refused(document, folder=None):
    with pytest.raises(StudyError) as caught:
        prepare(read_study(document), folder)
    return str(caught.value)


@pytest.mark.parametrize(
    ("scenario", "message"),
    [
        (VISION | {"network": "resnet-51"}, "unknown convolution network 'resnet-51', did you mean 'resnet-50'"),
        (VISION | {"batch": 0}, "batch: Input should be greater than or equal to 1"),
        (VISION | {"network": "../secret.csv"}, "network: unknown convolution network"),
        (LIST | {"rows": []}, "rows: List should have at least 1 item"),
        (LIST | {"file": "list.csv"}, "must hold exactly one of rows and file"),
        (LIST | {"rows": [{"m": 10**10, "n": 1, "k": 1}]}, "rows.0.m: Input should be less than or equal to"),
        (LIST | {"rows": [{"m": 1, "n": 1, "k": 1, "format": "bf17"}]}, "unknown format in rows[0] 'bf17'"),
        (TRAINING | {"precision": "bf16"}, "precision: precision mix 'bf16' must state formats of gradients"),
        (TRAINING | {"sequence_tokens": 200_000}, "sequence_tokens must be at most 131072, the context"),
        (TRAINING | {"global_batch_sequences": 7, "plan": {}}, "global_batch_sequences must be a multiple"),
        (TRAINING | {"plan": {"tensor_parallel": 3}}, "plan: tensor_parallel x pipeline_parallel must divide 16 chips"),
        (TRAINING | {"network": "bert-base"}, "network bert-base must be a decoder"),
        (TRAINING | {"plan": {"tensor_parallel": 1, "pipeline_parallel": 16, "zero_stage": 9}}, "zero_stage"),
        (CHAT | {"network": "bert-base"}, "llm_serving needs a decoder"),
        (CHAT | {"network": "vit-b-16"}, "llm_serving needs a decoder"),
        (CHAT | {"requests": {"histogram": [{"input": 2e5, "output": 1, "weight": 1}]}}, "at most 131072, the context"),
        (VISION | {"reference_chip": "a100"}, "reference_chip: unknown chip 'a100'"),
    ],
)  # fmt: skip
def test_bad_scenarios_are_refused_at_their_field(scenario, message):
    document = of_kind(scenario, system={"n_chips": 16, "n_chips_per_node": 8})
    assert message in refused(document)


def test_a_json_network_of_huge_or_negative_dimensions_is_refused_by_name():
    config = {
        "model_type": "llama", "hidden_size": -4096, "num_hidden_layers": 2, "num_attention_heads": 32,
        "intermediate_size": 10**15, "vocab_size": 32000, "max_position_embeddings": 4096,
    }  # fmt: skip
    assert "hidden_size" in refused(of_kind(CHAT | {"network": config}))
    assert "intermediate_size" in refused(of_kind(CHAT | {"network": config | {"hidden_size": 4096}}))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("arrival_s,input_tokens,output_tokens\n0,100,10\n1,0,10\n", "line 3, column 'input_tokens'"),
        ("arrival_s,input_tokens,output_tokens\n-1,100,10\n", "line 2, column 'arrival_s': must be zero or positive"),
        (
            "arrival_s,input_tokens,output_tokens\n5,100,10\n1,100,10\n",
            "line 3, column 'arrival_s': must not be before",
        ),
        ("arrival_s,input_tokens,output_tokens\n0,200000,10\n", "at most 131072, the context of llama-3.1-8b"),
        ("", "the trace is empty"),
        (b"arrival_s,input_tokens,output_tokens\n0,\xff\xfe,1\n", "must be UTF-8 text"),
    ],
    ids=["zero tokens", "negative arrival", "unsorted", "beyond the context", "empty", "not UTF-8"],
)
def test_bad_traces_are_refused_with_line_and_column(tmp_path, content, message):
    (tmp_path / "trace.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    assert message in refused(of_kind(CHAT | {"requests": {"trace": "trace.csv"}}), tmp_path)


def test_a_reference_chip_that_cannot_hold_a_scenario_is_refused():
    document = mixture()
    document["workload"]["scenarios"][1] |= {"network": "llama-3.1-70b", "reference_chip": "a40"}
    assert "scenarios.1.reference_chip: must hold the scenario in its memory, a40 does not" in refused(document)


class TestTrainingQuality:
    SYSTEM = {"n_chips": 16, "n_chips_per_node": 8}

    def result(self, **quality):
        document = of_kind(TRAINING, system=self.SYSTEM, search={"trials": 6}, quality=quality)
        document["space"] |= {"memory_stacks": [4]}
        return explore_study(document, None, lambda done, total: None)

    def test_a_recipe_whose_forward_formats_exceed_the_budget_gives_a_result_that_says_so(self):
        result = self.result(no_worse_than="bf16")
        assert not result["feasible"]
        assert result["binding_limit"]["limit"] == "quality"

    def test_the_explanation_states_errors_of_gradients_and_margins_of_the_stored_state(self):
        section = self.result(no_worse_than="deepseek_v3")["explanation"]["precision"]
        assert section["kl_nats"] == pytest.approx(section["budget_nats"])
        training = section["training"]
        assert training["weight_gradient_error_ratio"]["ffn_up"] == pytest.approx(0.0364, rel=0.02)
        margins = {row["module"]: row.get("margin_ratio") for row in training["state"]}
        assert set(margins) == {"gradient_storage", "master_weight", "first_moment", "second_moment"}
        assert all(margin > 1 for margin in margins.values() if margin is not None)
        assert training["state_bytes_per_parameter"] == 12
        assert "gradients" in training["in_budget"]
