"""What an engine adds to the operators of a step: messages between its chips, and what its host does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.architectures.lowered import LoweredNetwork
from models.checks import FloatArray, IntArray
from models.operators.collective_terms import two_level_terms
from models.operators.step import Term, term
from models.tables import constants

ACTIVATION_BYTES = 2.0
"""Outputs of products and the partial sums that chips exchange are 16 bit in every mix."""


@dataclass(frozen=True)
class EngineTraits:
    """
    How an engine and its host work, beyond network, plan and formats; arrays of shape (n_alternatives,).

    `attention_data_parallel` groups of chips have tokens of their own (the load is that of one) and share the routed
    experts; None for one. `host_sharing_exponent` says how the host's links collapse where n chips without links of
    their own share them, rate ~ (n/2)^-x; None for an unknown host. `scheduled` is False where a batch runs through
    as it began instead of being put together anew for each step. `decode_on_lanes` is 1 where decode attention does
    not use the matrix arrays; None where it always does.
    """

    attention_data_parallel: FloatArray | None = None
    host_sharing_exponent: float | None = None
    scheduled: bool = True
    decode_on_lanes: FloatArray | None = None

    def groups(self, n_alternatives: int) -> FloatArray:
        """Groups of chips with tokens of their own, shape (n_alternatives,) [1]."""
        return np.ones(n_alternatives) if self.attention_data_parallel is None else self.attention_data_parallel

    def on_lanes(self, n_alternatives: int) -> FloatArray:
        """Whether decode attention runs on the vector lanes, shape (n_alternatives,) [flag]."""
        return np.zeros(n_alternatives) if self.decode_on_lanes is None else self.decode_on_lanes

    @property
    def host_columns(self) -> dict[str, float]:
        """Columns of a collective that describe the host."""
        x = self.host_sharing_exponent
        return {} if x is None else {"host_sharing_exponent": x}


def engine_terms(
    network: LoweredNetwork,
    traits: EngineTraits,
    tensor_parallel: IntArray,
    tokens: FloatArray,
    sampled: FloatArray,
    n_chips_per_node: int,
) -> list[Term]:
    """Messages and host time of a step for `tokens` rows, of which `sampled` are; arrays of shape (n_alternatives,)."""
    groups = traits.groups(len(tokens))
    return [
        *_all_reduce_terms(network, traits, tensor_parallel, tokens, n_chips_per_node),
        *_token_exchange_terms(network, traits, groups, tokens),
        _host_term(traits, tensor_parallel * groups, sampled),
    ]


def _all_reduce_terms(
    network: LoweredNetwork, traits: EngineTraits, degree: IntArray, tokens: FloatArray, n_chips_per_node: int
) -> list[Term]:
    """Partial sums of the row-cut matrices, one activation row per token, inside nodes and between them."""
    return two_level_terms(
        "all_reduce", "all_reduce", network.n_layers * network.all_reduces_per_layer,
        n_chips=degree.astype(np.float64), n_inside=float(n_chips_per_node),
        message_bytes=tokens * network.hidden_size * ACTIVATION_BYTES,
        engine_kernel=1.0, **traits.host_columns,
    )  # fmt: skip


def _token_exchange_terms(
    network: LoweredNetwork, traits: EngineTraits, groups: FloatArray, tokens: FloatArray
) -> list[Term]:
    """Activations of all groups gathered before routed experts, and their partial sums scattered after them."""
    if groups.max() <= 1:
        return []
    layers = sum(o.count for o in network.linears if o.rows == "routed" and o.module.endswith("_up"))
    message = groups * tokens * network.hidden_size * ACTIVATION_BYTES
    return [
        term(
            f"experts_{op}", "collective", op, layers, n_chips=groups, message_bytes=message, scale_out=0.0,
            exposed_fraction=1.0, **traits.host_columns,
        )
        for op in ("all_gather", "reduce_scatter")
    ]  # fmt: skip


def _host_term(traits: EngineTraits, processes: FloatArray, sampled: FloatArray) -> Term:
    """Host time beyond that of every step: of each sequence, and of telling the processes of a group what to do."""
    c = constants("launch")
    rounds = np.log2(processes) if traits.scheduled else np.zeros(len(processes))
    seconds = sampled * c["sequence_overhead_s"] + rounds * c["process_round_overhead_s"]
    return term("host", "host", "", 1.0, seconds=seconds)
