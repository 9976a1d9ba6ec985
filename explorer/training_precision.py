"""What the formats of a training recipe cost: forward error, noise of gradients, what the stored state keeps."""

from __future__ import annotations

from typing import Any

from explorer.workload import Quality
from models.precision.explanation import precision_map
from models.precision.formats import number_format
from models.precision.mix import GEMM_MODULES, TrainingFormats
from models.precision.training_error import state_rules, weight_gradient_error
from models.throughput.scenario import TrainingScenario

NOT_IN_BUDGET = (
    "the budget is the error of the trained network at its output: the forward formats have a share in it; gradients "
    "are unbiased noise that averages over steps, and state that swallows updates is refused"
)


def training_precision(scenario: TrainingScenario, quality: Quality) -> dict[str, Any]:
    """Precision section of a training scenario: budget, map of the forward pass, gradients, optimizer state."""
    mix = scenario.mix
    assert mix.training is not None  # the scenario's own rule
    rows = precision_map(mix, scenario.network, kappa=quality.kappa)
    owned = [row.module for row in rows if row.module in GEMM_MODULES and row.module != "embedding"]
    return {
        "mix": mix.name,
        "budget_nats": quality.budget_nats if quality.budget_nats < float("inf") else None,
        "kl_nats": sum(row.kl_nats for row in rows),
        "modules": [
            {
                "module": row.module,
                "stationary_format": row.stationary,
                "moving_format": row.moving or None,
                "kl_nats": row.kl_nats,
                "error_share_fraction": row.error_share_fraction,
            }
            for row in rows
        ],
        "training": {
            "weight_gradient_error_ratio": {module: weight_gradient_error(mix, module) for module in owned},
            "state": _state(mix.training),
            "state_bytes_per_parameter": mix.training.state_bytes_per_parameter,
            "in_budget": NOT_IN_BUDGET,
        },
    }


def _state(formats: TrainingFormats) -> list[dict[str, Any]]:
    stored = number_format(formats.gradient_storage)
    gradient = {"module": "gradient_storage", "format": stored.name, "bytes_per_parameter": stored.weight_bits / 8.0}
    return [gradient] + [
        {
            "module": rule.module,
            "format": rule.number.name,
            "bytes_per_parameter": rule.number.weight_bits / 8.0,
            "smallest_kept_ratio": rule.smallest_kept_ratio,
            "needed_ratio": rule.needed_ratio,
            "margin_ratio": rule.margin_ratio,
        }
        for rule in state_rules(formats)
    ]
