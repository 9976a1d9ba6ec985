"""What a serving scenario asks of a design, before any design is known."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from models.architectures.lowered import LoweredNetwork
from models.architectures.plans import ParallelPlan
from models.checks import FloatArray, IntArray
from models.operators.calibration import UNCALIBRATED, Calibration
from models.operators.topology import Interconnect
from models.precision.mix import PrecisionMix
from models.workload.distribution import RequestMoments

Scheduling = Literal["chunked", "whole_prompt", "disaggregated"]
"""Prompts share steps with decoding, run alone while decoding waits, or run on engines of their own."""

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
    host_bytes_per_s: float | None = None
    """Rate of the host's link to one chip of a pair that exchange through it; None for that of the design."""
    interconnect: Interconnect = Interconnect()
    """Topologies of the links."""

    @property
    def n_nodes(self) -> int:
        """Nodes, the last of which may be partly filled."""
        return -(-self.n_chips // self.n_chips_per_node)


@dataclass(frozen=True)
class Speculation:
    """
    Speculative decoding: a draft network guesses tokens, which one step of the served network verifies together.

    Without a draft network the guesses cost nothing (further heads, a look-up in the prompt).
    """

    draft_tokens: int
    acceptance_fraction: float
    """Chance that a guess is right, given that those before it are."""
    draft: LoweredNetwork | None = None

    @property
    def verified_tokens(self) -> int:
        """Tokens of a sequence that a step computes: the guesses and one more."""
        return self.draft_tokens + 1

    @property
    def tokens_per_step(self) -> float:
        """
        Expected tokens a sequence gains in a step: the guesses up to the first wrong one, and the one in its place.

        (1 - a^(k+1)) / (1 - a): Y. Leviathan et al., "Fast Inference from Transformers via Speculative Decoding",
        2023, arXiv:2211.17192, eq. 1.
        """
        a = self.acceptance_fraction
        return sum(a**i for i in range(self.verified_tokens))


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
    calibration: Calibration = UNCALIBRATED
    turns_per_session: float = 1.0
    """Requests of one conversation."""
    speculation: Speculation | None = None
    offload: bool = False
    """What the main memory has no room for lies in the second tier of a design that has one."""
    plan: ParallelPlan | None = None
    """How the network is dealt to the chips; None leaves the best way to each design."""

    @property
    def tokens_per_step(self) -> float:
        """Tokens that a sequence gains in a step [1]."""
        return 1.0 if self.speculation is None else self.speculation.tokens_per_step

    @property
    def verified_tokens(self) -> float:
        """Tokens of a sequence that a step computes [1]."""
        return 1.0 if self.speculation is None else float(self.speculation.verified_tokens)


@dataclass(frozen=True)
class Alternatives:
    """
    Inner choices, one entry each of shape (n_alternatives,): how a layer is shared, precision mix and batch.

    `batch` sequences decode together on one tensor-parallel group: all of its own, or one micro-batch of them for
    each stage of a pipeline.
    """

    tensor_parallel: IntArray
    attention_data_parallel: IntArray
    mix: IntArray
    batch: FloatArray

    def __len__(self) -> int:
        return len(self.batch)

    def take(self, index: IntArray) -> Alternatives:
        """The choices at `index`, in its shape."""
        return Alternatives(*[getattr(self, field.name)[index] for field in dataclasses.fields(self)])


def alternatives(plans: Sequence[ParallelPlan], n_mixes: int, batches: Sequence[float]) -> Alternatives:
    """Every combination of the choices, plan slowest and batch fastest."""
    plan, mix, batch = np.meshgrid(np.arange(len(plans)), np.arange(n_mixes), np.asarray(batches), indexing="ij")
    degrees = np.array([[p.tensor_parallel, p.attention_data_parallel] for p in plans]).reshape(-1, 2)[plan.ravel()]
    return Alternatives(degrees[:, 0], degrees[:, 1], mix.ravel(), batch.ravel().astype(np.float64))
