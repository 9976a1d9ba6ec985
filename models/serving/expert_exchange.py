"""Rows on their way to routed experts and back, where groups of chips have tokens of their own."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from models.architectures.lowered import LoweredNetwork
from models.architectures.moe import dispatch_bytes_per_token
from models.checks import FloatArray
from models.operators.collective_terms import PLAIN, exposed_columns, path_columns
from models.operators.step import Term, term
from models.operators.topology import Interconnect
from models.serving.scenario import Alternatives

ACTIVATION_BYTES = 2.0
"""Outputs of products and the partial sums that chips exchange are 16 bit in every mix."""

BITS_PER_BYTE = 8.0


def expert_exchange_terms(
    network: LoweredNetwork,
    choices: Alternatives,
    tokens: FloatArray,
    n_chips_per_node: int,
    dispatched_bytes: FloatArray,
    host_columns: Mapping[str, float],
    interconnect: Interconnect = PLAIN,
) -> list[Term]:
    """
    Return the terms of dispatch and combine of all routed layers, none where no alternative has further groups.

    Each chip of a tensor-parallel group sends its share of the group's rows, once to every node that holds an expert
    of theirs, over its own scale-out link, and from there to the chips of that node over the scale-up links [1]_. The
    results come back the same way in 16 bit. Experts are equally popular here; what a skewed router does to the
    busiest chip is in the time of the experts.

    Parameters
    ----------
    choices : Alternatives
        Of n_alternatives alternatives.
    tokens, dispatched_bytes : arrays of shape (n_alternatives,)
        Rows of one group, and bytes of one element of a row on its way to an expert. [1], [B]

    References
    ----------
    .. [1] DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, arXiv:2412.19437, section 3.2.2.
    """
    routed = [o for o in network.linears if o.rows == "routed" and o.module.endswith("_up")]
    groups = choices.attention_data_parallel.astype(np.float64)
    if groups.max() <= 1 or not routed:
        return []
    ranks = np.where(groups > 1, choices.tensor_parallel * groups, 1.0)
    inside = np.minimum(ranks, float(n_chips_per_node))
    nodes = np.ceil(ranks / inside)
    rows = tokens / choices.tensor_parallel
    experts, top_k, hidden = routed[0].n_experts, round(routed[0].top_k), network.hidden_size
    terms = []
    for name, element_bytes in (("dispatch", dispatched_bytes), ("combine", np.full(len(rows), ACTIVATION_BYTES))):
        bits = element_bytes * BITS_PER_BYTE
        # a chip that any expert of a row lies on gets it once, from a chip of its own node
        received = dispatch_bytes_per_token(hidden, experts, top_k, ranks, bits) / np.maximum(ranks - 1.0, 1.0)
        sent = dispatch_bytes_per_token(hidden, experts, top_k, nodes, bits)
        levels = (
            ("", inside, rows * ranks * received, 0.0),
            ("_between_nodes", nodes, rows * sent * nodes / np.maximum(nodes - 1.0, 1.0), 1.0),
        )
        terms += [
            term(
                f"experts_{name}{suffix}", "collective", "all_to_all", sum(o.count for o in routed),
                n_chips=chips, message_bytes=message, scale_out=scale_out, **exposed_columns(interconnect),
                **path_columns(interconnect, "all_to_all", chips, scale_out=scale_out > 0), **host_columns,
            )
            for suffix, chips, message, scale_out in levels
            if chips.max() > 1
        ]  # fmt: skip
    return terms


def token_gather_terms(
    network: LoweredNetwork,
    choices: Alternatives,
    tokens: FloatArray,
    host_columns: Mapping[str, float],
    interconnect: Interconnect = PLAIN,
) -> list[Term]:
    """Rows of all groups gathered before routed experts, and their partial sums scattered after them, in one node."""
    groups = choices.attention_data_parallel.astype(np.float64)
    if groups.max() <= 1:
        return []
    layers = sum(o.count for o in network.linears if o.rows == "routed" and o.module.endswith("_up"))
    message = groups * tokens * network.hidden_size * ACTIVATION_BYTES
    return [
        term(
            f"experts_{op}", "collective", op, layers, n_chips=groups, message_bytes=message, scale_out=0.0,
            **exposed_columns(interconnect),
            **path_columns(interconnect, op, groups, choices.tensor_parallel, scale_out=False), **host_columns,
        )
        for op in ("all_gather", "reduce_scatter")
    ]  # fmt: skip
