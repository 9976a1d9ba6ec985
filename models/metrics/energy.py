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


def facility_energy_per_unit_j(evaluation: ScenarioEvaluation) -> FloatArray:
    """Drawn by the site per request, image, step or pass: chips and hosts, delivery losses and cooling [J]."""
    figures = evaluation.figures
    hosts_j = figures.host_w * evaluation.n_chips / evaluation.units_per_s
    return (evaluation.energy_per_unit_j + hosts_j) * figures.facility_ratio


def facility_energy_per_million_tokens_j(evaluation: ScenarioEvaluation) -> FloatArray:
    """Drawn by the site per million output (or trained) tokens [J]."""
    return 1e6 * facility_energy_per_unit_j(evaluation) / evaluation.tokens_per_unit


def facility_energy_per_session_j(evaluation: ScenarioEvaluation) -> FloatArray:
    """Drawn by the site per completed conversation [J]."""
    return facility_energy_per_unit_j(evaluation) * evaluation.units_per_session


def peak_power_w(evaluation: ScenarioEvaluation) -> FloatArray:
    """One chip in the kind of step that draws most, at its settled clock [W]."""
    return evaluation.peak_power_w


def idle_power_fraction(evaluation: ScenarioEvaluation) -> FloatArray:
    """Share of the average power that switches nothing: leakage, clocks and uncore [1]."""
    return evaluation.figures.static_w / evaluation.average_power_w


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
