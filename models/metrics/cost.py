"""Area and money."""

from __future__ import annotations

from models.checks import FloatArray
from models.evaluation import ScenarioEvaluation

MILLION = 1e6
HOUR_S = 3600.0


def area_mm2(evaluation: ScenarioEvaluation) -> FloatArray:
    """Compute dies of one chip [mm2]."""
    return evaluation.figures.area_mm2


def unit_cost_usd(evaluation: ScenarioEvaluation) -> FloatArray:
    """One packaged and tested chip with its memory [USD]."""
    return evaluation.figures.unit_cost_usd


def usd_per_unit(evaluation: ScenarioEvaluation) -> FloatArray:
    """Capital, housing and electricity per request, image, step or pass [USD]."""
    capital = evaluation.figures.usd_per_s * evaluation.n_chips / evaluation.units_per_s
    return capital + evaluation.energy_per_unit_j * evaluation.figures.usd_per_j


def usd_per_million_tokens(evaluation: ScenarioEvaluation) -> FloatArray:
    """Capital, housing and electricity per million output (or trained) tokens [USD]."""
    return MILLION * usd_per_unit(evaluation) / evaluation.tokens_per_unit


def usd_per_hour(evaluation: ScenarioEvaluation) -> FloatArray:
    """Capital, housing and electricity of the whole system [USD/h]."""
    return HOUR_S * usd_per_unit(evaluation) * evaluation.units_per_s


def usd_per_session(evaluation: ScenarioEvaluation) -> FloatArray:
    """Capital, housing and electricity per completed conversation [USD]."""
    return usd_per_unit(evaluation) * evaluation.units_per_session
