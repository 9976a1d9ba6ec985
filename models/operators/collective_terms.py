"""Collectives that span nodes, as terms of a step: inside each node over scale-up links, then between nodes."""

from __future__ import annotations

import numpy as np

from models.checks import FloatArray
from models.operators.step import Term, term


def two_level_terms(
    name: str,
    op: str,
    count: FloatArray | float,
    *,
    n_chips: FloatArray,
    n_inside: FloatArray | float,
    message_bytes: FloatArray,
    exposed_fraction: float = 1.0,
    **columns: float,
) -> list[Term]:
    """
    Return the terms of one collective, none where every group is a single chip.

    The chips of a group in one node reduce or gather the message over the scale-up links, which leaves each chip a
    share of it; the chips of equal rank in all nodes then do the same with their shares over the scale-out links,
    each over its own [1]_.

    Parameters
    ----------
    name, op : str
        Of the terms, and of the collective (a key of `COLLECTIVES`).
    count : scalar or array of shape (n_alternatives,)
        Times in a step.
    n_chips, message_bytes : arrays of shape (n_alternatives,)
        Chips of a group, and the whole vector. [1], [B]
    n_inside : scalar or array of shape (n_alternatives,)
        Most chips of a group that share a node. [1]
    exposed_fraction : float
        Share of the time that other work does not cover. [1]
    **columns : float
        Further columns of the terms: engine_kernel, host_sharing_exponent.

    References
    ----------
    .. [1] X. Jia et al., "Highly Scalable Deep Learning Training System with Mixed-Precision", 2018,
       arXiv:1807.11205, section 3.3: hierarchical all-reduce.
    """
    inside = np.minimum(n_chips, n_inside)
    outside = np.ceil(n_chips / inside)
    levels = (("", inside, message_bytes, 0.0), ("_between_nodes", outside, message_bytes / inside, 1.0))
    return [
        term(
            name + suffix, "collective", op, count, n_chips=chips, message_bytes=message, scale_out=scale_out,
            exposed_fraction=exposed_fraction, **columns,
        )
        for suffix, chips, message, scale_out in levels
        if chips.max() > 1
    ]  # fmt: skip
