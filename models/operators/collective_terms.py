"""Collectives that span nodes, as terms of a step: inside each node over scale-up links, then between nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from models.checks import FloatArray
from models.operators.step import Term, term
from models.operators.topology import Interconnect, Path, scale_out_paths, scale_up_paths

PLAIN = Interconnect()
"""One switch in a node and one between nodes, as collectives were measured."""

PATH_COLUMNS = ("link_fraction", "n_steps", "hop_s", "wire_ratio")


@dataclass(frozen=True)
class Place:
    """
    Where the chips of a group lie.

    `n_inside` is the most of them that share a node, `stride` the chips of a node, and `node_stride` the nodes, that
    each of them stands for; scalars or arrays of shape (n_alternatives,).
    """

    n_inside: FloatArray | float
    stride: FloatArray | float = 1.0
    node_stride: FloatArray | float = 1.0


def two_level_terms(
    name: str,
    op: str,
    count: FloatArray | float,
    *,
    n_chips: FloatArray,
    place: Place,
    message_bytes: FloatArray,
    interconnect: Interconnect = PLAIN,
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
    place : Place
        Where the chips of a group lie.
    interconnect : Interconnect
        Topologies, and the share of the time that other work covers beside `exposed_fraction`.
    exposed_fraction : float
        Share of the time that other work does not cover. [1]
    **columns : float
        Further columns of the terms: engine_kernel, host_sharing_exponent.

    References
    ----------
    .. [1] X. Jia et al., "Highly Scalable Deep Learning Training System with Mixed-Precision", 2018,
       arXiv:1807.11205, section 3.3: hierarchical all-reduce.
    """
    inside = np.minimum(n_chips, place.n_inside)
    outside = np.ceil(n_chips / inside)
    levels = (
        ("", inside, message_bytes, 0.0, place.stride),
        ("_between_nodes", outside, message_bytes / inside, 1.0, place.node_stride),
    )
    exposed = exposed_columns(interconnect, exposed_fraction)
    return [
        term(
            name + suffix, "collective", op, count, n_chips=chips, message_bytes=message, scale_out=scale_out,
            **exposed, **path_columns(interconnect, op, chips, stride, scale_out=scale_out > 0), **columns,
        )
        for suffix, chips, message, scale_out, stride in levels
        if chips.max() > 1
    ]  # fmt: skip


def exposed_columns(interconnect: Interconnect, exposed_fraction: float = 1.0) -> dict[str, float]:
    """Columns of a collective that say which share of its time a step waits for, and that other work covers some."""
    if not interconnect.overlap_fraction:
        return {"exposed_fraction": exposed_fraction}
    return {"exposed_fraction": exposed_fraction * (1.0 - interconnect.overlap_fraction), "overlapped": 1.0}


def path_columns(
    interconnect: Interconnect, op: str, n_chips: ArrayLike, stride: ArrayLike = 1.0, *, scale_out: bool
) -> dict[str, FloatArray]:
    """
    Return the columns by which a collective knows its topology, none on the topology that was measured.

    Parameters
    ----------
    interconnect : Interconnect
    op : str
        A key of `COLLECTIVES`.
    n_chips, stride : arrays that broadcast to shape (n_alternatives,)
        Chips or nodes of a group, and those that each of them stands for. [1]
    scale_out : bool
        Whether the group's messages leave their nodes.
    """
    links, network = interconnect.scale_up, interconnect.scale_out
    if network is None if scale_out else links.topology == "switched" and not links.hop_latency_s:
        return {}
    sizes = np.stack(np.broadcast_arrays(np.asarray(n_chips), np.asarray(stride))).astype(np.int64).reshape(2, -1)
    pairs, index = np.unique(sizes, axis=1, return_inverse=True)
    if scale_out and network is not None:
        paths = [scale_out_paths(network, op, int(n), int(apart)) for n, apart in pairs.T]
        columns = _paths_columns(paths, network.hop_latency_s)
        if network.port_bytes_per_s is not None:
            columns["port_bytes_per_s"] = np.full(len(paths), network.port_bytes_per_s)
    else:
        paths = [scale_up_paths(links, op, int(n), int(apart)) for n, apart in pairs.T]
        columns = _paths_columns(paths, links.hop_latency_s)
        columns["switched"] = np.full(len(paths), float(links.topology == "switched"))
    return {name: values[index.reshape(-1)] for name, values in columns.items()}


def _paths_columns(paths: list[tuple[Path, ...]], hop_latency_s: float) -> dict[str, FloatArray]:
    """The first algorithm of each group, and where some have another that too; groups without repeat their only one."""
    columns: dict[str, FloatArray] = {}
    for prefix, place in (("", 0), ("short_", -1))[: max(map(len, paths))]:
        own = [each[place] for each in paths]
        values = [[p.link_fraction, p.n_steps, p.n_hops * hop_latency_s, p.wire_ratio] for p in own]
        columns |= {prefix + name: column for name, column in zip(PATH_COLUMNS, np.array(values).T, strict=True)}
    return columns
