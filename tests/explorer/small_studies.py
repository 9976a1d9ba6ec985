"""Study documents and problems small enough to be enumerated."""

import copy
import dataclasses
import itertools
import os

import numpy as np

from explorer.exact import ExactSearch
from explorer.objectives import Objective
from explorer.problem import judge_points
from explorer.space import read_space
from explorer.study import prepare, read_study

LONG = os.environ.get("CHIPFIT_LONG") == "1"

JUDGED_TOGETHER = 1000
"""Designs of a space that are judged at a time: all their inner choices at once would not fit the memory."""
"""Whether the random tests run in their slow, larger form."""

SPACE = {
    "array_shape": [[16, 16, 16], [64, 64, 4]],
    "stationarity": ["output"],
    "array_groups": [1],
    "arrays_per_core": [1, 4],
    "n_cores": [16, 96],
    "clock": [1.0, 1.6],
    "vector_lanes_per_core": [128],
    "scratchpad_per_core": [256],
    "l2": [16, 64],
    "noc_per_core": [128],
    "memory_kind": ["hbm3"],
    "memory_stacks": [1, 2, 4],
    "second_tier": ["none"],
    "scale_up_link": [0],
    "scale_out_link": [0],
    "native_formats": [["bf16", "fp8"]],
}
"""96 designs of one chip."""

CHAT = {
    "name": "chat",
    "kind": "llm_serving",
    "network": "llama-3.1-8b",
    "requests": {"input": {"mean": 600, "std": 200}, "output": {"mean": 150, "std": 50}},
    "batching": {"max_batch": 4},
}

STUDY = {
    "name": "small",
    "workload": {"scenarios": [CHAT]},
    "budget": {"area": "500 mm2", "tdp": "400 W"},
    "system": {"n_chips": 1},
    "space": SPACE,
    "quality": {"no_worse_than": "w8a8_kv8"},
    "objectives": [{"metric": "sustainable_output_tokens_per_s", "direction": "maximize"}],
    "search": {"sampler": "random", "trials": 40, "seed": 7, "target_gap": 0.0},
}

RATE = Objective("sustainable_output_tokens_per_s", True)
ENERGY = Objective("energy_per_output_token_j", False)
COST = Objective("usd_per_million_output_tokens", False)


def study(scenario=None, space=None, search=None, **changes):
    """A copy of `STUDY` with some entries exchanged."""
    document = copy.deepcopy(STUDY) | changes
    document["workload"]["scenarios"][0] |= scenario or {}
    document["search"] = document["search"] | (search or {})
    document["space"] = document["space"] | (space or {})
    return document


def problem_of(document):
    """The prepared problem of a document."""
    return prepare(read_study(document))


def with_limits(problem, *, area_mm2=None, unit_cost_usd=None, slo=None, objectives=None, space=None):
    """The problem under other limits, which need no new programs."""
    document, limits, scenarios = problem.document, problem.limits, problem.scenarios
    if area_mm2 is not None:
        budget = document.budget.model_copy(update={"area": area_mm2})
        document = document.model_copy(update={"budget": budget})
        limits = dataclasses.replace(limits, area_mm2=area_mm2)
    if unit_cost_usd is not None:
        limits = dataclasses.replace(limits, unit_cost_usd=unit_cost_usd)
    if slo is not None:
        scenarios = tuple(
            dataclasses.replace(each, scenario=dataclasses.replace(each.scenario, slo=slo)) for each in scenarios
        )
    return dataclasses.replace(
        problem, document=document, limits=limits, scenarios=scenarios, proofs=[],
        objectives=objectives or problem.objectives, space=space or problem.space,
    )  # fmt: skip


def all_points(space):
    """Every point of a space, shape (n_designs, n_parameters)."""
    return np.array(list(itertools.product(*[range(n) for n in space.sizes])))


def enumerated(problem):
    """Least cost of any feasible design, infinite where there is none: what an exact search must find."""
    points, best = all_points(problem.space), np.inf
    for start in range(0, len(points), JUDGED_TOGETHER):
        judgement = judge_points(problem, points[start : start + JUDGED_TOGETHER])
        cost = problem.objectives[0].sign * judgement.objectives[:, 0]
        best = min(best, float(np.min(np.where(judgement.feasible, cost, np.inf))))
    return best


def proven(problem, target_gap=0.0):
    """The exact search of the first objective, run to its end."""
    search = ExactSearch(problem, problem.objectives[0], target_gap)
    for _ in range(10_000):
        if search.complete:
            return search
        search.advance(1)
    raise AssertionError("the search did not end")


def random_space(rng, max_designs, links=False):
    """A sub-space of the full one with at most `max_designs` designs, values in any order."""
    choices = {
        "array_shape": [[8, 8, 8], [16, 16, 16], [32, 32, 1], [64, 32, 4], [128, 128, 1]],
        "stationarity": ["output", "weight"],
        "array_groups": [4, 1, 2],
        "arrays_per_core": [1, 2, 4, 8],
        "n_cores": [4, 8, 16, 32, 64, 96, 128],
        "clock": [0.8, 1.0, 1.2, 1.5, 1.8, 2.1],
        "vector_lanes_per_core": [16, 64, 256],
        "scratchpad_per_core": [64, 128, 256, 512, 2048],
        "l2": [0, 8, 24, 48, 128],
        "noc_per_core": [32, 64, 256],
        "memory_kind": ["hbm3", "hbm3e", "gddr6", "hbm2e", "lpddr5x"],
        "memory_stacks": [1, 2, 3, 5, 8],
        "second_tier": ["none", "lpddr5x_256gb", "cxl_512gb"],
        "scale_up_link": [0, 50, 200, 600] if links else [0, 100],
        "scale_out_link": [0, 50],
        "native_formats": [["bf16"], ["bf16", "fp8"], ["bf16", "int8"], ["bf16", "fp8", "int8"]],
    }
    space = {name: [values[int(rng.integers(len(values)))]] for name, values in choices.items()}
    size = 1
    for name in rng.permutation(list(choices)):
        room = min(len(choices[name]), max_designs // size)
        n = int(rng.integers(1, room + 1))
        picked = rng.choice(len(choices[name]), size=n, replace=False)
        space[name] = [choices[name][int(i)] for i in picked]
        size *= n
    return read_space(space)
