"""The global constants of GEMM time as one record; units, sources and residuals are in `data/constants/gemm*.csv`."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass

from models.tables import constants


@dataclass(frozen=True)
class GemmConstants:
    """One set of constants; each field is the row of the same name in the constants file."""

    memory_efficiency_fraction: float
    overlap_exponent: float
    tile_cycles: float
    tile_cycles_without_bulk_copy: float
    wave_rounding_fraction: float
    wave_rounding_fraction_without_bulk_copy: float
    kernel_start_cycles: float
    kernel_start_cycles_without_bulk_copy: float
    split_cost_ratio: float
    rate_loss_exponent: float
    rate_loss_exponent_beyond_double: float
    fold_overlap_fraction: float
    group_coordination_cycles: float
    k_tile_elements: float
    l2_effective_ratio: float
    l2_hit_sharpness_exponent: float
    memory_ramp_s: float
    energy_j_per_flop: float
    energy_array_exponent: float
    energy_rate_exponent: float
    operand_path_elements: float
    operand_exposed_fraction: float
    least_cycles_per_k: float
    array_efficiency_fraction: float
    operand_port_ratio: float


@functools.cache
def gemm_constants(name: str = "gemm") -> GemmConstants:
    """Return the constants of `models/data/constants/<name>.csv`, read once."""
    return gemm_constants_from(constants(name))


def gemm_constants_from(table: Mapping[str, float]) -> GemmConstants:
    """Return the constants of GEMM time out of a table that may hold others."""
    return GemmConstants(**{field.name: table[field.name] for field in dataclasses.fields(GemmConstants)})
