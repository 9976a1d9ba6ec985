"""Collectives over the chips of one node: latency plus a bandwidth that ramps up with the message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from models import tables
from models.checks import FloatArray, require_at_least, require_known, require_non_negative, require_positive
from models.operators.axes import norm_maximum, per_design, size_arrays

Constants = Mapping[str, float]


@dataclass(frozen=True)
class Collective:
    """What a collective moves: shares of the message on the wire, in local memory and in latency steps."""

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
    memory_bandwidth_bytes_per_s: ArrayLike,
    *,
    host_bytes_per_s: ArrayLike = 32e9,
    latency_scale_ratio: ArrayLike = 1.0,
    constants: Constants | None = None,
) -> FloatArray:
    """
    Return the time of one collective.

    Where the link is 0 the message crosses the host link instead, whose rate collapses with the number of chips
    that share it.

    Parameters
    ----------
    kind : str
        A key of `COLLECTIVES`.
    n_chips, message_bytes : arrays broadcastable to (n_shapes,) or (n_designs, n_shapes)
        Chips that take part (1: no time) and the whole vector. [1], [B]
    link_bytes_per_s, memory_bandwidth_bytes_per_s, host_bytes_per_s : scalars or arrays of shape (n_designs,)
        Per chip and direction. [B/s]
    latency_scale_ratio : scalar or array of shape (n_designs,)
        Latency of this system over the fitted one: host and software set it, no data sheet does. [1]
    constants : mapping, optional
        Instead of `models/data/constants/collective.csv`.

    Returns
    -------
    array of shape (n_designs, n_shapes)
        Never below wire bytes / link. [s]

    Examples
    --------
    >>> time_s = collective_time_s("all_reduce", 8, [1e4, 1e8], 450e9, 3.35e12)
    >>> bool(time_s[0, 0] < 50e-6 < time_s[0, 1])
    True
    """
    c = tables.constants("collective") if constants is None else constants
    n, message = size_arrays(n_chips, message_bytes)
    require_at_least("n_chips", n, 1)
    require_non_negative("message_bytes", message, "B")
    link = per_design(np.atleast_1d(require_non_negative("link_bytes_per_s", link_bytes_per_s, "B/s")), n)
    host = per_design(np.atleast_1d(require_positive("host_bytes_per_s", host_bytes_per_s, "B/s")), n)
    memory = per_design(
        np.atleast_1d(require_positive("memory_bandwidth_bytes_per_s", memory_bandwidth_bytes_per_s, "B/s")), n
    )
    scale = per_design(np.atleast_1d(require_positive("latency_scale_ratio", latency_scale_ratio, "1")), n)
    wire = wire_bytes(kind, n, message)
    step_s = {"all_reduce": c["latency_step_s"] + c["latency_reduce_step_s"], "all_to_all": 0.3 * c["latency_step_s"]}
    latency_s = scale * (c["latency_start_s"] + (n - 1.0) * step_s.get(kind, c["latency_step_s"]))
    shared = np.where(link > 0, 1.0, np.maximum(n / 2.0, 1.0) ** c["host_sharing_exponent"])
    rate = np.where(link > 0, link, host) / shared
    passes = c["memory_passes"] * (1.5 if kind == "all_reduce" else 1.0)
    moving_s = wire / (c["link_efficiency_fraction"] * rate) + passes * message / memory
    ramp = (
        1.0
        + (c["ramp_bytes"] * np.minimum(rate / c["link_reference_bytes_per_s"], 1e3) / np.maximum(wire, 1.0))
        ** c["ramp_exponent"]
    )
    busy_s = norm_maximum(c["overlap_exponent"], latency_s, moving_s * ramp)
    return np.asarray(np.where(n > 1, busy_s, 0.0))


def all_reduce_time_s(
    n_chips: ArrayLike,
    message_bytes: ArrayLike,
    link_bytes_per_s: ArrayLike,
    memory_bandwidth_bytes_per_s: ArrayLike,
    *,
    kind: str = "all_reduce",
    host_bytes_per_s: ArrayLike = 32e9,
    latency_scale_ratio: ArrayLike = 1.0,
    constants: Constants | None = None,
) -> FloatArray:
    """`collective_time_s` with the all-reduce as default kind, shape (n_designs, n_shapes) [s]."""
    return collective_time_s(
        kind,
        n_chips,
        message_bytes,
        link_bytes_per_s,
        memory_bandwidth_bytes_per_s,
        host_bytes_per_s=host_bytes_per_s,
        latency_scale_ratio=latency_scale_ratio,
        constants=constants,
    )
