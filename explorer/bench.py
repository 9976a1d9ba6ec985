"""How fast designs are evaluated on this machine."""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np

from explorer.document import StudyError
from explorer.files import parse_yaml
from explorer.problem import judge_points
from explorer.study import prepare, read_study

BLOCK_DESIGNS = 256
"""Designs evaluated in one call."""

CHAT = """
name: chat
workload:
  scenarios:
    - name: chat
      kind: llm_serving
      network: llama-3.1-70b
      requests: {preset: llmperf-550-150}
      slo: {ttft_p95: 1 s, tpot_p95: 50 ms}
budget: {area: 600 mm2, tdp: 500 W}
technology: {node_nm: 5}
system: {n_chips: 8, n_chips_per_node: 8}
objectives:
  - {metric: sustainable_output_tokens_per_s_per_w, direction: maximize}
"""
"""The work of `examples/chat-550-150.yaml` with the three mixes that compete where no quality budget is stated."""


def evaluation_speed(n_processes: int = 2, seconds: float = 5.0) -> dict[str, Any]:
    """
    Return how many random designs of the full space are judged per second, nothing shared between them.

    Every design is judged at all its inner choices: degrees, mixes, batches. Compilation and start-up are left out.

    Parameters
    ----------
    n_processes : int
        Processes that evaluate at the same time, one thread each.
    seconds : float
        Time that each process measures. [s]
    """
    if n_processes < 1 or not seconds > 0:
        raise StudyError([{"pointer": "", "detail": "processes and seconds must be positive"}])
    with ProcessPoolExecutor(n_processes, mp_context=get_context("spawn")) as pool:
        parts = list(pool.map(_measure, range(n_processes), [seconds] * n_processes))
    return {
        "designs_per_s": sum(part["designs_per_s"] for part in parts),
        "processes": n_processes,
        "alternatives_per_design": parts[0]["alternatives"],
        "mixes": parts[0]["mixes"],
    }


def _measure(seed: int, seconds: float) -> dict[str, Any]:
    problem = prepare(read_study(parse_yaml(CHAT, "chat")))
    rng = np.random.default_rng(seed)
    sizes = problem.space.sizes
    judge_points(problem, rng.integers(0, sizes, size=(BLOCK_DESIGNS, len(sizes))))
    started, judged = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        judge_points(problem, rng.integers(0, sizes, size=(BLOCK_DESIGNS, len(sizes))))
        judged += BLOCK_DESIGNS
    scenario = problem.scenarios[0]
    return {
        "designs_per_s": judged / (time.perf_counter() - started),
        "alternatives": scenario.n_alternatives,
        "mixes": [mix.name for mix in scenario.scenario.mixes],  # type: ignore[union-attr]
    }
