"""Energy and power of the work."""

from __future__ import annotations

from models.checks import FloatArray
from models.evaluation import ScenarioEvaluation


def energy_per_unit_j(evaluation: ScenarioEvaluation) -> FloatArray:
    """All chips, static power included, per request, image, step or pass [J]."""
    return evaluation.energy_per_unit_j


def energy_per_token_j(evaluation: ScenarioEvaluation) -> FloatArray:
    """All chips, static power included, per output (or trained) token [J]."""
    return evaluation.energy_per_unit_j / evaluation.tokens_per_unit


def average_power_w(evaluation: ScenarioEvaluation) -> FloatArray:
    """One chip at the sustainable rate [W]."""
    return evaluation.average_power_w


def tdp_w(evaluation: ScenarioEvaluation) -> FloatArray:
    """Power that one chip must be rated for: full-rate power, or the cap under which its clock settles [W]."""
    return evaluation.figures.tdp_w


def full_rate_power_w(evaluation: ScenarioEvaluation) -> FloatArray:
    """All arrays, memory and links of one chip busy at the highest clock, cap aside [W]."""
    return evaluation.figures.full_rate_power_w


def static_power_w(evaluation: ScenarioEvaluation) -> FloatArray:
    """One chip with nothing switching [W]."""
    return evaluation.figures.static_w
