"""Rates of the system and per unit of what it takes."""

from __future__ import annotations

from models.checks import FloatArray
from models.evaluation import ScenarioEvaluation


def units_per_s(evaluation: ScenarioEvaluation) -> FloatArray:
    """Requests, images, steps or passes of the whole system [1/s]."""
    return evaluation.units_per_s


def tokens_per_s(evaluation: ScenarioEvaluation) -> FloatArray:
    """Output (or trained) tokens of the whole system [1/s]."""
    return evaluation.units_per_s * evaluation.tokens_per_unit


def tokens_per_s_per_chip(evaluation: ScenarioEvaluation) -> FloatArray:
    """Output tokens of one chip [1/s]."""
    return tokens_per_s(evaluation) / evaluation.n_chips


def tokens_per_s_per_w(evaluation: ScenarioEvaluation) -> FloatArray:
    """Output tokens per joule of all chips, which is tokens/s per watt of average power [1/J]."""
    return evaluation.tokens_per_unit / evaluation.energy_per_unit_j


def tokens_per_s_per_mm2(evaluation: ScenarioEvaluation) -> FloatArray:
    """Output tokens of one chip over its die area [1/(s mm2)]."""
    return tokens_per_s_per_chip(evaluation) / evaluation.figures.area_mm2


def tokens_per_s_per_usd(evaluation: ScenarioEvaluation) -> FloatArray:
    """Output tokens of one chip over its cost [1/(s USD)]."""
    return tokens_per_s_per_chip(evaluation) / evaluation.figures.unit_cost_usd
