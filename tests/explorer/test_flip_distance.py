"""Flip distances: a constant moved beyond them recommends another candidate, short of them the same."""

import copy
import dataclasses

import numpy as np
import pytest

from explorer.flip_distance import candidates_of, flip_distances
from explorer.problem import judge_designs
from explorer.report import designs_of
from explorer.study import n_chunks, prepare, read_study, run_chunk
from tests.explorer.small_studies import STUDY

CONSTANTS = ("area.matrix_multiplier_mm2", "memory.price_usd_per_byte:hbm3", "cost.fab_grid_kgco2e_per_kwh",
             "node.wafer_price_used")  # fmt: skip


@pytest.fixture(scope="module")
def studied():
    document = copy.deepcopy(STUDY)
    document["objectives"] = [{"metric": "usd_per_million_output_tokens", "direction": "minimize"}]
    problem, records = prepare(read_study(document)), []
    for chunk in range(n_chunks(problem)):
        records += run_chunk(problem, records, chunk)
    return problem, records, flip_distances(problem, records, CONSTANTS)


def winner(problem, candidates, technology):
    judged = judge_designs(dataclasses.replace(problem, technology=technology), designs_of(problem, candidates))
    return candidates[int(np.argmin(np.where(judged.feasible, judged.objectives[:, 0], np.inf)))].number


def test_beyond_the_distance_another_candidate_wins_and_short_of_it_the_same(studied):
    problem, records, flips = studied
    candidates, flip = candidates_of(problem, records), flips[0]
    group, name = flip["constant"].split(".")
    value = problem.technology.constants[group][name]
    for share, expected in ((0.95, candidates[0].number), (1.0, flip["instead"])):
        moved = problem.technology.with_constant(group, name, value * (1 + flip["relative_change"]) ** share)
        assert winner(problem, candidates, moved) == expected
    assert flip["instead"] != candidates[0].number


def test_the_nearest_constant_comes_first_and_one_that_judges_nothing_never_flips(studied):
    flips = studied[2]
    known = [each["distance"] for each in flips if each["distance"] is not None]
    assert known and known == sorted(known)
    by_name = {each["constant"]: each for each in flips}
    assert len(by_name) == len(CONSTANTS)
    assert by_name["cost.fab_grid_kgco2e_per_kwh"]["relative_change"] is None


def test_candidates_begin_with_the_recommended_design_and_hold_better_ones_that_miss_a_limit(studied):
    problem, records, _ = studied
    candidates = candidates_of(problem, records)
    feasible = [record for record in records if record.feasible]
    assert candidates[0].objectives[0] == min(record.objectives[0] for record in feasible)
    missed = [each for each in candidates if not each.feasible]
    assert all(each.objectives[0] < candidates[0].objectives[0] for each in missed)
    assert len({tuple(map(str, each.params.values())) for each in candidates}) == len(candidates)


def test_without_a_second_design_there_is_nothing_to_flip_to(studied):
    problem, records, _ = studied
    assert flip_distances(problem, [next(record for record in records if record.feasible)]) == []
