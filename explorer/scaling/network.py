"""Waiting for the network that a system states, which no field of a design relieves."""

from __future__ import annotations

import dataclasses

import numpy as np

from explorer.explanation.chain import time_shares
from explorer.explanation.prediction import FREE_FACTOR, LEAST_SHARE, PROBE_FACTOR, measured_shares
from explorer.explanation.resources import relieved
from explorer.explanation.work import Work, fresh, programs_of, with_programs
from models.operators.step import StepProgram
from models.serving.scenario import System

NETWORK = "network"
"""The rate at which the network between nodes takes what a chip sends."""

PORT = "port_bytes_per_s"


def shares_with_network(work: Work) -> dict[str, float]:
    """Shares of the time by resource, where the system states the rate of its network with that; `latency` the rest."""
    shares = time_shares(work)
    if not any(_states_rate(each.system) for each in work.compiled):
        return shares.document()
    times = [1.0 / _with_network(work, factor).now().rate() for factor in (PROBE_FACTOR, 1.0 / PROBE_FACTOR)]
    now, free = 1.0 / work.now().rate(), 1.0 / _with_network(work, FREE_FACTOR).now().rate()
    both, _ = measured_shares(np.array([now, *times, free])[:, 0])
    share = float(both) - shares.time["scale_out_link"]
    found = shares.time | ({NETWORK: share} if share > LEAST_SHARE else {})
    return found | {"latency": max(1.0 - sum(found.values()), 0.0)}


def _states_rate(system: System) -> bool:
    network = system.interconnect.scale_out
    return network is not None and network.port_bytes_per_s is not None


def _with_network(work: Work, factor: float) -> Work:
    """The work over a network of `factor` times the rate, from chips that can send as much more."""
    compiled = [
        with_programs(each, {key: _faster(program, factor) for key, (program, _) in programs_of(each, own).items()})
        for each, own in zip(work.compiled, work.alternatives, strict=True)
    ]
    return dataclasses.replace(fresh(work, compiled), performance=relieved(work.performance, "scale_out_link", factor))


def _faster(program: StepProgram, factor: float) -> StepProgram:
    terms = tuple(
        dataclasses.replace(each, columns={**each.columns, PORT: each.columns[PORT] * factor})
        if PORT in each.columns
        else each
        for each in program.terms
    )
    return dataclasses.replace(program, terms=terms)
