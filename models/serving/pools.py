"""Prefill and decode on engines of their own: the best ratio of the two, and the cache sent from one to the other."""

from __future__ import annotations

import numpy as np

from models.checks import FloatArray
from models.operators.collective_terms import path_columns
from models.operators.step import StepProgram, step_program, term
from models.serving.capacity import sequence_bytes_per_chip
from models.serving.engine_terms import scenario_traits
from models.serving.scenario import Alternatives, ServingScenario


def best_pools(
    n_engines: FloatArray, prompts_per_s: FloatArray, answers_per_s: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """
    Return the rate of the narrower pool at the best number of prefill engines, and that number.

    The rate min(x prompts, (n - x) answers) of x prefill engines rises and then falls, so the best whole x is next to
    where both pools are equally fast. Latencies and the energy of the work itself do not depend on x, so no other x
    is better in anything.

    Parameters
    ----------
    n_engines : array of shape (n_designs, n_alternatives)
        Of both pools together, at least 2. [1]
    prompts_per_s, answers_per_s : arrays, as `n_engines`
        Rates of one engine of either pool. [requests/s]

    Examples
    --------
    Eight engines whose prompts take a third of the time of their answers: two for prompts.

    >>> rate, n_prefill = best_pools(np.array(8.0), np.array(3.0), np.array(1.0))
    >>> float(rate), float(n_prefill)
    (6.0, 2.0)
    """
    even = n_engines * answers_per_s / (prompts_per_s + answers_per_s)
    fewer = np.clip(np.floor(even), 1.0, n_engines - 1.0)
    more = np.clip(fewer + 1.0, 1.0, n_engines - 1.0)
    rates = [np.minimum(x * prompts_per_s, (n_engines - x) * answers_per_s) for x in (fewer, more)]
    return np.maximum(*rates), np.where(rates[1] > rates[0], more, fewer)


def transfer_program(scenario: ServingScenario, choices: Alternatives) -> StepProgram:
    """
    Return the sending of one prompt's cache from chip to chip, all layers over one link of each chip of a group.

    Pools lie on nodes of their own where there are several, and send over scale-out links, each chip to any node; in
    one node over scale-up links, each chip to the one that is half a node away.
    """
    requests, system = scenario.requests, scenario.system
    degrees = np.unique(choices.tensor_parallel)
    table = sequence_bytes_per_chip(scenario.network, [int(t) for t in degrees], scenario.mixes, requests.input_tokens)
    message = table[np.searchsorted(degrees, choices.tensor_parallel), choices.mix]
    across = system.n_nodes > 1
    op, n, apart = ("all_to_all", system.n_nodes, 1) if across else ("send_recv", 2, max(system.n_chips // 2, 1))
    paths = path_columns(system.interconnect, op, np.full(len(choices), n), apart, scale_out=across)
    paths |= {"n_steps": np.ones(len(choices))} if paths else {}
    sent = term(
        "cache_transfer", "collective", "send_recv", 1.0, n_chips=np.full(len(choices), 2.0), message_bytes=message,
        scale_out=1.0 if across else 0.0, exposed_fraction=1.0, **paths, **scenario_traits(scenario).host_columns,
    )  # fmt: skip
    return step_program([sent], overhead_s=0.0, calibration=scenario.calibration)
