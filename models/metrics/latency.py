"""Latencies of the closed form: lower bounds without queueing."""

from __future__ import annotations

from models.checks import FloatArray
from models.evaluation import ScenarioEvaluation


def ttft_s(evaluation: ScenarioEvaluation) -> FloatArray:
    """Own prompt at its 95th percentile and one step, no queue [s]."""
    return evaluation.ttft_s


def tpot_s(evaluation: ScenarioEvaluation) -> FloatArray:
    """Mean time between tokens of a running sequence [s]."""
    return evaluation.tpot_s


def step_s(evaluation: ScenarioEvaluation) -> FloatArray:
    """One step of the system [s]."""
    return evaluation.step_s
