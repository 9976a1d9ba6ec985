"""The journal of a study is one that Optuna reads, trial for trial."""

import optuna
import pytest

from explorer.optuna_journal import optuna_journal
from explorer.study import run_chunk
from tests.explorer.small_studies import problem_of, study


@pytest.fixture(scope="module")
def run():
    objectives = [
        {"metric": "sustainable_output_tokens_per_s", "direction": "maximize"},
        {"metric": "unit_cost_usd", "direction": "minimize"},
    ]
    problem = problem_of(study(objectives=objectives, search={"trials": 20}))
    return problem, run_chunk(problem, [], 0)


def loaded(tmp_path, problem, pages):
    path = tmp_path / "study.journal.log"
    path.write_text("".join(optuna_journal(problem.document, pages)))
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path)))
    return optuna.load_study(study_name="small", storage=storage)


def test_every_trial_comes_back_with_values_constraints_and_parameters(run, tmp_path):
    problem, records = run
    back = loaded(tmp_path, problem, [records[:7], records[7:]])
    assert [each.name for each in back.directions] == ["MAXIMIZE", "MINIMIZE"]
    assert back.user_attrs["metrics"] == ["sustainable_output_tokens_per_s", "unit_cost_usd"]
    assert [trial.values for trial in back.trials] == [record.objectives for record in records]
    assert [trial.number for trial in back.trials] == [record.number for record in records]
    assert [trial.constraints for trial in back.trials] == [record.excess for record in records]
    assert back.trials[3].params["n_cores"] == records[3].params["n_cores"]
    assert back.trials[3].params["array_shape"] in ("[16, 16, 16]", "[64, 64, 4]")
    assert back.trials[3].user_attrs["operating_point"] == records[3].operating_point


def test_the_best_trials_of_optuna_are_the_feasible_front(run, tmp_path):
    problem, records = run
    back = loaded(tmp_path, problem, [records])
    feasible = {record.number for record in records if record.feasible}
    assert {trial.number for trial in back.best_trials} <= feasible


def test_a_study_without_trials_is_a_journal_too(run, tmp_path):
    assert loaded(tmp_path, run[0], []).trials == []
