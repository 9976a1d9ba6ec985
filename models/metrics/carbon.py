"""Carbon of the work: making the chips and running the site, at the stated utilisation and grid."""

from __future__ import annotations

from models.checks import FloatArray
from models.evaluation import ScenarioEvaluation
from models.metrics.cost import MILLION
from models.metrics.energy import facility_energy_per_unit_j


def embodied_kgco2e(evaluation: ScenarioEvaluation) -> FloatArray:
    """Making one chip: die, memory, package and its share of the host [kg CO2e]."""
    return evaluation.figures.embodied_kgco2e


def embodied_kgco2e_per_unit(evaluation: ScenarioEvaluation) -> FloatArray:
    """Share of making all chips that a request, image, step or pass uses up [kg CO2e]."""
    return evaluation.figures.embodied_kgco2e_per_s * evaluation.n_chips / evaluation.units_per_s


def operational_kgco2e_per_unit(evaluation: ScenarioEvaluation) -> FloatArray:
    """Electricity of the site per request, image, step or pass [kg CO2e]."""
    return facility_energy_per_unit_j(evaluation) * evaluation.figures.grid_kgco2e_per_j


def kgco2e_per_unit(evaluation: ScenarioEvaluation) -> FloatArray:
    """Making and running per request, image, step or pass [kg CO2e]."""
    return embodied_kgco2e_per_unit(evaluation) + operational_kgco2e_per_unit(evaluation)


def embodied_kgco2e_per_million_tokens(evaluation: ScenarioEvaluation) -> FloatArray:
    """Share of making all chips that a million output (or trained) tokens use up [kg CO2e]."""
    return MILLION * embodied_kgco2e_per_unit(evaluation) / evaluation.tokens_per_unit


def operational_kgco2e_per_million_tokens(evaluation: ScenarioEvaluation) -> FloatArray:
    """Electricity of the site per million output (or trained) tokens [kg CO2e]."""
    return MILLION * operational_kgco2e_per_unit(evaluation) / evaluation.tokens_per_unit


def kgco2e_per_million_tokens(evaluation: ScenarioEvaluation) -> FloatArray:
    """Making and running per million output (or trained) tokens [kg CO2e]."""
    return MILLION * kgco2e_per_unit(evaluation) / evaluation.tokens_per_unit


def kgco2e_per_session(evaluation: ScenarioEvaluation) -> FloatArray:
    """Making and running per completed conversation [kg CO2e]."""
    return kgco2e_per_unit(evaluation) * evaluation.units_per_session
