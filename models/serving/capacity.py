"""What fits in main memory: weights, activations, and the KV cache that bounds the batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from models.architectures.lowered import LoweredNetwork, weight_elements_per_module
from models.architectures.parallel import split
from models.checks import FloatArray
from models.hardware.design import DesignBatch
from models.precision.mix import PrecisionMix
from models.serving.programs import STATE_BYTES
from models.serving.scenario import ServingScenario, tensor_parallel_degrees
from models.tables import constants

CAPACITY_CRITICAL_FRACTION = 0.1
"""Share of free memory below which one GB of memory estimate changes the batch by a third and more."""


def usable_memory_bytes(designs: DesignBatch) -> FloatArray:
    """Main memory left for weights, activations and cache, shape (n_designs,) [B]."""
    return designs.memory_capacity_bytes * usable_memory_fraction()


def usable_memory_fraction() -> float:
    """Share of main memory that weights, activations and cache can fill [1]."""
    c = constants("serving")
    return c["addressable_memory_fraction"] * c["memory_utilization_fraction"]


def weight_bytes_per_chip(network: LoweredNetwork, degrees: Sequence[int], mixes: Sequence[PrecisionMix]) -> FloatArray:
    """Stored weights of one chip, shape (n_degrees, n_mixes) [B]; what is no matrix stays in 16 bit."""
    table = np.empty((len(degrees), len(mixes)))
    for i, degree in enumerate(degrees):
        elements = weight_elements_per_module(split(network, degree))
        for j, mix in enumerate(mixes):
            table[i, j] = sum(count * _bits(mix, module) for module, count in elements.items()) / 8.0
    return table


def degrees_that_fit(scenario: ServingScenario) -> list[int]:
    """
    Return the tensor-parallel degrees worth trying.

    Those inside a node under which the largest memory holds a sequence in some mix; degrees of whole nodes only where
    no degree inside a node does. All degrees where none does, so that the excess shows, and where the largest memory
    is not known.
    """
    degrees = tensor_parallel_degrees(scenario)
    if scenario.largest_memory_bytes is None:
        return degrees
    weights = weight_bytes_per_chip(scenario.network, degrees, scenario.mixes)
    tokens = scenario.requests.reserved_tokens
    sequence = sequence_bytes_per_chip(scenario.network, degrees, scenario.mixes, tokens)
    held = _sequences_held(scenario.largest_memory_bytes * usable_memory_fraction(), weights, sequence)
    fitting = [t for t, sequences in zip(degrees, held.max(axis=1), strict=True) if sequences >= 1.0]
    inside = [t for t in fitting if t <= scenario.system.n_chips_per_node]
    return inside or fitting or degrees


def _bits(mix: PrecisionMix, module: str) -> float:
    return mix.weight_bits(module) if module in mix.weight_format else 16.0


def sequence_bytes_per_chip(
    network: LoweredNetwork, degrees: Sequence[int], mixes: Sequence[PrecisionMix], tokens: float
) -> FloatArray:
    """
    Return what one sequence of `tokens` tokens keeps on one chip: cache, cut by windows, and recurrent states.

    Returns
    -------
    array of shape (n_degrees, n_mixes)
        [B]
    """
    table = np.empty((len(degrees), len(mixes)))
    for i, degree in enumerate(degrees):
        cut = split(network, degree)
        cached = [a for a in cut.attentions if a.cached]
        elements = sum(
            a.count * a.kv_elements_per_token * (min(tokens, a.window_tokens) if a.window_tokens else tokens)
            for a in cached
        )
        state_bytes = sum(s.count * s.state_elements for s in cut.states) * STATE_BYTES
        table[i] = [elements * mix.kv_bits / 8.0 + state_bytes for mix in mixes]
    return table


def free_memory_fraction(designs: DesignBatch, weight_bytes: FloatArray) -> FloatArray:
    """
    Return the share of the usable memory that weights and reserve leave, shape (n_designs, n_alternatives) [1].

    Below `CAPACITY_CRITICAL_FRACTION` the batch follows from a small difference of large numbers.
    """
    taken = weight_bytes + constants("serving")["activation_reserve_bytes"]
    return np.asarray(1.0 - taken / usable_memory_bytes(designs)[:, None])


def largest_batch(designs: DesignBatch, weight_bytes: FloatArray, sequence_bytes: FloatArray) -> FloatArray:
    """
    Return how many sequences the memory of one group holds, each with its whole length reserved.

    Parameters
    ----------
    designs : DesignBatch
        Of n_designs designs.
    weight_bytes, sequence_bytes : arrays of shape (n_alternatives,)
        On one chip. [B]

    Returns
    -------
    array of shape (n_designs, n_alternatives)
        Not rounded; below 1 (or negative) where the network does not fit. [1]
    """
    return _sequences_held(usable_memory_bytes(designs)[:, None], weight_bytes, sequence_bytes)


def memory_excess_fraction(
    designs: DesignBatch, weight_bytes: FloatArray, sequence_bytes: FloatArray, batch: FloatArray
) -> FloatArray:
    """
    Return by which share weights, activations and the cache of `batch` sequences exceed the usable memory.

    At most 0 exactly where `batch` is at most `largest_batch`.

    Parameters
    ----------
    designs : DesignBatch
        Of n_designs designs.
    weight_bytes, sequence_bytes, batch : arrays of shape (n_alternatives,) or (n_designs, n_alternatives)
        On one chip [B], and sequences of its group [1].

    Returns
    -------
    array of shape (n_designs, n_alternatives)
        [1]
    """
    c = constants("serving")
    cache = batch * np.maximum(sequence_bytes, 1.0) / c["kv_pool_fraction"]
    needed = weight_bytes + c["activation_reserve_bytes"] + cache
    return np.asarray(needed / np.maximum(usable_memory_bytes(designs)[:, None], 1.0) - 1.0)


def _sequences_held(
    usable_bytes: FloatArray | float, weight_bytes: FloatArray, sequence_bytes: FloatArray
) -> FloatArray:
    """Sequences that find room beside weights and activations, not rounded [1]."""
    c = constants("serving")
    free = usable_bytes - weight_bytes - c["activation_reserve_bytes"]
    return np.asarray(free * c["kv_pool_fraction"] / np.maximum(sequence_bytes, 1.0))
