"""What an engine adds to the operators of a step: messages between its chips, and what its host does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.architectures.lowered import LoweredNetwork
from models.checks import FloatArray, IntArray
from models.operators.collective_terms import PLAIN, Place, two_level_terms
from models.operators.step import Term, term
from models.operators.topology import Interconnect
from models.serving.expert_exchange import ACTIVATION_BYTES, expert_exchange_terms, token_gather_terms
from models.serving.scenario import Alternatives, ServingScenario
from models.tables import constants


@dataclass(frozen=True)
class EngineTraits:
    """
    How an engine and its host work, beyond network, plan and formats.

    `host_sharing_exponent` says how the host's links collapse where n chips without links of their own share them,
    rate ~ (n/2)^-x; None for an unknown host. `host_bytes_per_s` is the rate of a pair; None for that of the design.
    `scheduled` is False where a batch runs through as it began instead of
    being put together anew for each step. `decode_on_lanes` of shape (n_alternatives,) is 1 where decode attention
    does not use the matrix arrays; None where it always does. `dispatched` says that groups with tokens of their own
    send each one to the chips of its experts; otherwise every chip gathers the tokens of all. `verified_tokens` of a
    decoding sequence are computed together: with speculative decoding its guesses and one more. `interconnect` says
    how the links lie.
    """

    host_sharing_exponent: float | None = None
    scheduled: bool = True
    decode_on_lanes: FloatArray | None = None
    dispatched: bool = True
    verified_tokens: float = 1.0
    host_bytes_per_s: float | None = None
    interconnect: Interconnect = PLAIN

    def on_lanes(self, n_alternatives: int) -> FloatArray:
        """Whether decode attention runs on the vector lanes, shape (n_alternatives,) [flag]."""
        return np.zeros(n_alternatives) if self.decode_on_lanes is None else self.decode_on_lanes

    @property
    def host_columns(self) -> dict[str, float]:
        """Columns of a collective that describe the host."""
        stated = {"host_sharing_exponent": self.host_sharing_exponent, "host_bytes_per_s": self.host_bytes_per_s}
        return {name: value for name, value in stated.items() if value is not None}


def scenario_traits(scenario: ServingScenario) -> EngineTraits:
    """The traits of an engine that serves a scenario on its system as it is stated."""
    system = scenario.system
    return EngineTraits(
        system.host_sharing_exponent, host_bytes_per_s=system.host_bytes_per_s,
        verified_tokens=scenario.verified_tokens, interconnect=system.interconnect,
    )  # fmt: skip


def engine_terms(
    network: LoweredNetwork,
    traits: EngineTraits,
    choices: Alternatives,
    tokens: FloatArray,
    sampled: FloatArray,
    n_chips_per_node: int,
    dispatched_bytes: FloatArray,
) -> list[Term]:
    """
    Messages and host time of a step for `tokens` rows, of which `sampled` are; arrays of shape (n_alternatives,).

    `dispatched_bytes` are those of one element of a row on its way to an expert.
    """
    processes = choices.tensor_parallel * choices.attention_data_parallel
    return [
        *_all_reduce_terms(network, traits, choices.tensor_parallel, tokens, n_chips_per_node),
        *_exchange_terms(network, traits, choices, tokens, n_chips_per_node, dispatched_bytes),
        _host_term(traits, processes, sampled),
    ]


def _all_reduce_terms(
    network: LoweredNetwork, traits: EngineTraits, degree: IntArray, tokens: FloatArray, n_chips_per_node: int
) -> list[Term]:
    """Partial sums of the row-cut matrices, one activation row per token, inside nodes and between them."""
    return two_level_terms(
        "all_reduce", "all_reduce", network.n_layers * network.all_reduces_per_layer,
        n_chips=degree.astype(np.float64), place=Place(float(n_chips_per_node)), interconnect=traits.interconnect,
        message_bytes=tokens * network.hidden_size * ACTIVATION_BYTES,
        engine_kernel=1.0, **traits.host_columns,
    )  # fmt: skip


def _exchange_terms(
    network: LoweredNetwork,
    traits: EngineTraits,
    choices: Alternatives,
    tokens: FloatArray,
    n_chips_per_node: int,
    dispatched_bytes: FloatArray,
) -> list[Term]:
    """Rows of groups that share experts: sent where they are wanted, or gathered everywhere."""
    host, lie = traits.host_columns, traits.interconnect
    if traits.dispatched:
        return expert_exchange_terms(network, choices, tokens, n_chips_per_node, dispatched_bytes, host, lie)
    return token_gather_terms(network, choices, tokens, host, lie)


def _host_term(traits: EngineTraits, processes: IntArray, sampled: FloatArray) -> Term:
    """Host time beyond that of every step: of each sequence, and of telling the processes of a group what to do."""
    c = constants("launch")
    rounds = np.log2(processes) if traits.scheduled else np.zeros(len(processes))
    seconds = sampled * c["sequence_overhead_s"] + rounds * c["process_round_overhead_s"]
    return term("host", "host", "", 1.0, seconds=seconds)
