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


def test_an_unknown_sampler_is_refused_by_name():
    with pytest.raises(StudyError, match="unknown sampler 'tpee', did you mean 'tpe'"):
        search_quality({"small": (study(), None)}, ["tpee"])
