"""What fits in main memory: weights, activations, and the KV cache that bounds the batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from models.architectures.lowered import LoweredNetwork
from models.architectures.parallel import kv_elements_per_token_per_chip, split, weight_elements_per_module
from models.checks import FloatArray
from models.hardware.design import DesignBatch
from models.precision.mix import PrecisionMix
from models.tables import constants


def usable_memory_bytes(designs: DesignBatch) -> FloatArray:
    """Main memory left for weights, activations and cache, shape (n_designs,) [B]."""
    c = constants("serving")
    return designs.memory_capacity_bytes * c["addressable_memory_fraction"] * c["memory_utilization_fraction"]


def weight_bytes_per_chip(network: LoweredNetwork, degrees: Sequence[int], mixes: Sequence[PrecisionMix]) -> FloatArray:
    """Stored weights of one chip, shape (n_degrees, n_mixes) [B]; what is no matrix stays in 16 bit."""
    table = np.empty((len(degrees), len(mixes)))
    for i, degree in enumerate(degrees):
        elements = weight_elements_per_module(split(network, degree))
        for j, mix in enumerate(mixes):
            bits = sum(count * _bits(mix, module) for module, count in elements.items())
            table[i, j] = bits / 8.0
    return table


def _bits(mix: PrecisionMix, module: str) -> float:
    return mix.weight_bits(module) if module in mix.weight_format else 16.0


def kv_bytes_per_token_per_chip(
    network: LoweredNetwork, degrees: Sequence[int], mixes: Sequence[PrecisionMix]
) -> FloatArray:
    """Cache of one token of one sequence on one chip, all layers, shape (n_degrees, n_mixes) [B]."""
    elements = np.array([kv_elements_per_token_per_chip(network, degree) for degree in degrees])
    return elements[:, None] * np.array([mix.kv_bits / 8.0 for mix in mixes])[None, :]


def largest_batch(
    designs: DesignBatch, weight_bytes: FloatArray, kv_bytes_per_sequence: FloatArray
) -> FloatArray:
    """
    Return how many sequences the memory of one group holds, each with its whole length reserved.

    Parameters
    ----------
    designs : DesignBatch
        Of n_designs designs.
    weight_bytes, kv_bytes_per_sequence : arrays of shape (n_alternatives,)
        On one chip. [B]

    Returns
    -------
    array of shape (n_designs, n_alternatives)
        Not rounded; below 1 (or negative) where the network does not fit. [1]
    """
    c = constants("serving")
    free = usable_memory_bytes(designs)[:, None] - weight_bytes - c["activation_reserve_bytes"]
    return free * c["kv_pool_fraction"] / np.maximum(kv_bytes_per_sequence, 1.0)
