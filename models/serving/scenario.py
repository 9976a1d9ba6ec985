"""What a serving scenario asks of a design, before any design is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from models.architectures.lowered import LoweredNetwork
from models.checks import FloatArray, IntArray
from models.precision.mix import PrecisionMix
from models.workload.distribution import RequestMoments

Scheduling = Literal["chunked", "whole_prompt"]

BATCH_GRID = tuple(sorted({2**i for i in range(11)} | {3 * 2**i for i in range(9)}))
"""Sequences per group of chips that are tried, 1 to 1024 in steps of at most 1.5: the grid is part of the answer."""


@dataclass(frozen=True)
class Slo:
    """Latency limits at the 95th percentile; infinite where none is asked [s]."""

    ttft_s: float = np.inf
    tpot_s: float = np.inf


@dataclass(frozen=True)
class System:
    """Chips that work together, and how many of them share the scale-up links."""

    n_chips: int
    n_chips_per_node: int
    host_sharing_exponent: float | None = None
    """How the host's links collapse where chips without links of their own share them; None for an unknown host."""

    @property
    def n_nodes(self) -> int:
        """Nodes, the last of which may be partly filled."""
        return -(-self.n_chips // self.n_chips_per_node)


@dataclass(frozen=True)
class ServingScenario:
    """One network, its requests and what is allowed: everything that `compile_serving` needs."""

    name: str
    network: LoweredNetwork
    requests: RequestMoments
    slo: Slo
    scheduling: Scheduling
    system: System
    mixes: tuple[PrecisionMix, ...]
    max_batch: int
    step_overhead_s: float
    routing_skew: float = 0.0
    """Zipf exponent of expert popularity."""
    largest_memory_bytes: float | None = None
    """Memory of one chip that no design in question exceeds; None where that is not known."""


@dataclass(frozen=True)
class Alternatives:
    """Inner choices, one entry each of shape (n_alternatives,): degree, precision mix and batch of one group."""

    tensor_parallel: IntArray
    mix: IntArray
    batch: FloatArray

    def __len__(self) -> int:
        return len(self.batch)


def tensor_parallel_degrees(scenario: ServingScenario) -> list[int]:
    """
    Degrees that divide the chips and leave at least one query head to each: inside a node, or of whole nodes.

    Whole nodes hold what no single one can, and pay for it with the slower links between them.
    """
    system = scenario.system
    heads = min((a.n_heads for a in scenario.network.attentions), default=1)
    node = system.n_chips_per_node
    inside = [t for t in range(1, min(node, heads) + 1) if node % t == 0]
    beyond = list(range(2 * node, min(system.n_chips, heads) + 1, node))
    return [t for t in inside + beyond if system.n_chips % t == 0]


def alternatives(degrees: Sequence[int], n_mixes: int, batches: Sequence[int]) -> Alternatives:
    """Every combination of the choices, degree slowest and batch fastest."""
    t, mix, batch = np.meshgrid(np.asarray(degrees), np.arange(n_mixes), np.asarray(batches), indexing="ij")
    return Alternatives(t.ravel(), mix.ravel(), batch.ravel().astype(np.float64))
