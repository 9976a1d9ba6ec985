"""The requests a replay is offered: a trace at its own times, or lengths and arrivals drawn together."""

from __future__ import annotations

import dataclasses

import numpy as np

from models.workload.arrivals import Arrivals, draw_arrivals, scaled_to_rate
from models.workload.distribution import RequestDistribution
from models.workload.parametric import RequestFormula, draw_requests
from models.workload.requests import Requests

DRAWN_REQUESTS = 10_000
"""Requests drawn where a scenario has no trace: tails of the waiting time need many."""


def offered_requests(
    source: Requests | RequestFormula | RequestDistribution,
    arrivals: Arrivals,
    sustainable_rate_per_s: float,
    *,
    n: int = DRAWN_REQUESTS,
    seed: int = 0,
) -> Requests:
    """
    Return requests with the arrivals a scenario asks for.

    A trace keeps all of its requests in their order, which is information; a formula or distribution is drawn from.

    Parameters
    ----------
    source : Requests, RequestFormula or RequestDistribution
    arrivals : Arrivals
        With a load, the rate is that share of `sustainable_rate_per_s`; with neither, a trace keeps its own times
        if it is asked to, and everything else waits at time 0.
    sustainable_rate_per_s : float
        Largest rate of the design, which a load refers to. [requests/s]
    n, seed : int
        Number of requests drawn, and what fixes them.

    Raises
    ------
    ValueError
        If the trace's own times are asked for and it has none, or nothing can be sustained.

    Examples
    --------
    >>> trace = Requests(np.array([0.0, 1.0]), *np.full((2, 2), 9.0), np.zeros(2))
    >>> offered_requests(trace, Arrivals(load=0.5, from_trace=True), 8.0).arrival_s
    array([0.  , 0.25])
    """
    requests = source if isinstance(source, Requests) else draw_requests(source, n, seed)
    rate_per_s = arrivals.rate_per_s
    if arrivals.load is not None:
        rate_per_s = arrivals.load * sustainable_rate_per_s
        if not rate_per_s > 0:
            raise ValueError("a load needs a design that sustains some rate, got 0 requests/s")
    if arrivals.from_trace:
        if requests.arrival_s is None:
            raise ValueError("arrivals must not come from the trace, it has none")
        arrival_s = requests.arrival_s if rate_per_s is None else scaled_to_rate(requests.arrival_s, rate_per_s)
    elif rate_per_s is None:
        return dataclasses.replace(requests, arrival_s=None)
    else:
        arrival_s = draw_arrivals(
            rate_per_s, arrivals.cv, requests.n, seed + 1, dispersion_60_s=arrivals.dispersion_60_s
        )
    return dataclasses.replace(requests, arrival_s=np.asarray(arrival_s, dtype=np.float64))
