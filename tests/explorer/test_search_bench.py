"""Samplers against the certified optimum: gaps are shares of it, random is always there, bad names are refused."""

import pytest

from explorer.document import StudyError
from explorer.search_bench import search_quality
from tests.explorer.small_studies import study


def test_gaps_fall_with_trials_and_vanish_once_every_design_was_judged():
    rows = search_quality({"small": (study(), None)}, ["tpe"], n_seeds=2, budgets=(10, 40, 96))
    (row,) = rows
    assert row["certified"]["complete"] and row["certified"]["gap"] == 0.0
    assert {each["sampler"] for each in row["samplers"]} == {"random", "tpe"}
    for name in ("random", "tpe"):
        gaps = [each["gap_median"] for each in row["samplers"] if each["sampler"] == name]
        assert sorted(gaps, reverse=True) == gaps
        assert gaps[-1] == pytest.approx(0.0, abs=1e-9)


def test_a_front_is_compared_by_hypervolume_which_grows_to_all_of_it():
    rate, cost = study()["objectives"][0], {"metric": "usd_per_million_output_tokens", "direction": "minimize"}
    document = study(objectives=[rate, cost], quality={"no_worse_than": "bf16"})
    (row,) = search_quality({"small": (document, None)}, ["nsga2", "cmaes"], n_seeds=1, budgets=(5, 96))
    assert row["front"]["complete"] and row["front"]["members"] >= 1
    found = {(each["sampler"], each["trials"]): each["hypervolume_ratio"] for each in row["samplers"]}
    for name in ("random", "nsga2"):
        assert 0 <= found[name, 5] <= found[name, 96] + 1e-12
        # every design was judged, each at the operating point that serves both objectives together
        assert 0.9 < found[name, 96] < 1.02
    assert found["cmaes", 96] is None


def test_a_proof_without_time_is_said_to_give_nothing_to_compare_with(monkeypatch):
    monkeypatch.setattr("explorer.search_bench.CERTIFY_S", 0.0)
    with pytest.raises(StudyError, match="no feasible design was found to compare with"):
        search_quality({"small": (study(), None)}, n_seeds=1, budgets=(5,))


def test_an_exhaustive_search_is_no_sampler_to_compare():
    with pytest.raises(StudyError, match="unknown sampler 'exhaustive'"):
        search_quality({"small": (study(), None)}, ["exhaustive"])


def test_an_unknown_sampler_is_refused_by_name():
    with pytest.raises(StudyError, match="unknown sampler 'tpee', did you mean 'tpe'"):
        search_quality({"small": (study(), None)}, ["tpee"])
