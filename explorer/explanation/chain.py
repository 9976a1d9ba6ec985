"""The chain of bottlenecks: relieve what binds until something else does, see what it gains and costs, go on."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from explorer.explanation.choices import Relief, relief_of_choices, wider_formats
from explorer.explanation.prediction import (
    FREE_FACTOR,
    PROBE_FACTOR,
    law,
    measured_shares,
    predicted,
    with_host,
)
from explorer.explanation.resources import HOST_SCHEDULING, RESOURCES, priced, relieved
from explorer.explanation.work import Work, gain_fraction
from models.checks import FloatArray
from models.serving.steady import CompiledServing

STEPS = 5
"""Steps of a chain."""

LEAST_FACTOR, MOST_FACTOR = 1.1, 4.0
"""By how much a resource is relieved in one step at least and at most: less tells nothing, more is another design."""

LEAST_SHARE = 1e-3
"""Below this a resource is not worth a step."""

NON_BINDING_GAIN_FRACTION = 0.005
"""A resource does not bind where the factor of a step gains less than this on it."""

FORESEEN_FRACTION = 0.5
"""Share of that gain below which the shares must foresee it, as they can be off on what hardly waits."""


@dataclasses.dataclass(frozen=True)
class Shares:
    """By resource: shares of the time per unit of work and of the first objective that wait for it."""

    time: dict[str, float]
    objective: dict[str, float]
    """Percent by which the first objective improves for a percent more of the resource [1]."""
    rest: dict[str, float]
    """What is left of the first objective's cost where the resource is free [1]."""

    def document(self) -> dict[str, float]:
        """Shares of the time; `latency` waits for no resource: starts of kernels and messages."""
        return self.time | {"latency": max(1.0 - sum(self.time.values()), 0.0)}


def time_shares(work: Work) -> Shares:
    """Measure the shares of all resources: every design with a little more, less and plenty of one, in one call."""
    factors = np.array([1.0, PROBE_FACTOR, 1.0 / PROBE_FACTOR, FREE_FACTOR])
    names = list(RESOURCES)
    designs = work.copies(4 * len(names))
    fields: dict[str, FloatArray] = {}
    for i, name in enumerate(names):
        probes = relieved(work.copies(4), name, factors)
        for field in RESOURCES[name].fields:
            column = fields.setdefault(field, getattr(designs, field).copy())
            column[4 * i : 4 * i + 4] = getattr(probes, field)
    probed = work.judged(dataclasses.replace(designs, **fields))
    hosts = [work.now(), *(with_host(work, float(f)).now() for f in factors[1:])]
    every = [*names, HOST_SCHEDULING]
    times, costs = (
        np.vstack([values.reshape(len(names), 4), own]).T
        for values, own in (
            (1.0 / probed.rate(), [1.0 / each.rate()[0] for each in hosts]),
            (probed.cost(), [each.cost()[0] for each in hosts]),
        )
    )
    time, _ = measured_shares(times)
    objective, rest = measured_shares(costs)
    return Shares(*(dict(zip(every, values.tolist(), strict=True)) for values in (time, objective, rest)))


def bottleneck_chain(work: Work, n_steps: int = STEPS) -> list[dict[str, Any]]:
    """
    Return what binds, step after step; a resource that was relieved once is left as it is.

    What binds is what the first objective waits for most. A cap on power may lengthen the time and yet not bind: at a
    lower clock the same work takes less energy.

    Returns
    -------
    list of dict
        resource, share_fraction of the first objective that waits for it (of a choice its gain over the widening, both
        in logarithms), factor, until (the resource that binds next, or `factor_limit`), predicted_gain_fraction and
        gain_fraction of the first objective at the price of before, rate_gain_fraction, net_gain_fraction with the
        larger chip paid for, area_mm2 and power_w that it costs; the first step also same_factor_on_others.
    """
    steps: list[dict[str, Any]] = []
    wider = wider_formats(work)
    while len(steps) < n_steps:
        step = _step(work, wider, {each["resource"] for each in steps})
        if step is None:
            break
        steps.append(step.document)
        work = step.work
    return steps


@dataclasses.dataclass(frozen=True)
class _Step:
    """One step, and the work after it, whose chip is paid for as before."""

    document: dict[str, Any]
    work: Work


def _step(work: Work, wider: CompiledServing | None, done: set[str]) -> _Step | None:
    shares = time_shares(work)
    left = {name: share for name, share in shares.objective.items() if name not in done}
    scaled = max(left, key=lambda name: left[name])
    changes = [each for each in relief_of_choices(work, wider) if each.name not in done]
    change = max(changes, key=lambda each: each.strength, default=None)
    if change is not None and change.strength > left[scaled]:
        return _choice_step(work, change, scaled)
    if left[scaled] < LEAST_SHARE:
        return None
    factor, until = factor_until_next(shares, scaled, done)
    free = with_more(work, scaled, factor)
    bought = dataclasses.replace(free, cost=priced(work.cost, scaled, factor) if scaled in RESOURCES else work.cost)
    document = {
        "resource": scaled,
        "share_fraction": left[scaled],
        "factor": factor,
        "until": until,
        "predicted_gain_fraction": float(gain_fraction(work.now().cost(), predicted(work, scaled, factor).cost())[0]),
        **_gains(work, free, bought),
    }
    if not done:
        document["same_factor_on_others"] = _others(work, shares, scaled, factor)
    return _Step(document, free)


def factor_until_next(shares: Shares, name: str, done: set[str]) -> tuple[float, str]:
    """
    By how much a resource must grow until another that is not `done` binds, and which does.

    The shares of the others fill what its own share leaves.
    """
    others = {each: value for each, value in shares.objective.items() if each != name and each not in done}
    following = max(others, key=lambda each: others[each])
    grid = np.geomspace(LEAST_FACTOR, MOST_FACTOR, 120)
    one, share, rest = np.ones(1), np.array([shares.objective[name]]), np.array([shares.rest[name]])
    time = law(one, share, rest, grid)
    own = -np.gradient(np.log(time), np.log(grid))
    left = others[following] * (1.0 - own) / max(1.0 - share[0], 1e-9)
    reached = np.flatnonzero(own <= left)
    return (float(grid[reached[0]]), following) if len(reached) else (MOST_FACTOR, "factor_limit")


def with_more(work: Work, name: str, factor: float) -> Work:
    """The work with more of a resource, paid for as before."""
    if name == HOST_SCHEDULING:
        return with_host(work, factor)
    return dataclasses.replace(work, performance=relieved(work.performance, name, factor))


def _gains(work: Work, free: Work, bought: Work) -> dict[str, float]:
    """What a step gains, and what the chip with it costs beyond the chip as it is."""
    before, fast, has = work.now(), free.now(), bought.now()
    return {
        "gain_fraction": float(gain_fraction(before.cost(), fast.cost())[0]),
        "rate_gain_fraction": float(fast.rate()[0] / before.rate()[0] - 1.0),
        "net_gain_fraction": float(gain_fraction(before.cost(), has.cost())[0]),
        "area_mm2": has.figure("area_mm2") - before.figure("area_mm2"),
        "power_w": has.average_power_w() - before.average_power_w(),
        "unit_cost_usd": has.figure("unit_cost_usd") - before.figure("unit_cost_usd"),
    }


def _choice_step(work: Work, change: Relief, scaled: str) -> _Step:
    bought = dataclasses.replace(change.free, cost=change.price(work.cost))
    document: dict[str, Any] = {
        "resource": change.name,
        "share_fraction": change.strength,
        "factor": change.factor,
        "until": scaled,
        "change": change.change,
        "predicted_gain_fraction": change.predicted_gain_fraction,
        **_gains(work, change.free, bought),
    }
    return _Step(document, change.free)


def _others(work: Work, shares: Shares, binding: str, factor: float) -> list[dict[str, Any]]:
    """What the factor of a step gains on every other resource: by its share of the whole, and evaluated."""
    before, rows = work.now().cost(), []
    for name in (each for each in shares.objective if each != binding):
        after = law(np.ones(1), np.array([shares.objective[name]]), np.array([shares.rest[name]]), factor)
        foreseen = float(1.0 / after[0] - 1.0)
        rows.append(
            {
                "resource": name,
                "predicted_gain_fraction": foreseen,
                "gain_fraction": float(gain_fraction(before, with_more(work, name, factor).now().cost())[0]),
                "binds": foreseen >= FORESEEN_FRACTION * NON_BINDING_GAIN_FRACTION,
            }
        )
    return rows
