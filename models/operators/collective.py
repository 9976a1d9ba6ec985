"""Collectives over the chips of one node: latency, then the faster of two protocols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from models import tables
from models.checks import FloatArray, require_at_least, require_known, require_non_negative, require_positive
from models.hardware.design import DesignBatch
from models.operators.axes import per_design, size_arrays
from models.operators.smooth import smooth_maximum

Constants = Mapping[str, float]


@dataclass(frozen=True)
class Collective:
    """What a collective moves over the links."""

    name: str
    wire_passes: float
    """Passes of (n - 1)/n of the message over the links of one chip."""


COLLECTIVES: dict[str, Collective] = {
    collective.name: collective
    for collective in (
        Collective("all_reduce", 2.0),
        Collective("all_gather", 1.0),
        Collective("reduce_scatter", 1.0),
        Collective("all_to_all", 1.0),
        Collective("send_recv", 1.0),
    )
}


@dataclass(frozen=True)
class Route:
    """An algorithm on the links of a system, numbers or arrays as the message's."""

    link_fraction: FloatArray | float
    """Share of the rate of a chip's links that it can use [1]."""
    n_steps: FloatArray | float
    """Steps after the first message [1]."""
    hop_s: FloatArray | float
    """Latency of the topology beyond that of the measured systems [s]."""
    wire_ratio: FloatArray | float = 1.0
    """Bytes over `wire_bytes` [1]."""
    network_fraction: FloatArray | float = 1.0
    """Share of what reaches the network that it passes on [1]."""


IN_SWITCH_CHIPS = 8
"""Chips from which a library reduces in the switch, for elements of two bytes and more on links of the newer kind."""


def reduces_in_switch(designs: DesignBatch, n_chips: ArrayLike) -> NDArray[np.bool_]:
    """
    Whether the switch adds the vectors of an all-reduce of so many chips of a node, (n_designs, n_shapes).

    Chips that copy in bulk beside computing are of the generation whose switches do.
    """
    n = size_arrays(n_chips)[0]
    newer = per_design(designs.bulk_async_copy, n) > 0
    return np.asarray((n >= IN_SWITCH_CHIPS) & newer & (per_design(designs.scale_up_bytes_per_s, n) > 0))


def wire_bytes(kind: str, n_chips: ArrayLike, message_bytes: ArrayLike) -> FloatArray:
    """
    Return the bytes that one chip sends over its links.

    `message_bytes` is the whole vector: what every chip holds before an all-reduce, reduce-scatter or
    all-to-all, or after an all-gather. [B]

    Examples
    --------
    >>> float(wire_bytes("all_reduce", 4, 1000)[0])
    1500.0
    """
    require_known("collective", kind, COLLECTIVES)
    n, message = size_arrays(n_chips, message_bytes)
    share = np.where(n > 1, 1.0, 0.0) if kind == "send_recv" else (n - 1.0) / n
    return COLLECTIVES[kind].wire_passes * share * message


def collective_time_s(
    kind: str,
    n_chips: ArrayLike,
    message_bytes: ArrayLike,
    link_bytes_per_s: ArrayLike,
    *,
    host_bytes_per_s: ArrayLike = 32e9,
    host_sharing_exponent: ArrayLike | None = None,
    latency_scale_ratio: ArrayLike = 1.0,
    in_switch_reduction: ArrayLike = False,
    one_shot_start_s: ArrayLike | None = None,
    routes: Sequence[Route] = (),
    port_bytes_per_s: ArrayLike = np.inf,
    constants: Constants | None = None,
) -> FloatArray:
    """
    Return the time of one collective.

    Where the host link is faster (no link at all: 0) the message crosses it instead; its rate collapses with the
    number of chips that share it. Of several routes the fastest is taken.

    Parameters
    ----------
    kind : str
        A key of `COLLECTIVES`.
    n_chips, message_bytes : arrays broadcastable to (n_shapes,) or (n_designs, n_shapes)
        Chips that take part (1: no time) and the whole vector. [1], [B]
    link_bytes_per_s, host_bytes_per_s : scalars or arrays of shape (n_designs,)
        Per chip and direction. [B/s]
    host_sharing_exponent : scalar or array of shape (n_designs,), optional
        The host link's rate falls as (n/2)^x; roots and sockets of the host set x, measured hosts 0.4 to 1.9. [1]
    latency_scale_ratio : scalar or array of shape (n_designs,)
        Latency of this system over the reference: `collective_latency_ratio(designs)`, or measured. [1]
    in_switch_reduction : bool or array, as `message_bytes`
        The switch adds the vectors of an all-reduce.
    one_shot_start_s : scalar or array of shape (n_designs,), optional
        Start of a serving engine's own all-reduce, in which every chip reads the whole vectors of all others and
        which is used where it is faster; none when left out. [s]
    routes : sequence of Route
        Algorithms on the topology of the links; where left out the one that was measured, on one switch.
    port_bytes_per_s : scalar or array, as `message_bytes`
        Most that the network takes from one chip. [B/s]
    constants : mapping, optional
        Instead of `models/data/constants/collective.csv`.

    Returns
    -------
    array of shape (n_designs, n_shapes)
        Never below wire bytes / link. [s]

    Examples
    --------
    >>> time_s = collective_time_s("all_reduce", 8, [1e4, 1e8], 450e9)
    >>> bool(time_s[0, 0] < 50e-6 < time_s[0, 1])
    True
    """
    c = tables.constants("collective") if constants is None else constants
    n, message = size_arrays(n_chips, message_bytes)
    require_at_least("n_chips", n, 1)
    require_non_negative("message_bytes", message, "B")
    link = per_design(np.atleast_1d(require_non_negative("link_bytes_per_s", link_bytes_per_s, "B/s")), n)
    host = per_design(np.atleast_1d(require_positive("host_bytes_per_s", host_bytes_per_s, "B/s")), n)
    scale = per_design(np.atleast_1d(require_positive("latency_scale_ratio", latency_scale_ratio, "1")), n)
    sharing = c["host_sharing_exponent"] if host_sharing_exponent is None else host_sharing_exponent
    shared = np.maximum(n / 2.0, 1.0) ** per_design(np.atleast_1d(np.asarray(sharing)), n)
    host_rate = host * c["host_efficiency_fraction"] / shared
    wire = wire_bytes(kind, n, message)
    in_switch = np.asarray(in_switch_reduction)
    taken = routes or (Route(1.0, n - 1.0, 0.0),)
    rates = [
        np.minimum(np.maximum(link * route.link_fraction, host_rate), port_bytes_per_s) * route.network_fraction
        for route in taken
    ]
    times_s = [
        _route_time_s(kind, n, message, wire * route.wire_ratio, rate, scale, in_switch, route, c)
        for route, rate in zip(taken, rates, strict=True)
    ]
    busy_s = times_s[0] if len(times_s) == 1 else np.minimum(*times_s)
    if kind == "all_reduce" and one_shot_start_s is not None:
        read_s = (n - 1.0) * message / (rates[0] * c["one_shot_link_efficiency_fraction"])
        busy_s = np.minimum(busy_s, per_design(one_shot_start_s, n) + taken[0].hop_s + read_s)
    return np.asarray(np.where(n > 1, busy_s, 0.0))


def _route_time_s(
    kind: str,
    n: FloatArray,
    message: FloatArray,
    wire: FloatArray,
    rate: FloatArray,
    scale: FloatArray,
    in_switch: NDArray[np.bool_],
    route: Route,
    c: Constants,
) -> FloatArray:
    """Time over one route: latency, then the faster protocol, never below the wire (n_designs, n_shapes) [s]."""
    latency_s = scale * (c[f"{kind}_start_s"] + route.n_steps * c[f"{kind}_step_s"]) + route.hop_s
    moving_s = _moving_time_s(kind, n, message, wire, rate, scale, in_switch, route.n_steps, c)
    return np.asarray(np.maximum(latency_s + moving_s, wire / rate))


def _moving_time_s(
    kind: str,
    n: FloatArray,
    message: FloatArray,
    wire: FloatArray,
    rate: FloatArray,
    scale: FloatArray,
    in_switch_reduction: NDArray[np.bool_],
    n_steps: FloatArray | float,
    c: Constants,
) -> FloatArray:
    """
    The faster of two protocols beyond the latency of either, with a smooth corner, (n_designs, n_shapes) [s].

    One moves flags with the data, at a share of the link; the other synchronises first and then fills the link. Two
    chips, one of which sends, copy at once.
    """
    reduced = np.where(in_switch_reduction & (kind == "all_reduce"), c["in_switch_wire_ratio"], 1.0)
    filled_s = (wire * reduced / c["link_efficiency_fraction"] + c[f"{kind}_extra_passes"] * message) / rate
    if kind == "send_recv":
        return np.asarray(filled_s)
    exchange = "all_to_all" if kind == "all_to_all" else "ring"
    share = np.minimum(c[f"{exchange}_flagged_fraction"] * (n / 4.0) ** c["flagged_chips_exponent"], 0.5)
    flagged_s = wire / (share * rate)
    full_s = scale * (c["setup_s"] + n_steps * c["setup_step_s"]) * c[f"{exchange}_setup_ratio"] + filled_s
    slower = smooth_maximum(flagged_s, full_s, 3.0)
    return np.asarray(flagged_s * full_s / np.maximum(slower, np.finfo(float).tiny))


def collective_latency_ratio(designs: DesignBatch, constants: Constants | None = None) -> FloatArray:
    """
    Latency of each design's collectives over the reference, shape (n_designs,) [1].

    The steps are cycles of the cores, and a chip of several dies synchronises across them first.
    """
    c = tables.constants("collective") if constants is None else constants
    dies = 1.0 + c["latency_per_further_die_fraction"] * (designs.n_dies - 1.0)
    return np.asarray(dies * c["clock_reference_hz"] / designs.clock_hz)
