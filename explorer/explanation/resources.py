"""Resources of a design that can be relieved: which fields more of one changes, and what it is paid as."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from models.checks import FloatArray
from models.hardware.design import DesignBatch


@dataclass(frozen=True)
class Resource:
    """
    One resource: fields of the design that f times as much of it multiplies, each by f to the power stated.

    `price` are the fields of the chip that is paid for; the same where left empty.
    """

    description: str
    fields: Mapping[str, float]
    price: Mapping[str, float] = dataclasses.field(default_factory=dict)


RESOURCES: Mapping[str, Resource] = {
    "compute": Resource(
        "rate of the matrix arrays, their fill and drain included; lanes and ports keep their rate",
        {"clock_hz": 1.0, "noc_bytes_per_cycle_per_core": -1.0, "vector_lanes_per_core": -1.0},
        {"arrays_per_core": 1.0},
    ),
    "vector_lanes": Resource("vector lanes of every core", {"vector_lanes_per_core": 1.0}),
    "on_chip_port": Resource("port of every core to the shared buffer", {"noc_bytes_per_cycle_per_core": 1.0}),
    "memory_bandwidth": Resource(
        "bandwidth of the main memory, paid as more stacks",
        {"memory_bandwidth_bytes_per_s": 1.0},
        {"memory_bandwidth_bytes_per_s": 1.0, "memory_stacks": 1.0},
    ),
    "scale_up_link": Resource("links to chips of the same node", {"scale_up_bytes_per_s": 1.0}),
    "scale_out_link": Resource("links to other nodes", {"scale_out_bytes_per_s": 1.0}),
    "host_io": Resource("link to the host", {"host_bytes_per_s": 1.0}),
    "power_cap": Resource("power under which the clock settles", {"tdp_w": 1.0}),
}
"""Resources whose share of the time can be measured, by name."""

FURTHER: Mapping[str, Resource] = {
    "cores": Resource("cores with all that is in them", {"n_cores": 1.0}),
    "clock": Resource("clock of the cores", {"clock_hz": 1.0}),
    "scratchpad": Resource("memory of every core", {"scratchpad_bytes_per_core": 1.0}),
    "shared_buffer": Resource("buffer shared by all cores", {"l2_bytes": 1.0}),
    "memory_stacks": Resource(
        "stacks of memory with their bandwidth and capacity",
        {"memory_stacks": 1.0, "memory_bandwidth_bytes_per_s": 1.0, "memory_capacity_bytes": 1.0},
    ),
}
"""Resources that stand for several of the others, or whose worth is not a share of the time."""

POWER_CAP = "power_cap"
HOST_SCHEDULING, MEMORY_CAPACITY = "host_scheduling", "memory_capacity"
ERROR_BUDGET, FALL_BACK = "error_budget", "fall_back"
"""Reliefs that no field of the design states, or that change what is chosen inside."""


EVERY: Mapping[str, Resource] = {**RESOURCES, **FURTHER}
"""All resources that fields of a design state."""


def relieved(designs: DesignBatch, name: str, factor: float | FloatArray) -> DesignBatch:
    """The designs with `factor` times as much of a resource, a scalar or one for each design."""
    return _scaled(designs, EVERY[name].fields, factor)


def priced(designs: DesignBatch, name: str, factor: float | FloatArray) -> DesignBatch:
    """The designs that are paid for where they have `factor` times as much of a resource."""
    resource = EVERY[name]
    return _scaled(designs, resource.price or resource.fields, factor)


def _scaled(designs: DesignBatch, fields: Mapping[str, float], factor: float | FloatArray) -> DesignBatch:
    changed = {name: getattr(designs, name) * np.power(factor, power) for name, power in fields.items()}
    return dataclasses.replace(designs, **changed)
