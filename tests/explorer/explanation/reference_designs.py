"""Designs of the reference studies that a search had recommended, at work."""

import dataclasses
import functools
from pathlib import Path

import numpy as np

from explorer.explanation.work import work_of
from explorer.files import read_yaml
from explorer.objectives import REGRET
from explorer.problem import judge_designs
from explorer.space import designs_at, point_of
from explorer.study import prepare, read_study

EXAMPLES = Path("examples")

COMMON = {"second_tier": "none", "scale_out_link": 0, "scale_up_link": 0}
PARAMS = {
    "chat-550-150": COMMON
    | {
        "array_shape": [16, 8, 8],
        "stationarity": "weight",
        "array_groups": 1,
        "arrays_per_core": 4,
        "n_cores": 96,
        "clock": 1.4,
        "vector_lanes_per_core": 64,
        "scratchpad_per_core": 256,
        "l2": 0,
        "noc_per_core": 128,
        "memory_kind": "hbm3e",
        "memory_stacks": 5,
        "native_formats": ["bf16", "fp8"],
    },
    "edge": COMMON
    | {
        "array_shape": [8, 8, 8],
        "stationarity": "weight",
        "array_groups": 4,
        "arrays_per_core": 2,
        "n_cores": 6,
        "clock": 2.2,
        "vector_lanes_per_core": 128,
        "scratchpad_per_core": 256,
        "l2": 0,
        "noc_per_core": 256,
        "memory_kind": "lpddr5x",
        "memory_stacks": 8,
        "native_formats": ["bf16"],
    },
    "azure-conversation": COMMON
    | {
        "array_shape": [16, 8, 8],
        "stationarity": "weight",
        "array_groups": 1,
        "arrays_per_core": 2,
        "n_cores": 144,
        "clock": 2.1,
        "vector_lanes_per_core": 16,
        "scratchpad_per_core": 256,
        "l2": 0,
        "noc_per_core": 64,
        "memory_kind": "hbm3e",
        "memory_stacks": 4,
        "native_formats": ["bf16"],
    },
    "training": COMMON
    | {
        "array_shape": [128, 128, 1],
        "stationarity": "output",
        "array_groups": 2,
        "arrays_per_core": 1,
        "n_cores": 12,
        "clock": 1.3,
        "vector_lanes_per_core": 512,
        "scratchpad_per_core": 192,
        "l2": 16,
        "noc_per_core": 256,
        "memory_kind": "lpddr5x",
        "memory_stacks": 6,
        "scale_up_link": 50,
        "scale_out_link": 100,
        "native_formats": ["bf16", "fp8"],
    },
    "vision-and-chat": COMMON
    | {
        "array_shape": [64, 64, 1],
        "stationarity": "output",
        "array_groups": 2,
        "arrays_per_core": 1,
        "n_cores": 8,
        "clock": 1.4,
        "vector_lanes_per_core": 32,
        "scratchpad_per_core": 384,
        "l2": 96,
        "noc_per_core": 64,
        "memory_kind": "hbm2e",
        "memory_stacks": 1,
        "scale_up_link": 300,
        "scale_out_link": 50,
        "native_formats": ["bf16", "fp8"],
    },
}
"""Study -> parameters."""


@functools.cache
def problem_of(name):
    """The problem of a reference study, without objectives that need a search."""
    problem = prepare(read_study(read_yaml(EXAMPLES / f"{name}.yaml")), EXAMPLES)
    kept = tuple(each for each in problem.objectives if each.metric != REGRET)
    return dataclasses.replace(problem, objectives=kept)


def point_in(name):
    """Where the design lies in the study's space, shape (n_parameters,)."""
    return point_of(problem_of(name).space, PARAMS[name])


@functools.cache
def judged(name):
    """The design of a reference study at its best operating point."""
    problem = problem_of(name)
    document = problem.document
    designs = designs_at(
        problem.space, point_in(name)[None, :], node_nm=document.technology.node_nm, tdp_w=document.budget.tdp
    )
    judgement = judge_designs(problem, designs)
    assert np.all(np.isfinite(judgement.objectives))
    return judgement


@functools.cache
def work_on(name):
    """The same at work."""
    return work_of(problem_of(name), judged(name).designs, judged(name).chosen)
