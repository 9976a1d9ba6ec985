"""Chips, networks and presets as plain data, the same for the command line and the API."""

from __future__ import annotations

import functools
from typing import Any

from explorer.samplers import SAMPLER_NAMES
from explorer.scenario_readers import SCENARIO_READERS
from models.architectures import Network, load_network, lower, network_names
from models.architectures.lowered import checkpoint_bytes
from models.architectures.parallel import kv_bytes_per_token_per_chip
from models.hardware.catalog import chip, chip_ids, field_provenance
from models.metrics import METRICS
from models.metrics.reported import REPORTED
from models.precision.error import mix_kl_nats
from models.precision.mix import RECIPES
from models.workload.presets import preset_names, profiles, trace_names

DENSE_DECODER_LAYERS = 32
"""Depth for which the error of a recipe is listed."""


@functools.cache
def chip_documents() -> dict[str, dict[str, Any]]:
    """Every chip of the catalogue by id."""
    documents = {}
    for chip_id in chip_ids():
        entry = chip(chip_id)
        documents[chip_id] = {
            "id": entry.id,
            "name": entry.name,
            "vendor": entry.vendor,
            "year": entry.year,
            "design": {name: float(value) for name, value in entry.design.items()},
            "inferred_fields": dict(entry.inferred_fields),
            "fields": field_provenance(entry),
            "unverified_fields": list(entry.unverified_fields),
            "confidence": entry.confidence,
            "source": entry.source,
            "note": entry.note,
        }
    return documents


@functools.cache
def network_documents() -> dict[str, dict[str, Any]]:
    """Every network of the catalogue by name."""
    return {name: network_document(load_network(name)) for name in network_names()}


def network_document(network: Network) -> dict[str, Any]:
    """Main figures of a network, and what its configuration holds that they leave out."""
    lowered = lower(network)
    return {
        "name": network.name,
        "kind": lowered.kind,
        "n_layers": lowered.n_layers,
        "hidden_size": lowered.hidden_size,
        "vocabulary_size": lowered.vocabulary_size,
        "max_context_tokens": lowered.max_context_tokens,
        "n_parameters": lowered.n_parameters,
        "n_active_parameters": lowered.n_active_parameters,
        "checkpoint_bytes": float(checkpoint_bytes(lowered)),
        "kv_bytes_per_token_bf16": float(kv_bytes_per_token_per_chip(lowered, 1, 16)),
        "notes": list(network.notes),
    }


def preset_documents() -> dict[str, Any]:
    """Names a study may use: request presets, recipes, samplers, scenario kinds and metrics."""
    formulas = profiles()
    return {
        "requests": [
            {
                "name": name,
                "kind": "trace" if name in trace_names() else "profile",
                **(
                    {
                        "input_mean_tokens": formulas[name].input.mean_tokens,
                        "input_std_tokens": formulas[name].input.std_tokens,
                        "output_mean_tokens": formulas[name].output.mean_tokens,
                        "output_std_tokens": formulas[name].output.std_tokens,
                    }
                    if name in formulas
                    else {}
                ),
            }
            for name in preset_names()
        ],
        "precision_recipes": [
            {"name": name, "kl_nats_32_layers": mix_kl_nats(mix, DENSE_DECODER_LAYERS), "kv_bits": mix.kv_bits}
            for name, mix in RECIPES.items()
        ],
        "samplers": sorted(SAMPLER_NAMES),
        "scenario_kinds": sorted(SCENARIO_READERS),
        "metrics": [
            {"name": name, "unit": metric.unit, "direction": metric.direction, "description": metric.description}
            for name, metric in METRICS.items()
        ],
        "reported_metrics": [
            {"name": name, "unit": metric.unit, "direction": metric.direction, "description": metric.description}
            for name, metric in REPORTED.items()
        ],
    }
