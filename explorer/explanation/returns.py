"""What a little more of each resource returns: percent of every objective per percent, per mm2 and per watt."""

from __future__ import annotations

from typing import Any

import numpy as np

from explorer.explanation.resources import EVERY, priced, relieved
from explorer.explanation.work import Judged, Work, cost_of, gain_fraction
from models.checks import FloatArray
from models.hardware.design import concatenate

MORE_FACTOR = 1.1
"""How much of a resource the design is given."""

LEAST_AREA_MM2, LEAST_POWER_W = 1e-3, 1e-3
"""Resources that cost less of them are not divided by what they cost."""


def resource_return(work: Work) -> list[dict[str, Any]]:
    """
    Return the worth of a tenth more of each resource at the same operating point.

    Returns
    -------
    list of dict
        resource, area_mm2 and power_w (of the full rate) that it costs, and for each objective the gain at the price
        of before: in percent per percent of the resource, and per mm2 and per watt that it costs, None where it costs
        none. `net_gain_per_percent` is the gain with the larger chip paid for.
    """
    names = list(EVERY)
    performance = concatenate([work.performance, *(relieved(work.performance, name, MORE_FACTOR) for name in names)])
    chips = concatenate([work.cost, *(priced(work.cost, name, MORE_FACTOR) for name in names)])
    judged, free = work.judged(performance, chips), work.judged(performance)
    area, power = (_figure(judged.evaluations[0].figures, name) for name in ("area_mm2", "full_rate_power_w"))
    gains, net = _gains(free), _gains(judged)
    return [
        {
            "resource": name,
            "area_mm2": float(area[i] - area[0]),
            "power_w": float(power[i] - power[0]),
            "gain_per_percent": _per(gains, i, MORE_FACTOR - 1.0, 0.0),
            "net_gain_per_percent": _per(net, i, MORE_FACTOR - 1.0, 0.0),
            "gain_fraction_per_mm2": _per(gains, i, float(area[i] - area[0]), LEAST_AREA_MM2),
            "gain_fraction_per_w": _per(gains, i, float(power[i] - power[0]), LEAST_POWER_W),
        }
        for i, name in enumerate(names, start=1)
    ]


def _gains(judged: Judged) -> dict[str, FloatArray]:
    """Gain of each design over the first in each objective, shape (n_designs,) [1]."""
    costs = {each.metric: cost_of(each, judged.objective(each)) for each in judged.problem.objectives}
    return {metric: gain_fraction(values[0], values) for metric, values in costs.items()}


def _figure(figures: Any, name: str) -> FloatArray:
    return np.asarray(getattr(figures, name)[:, 0])


def _per(gains: dict[str, FloatArray], index: int, amount: float, least: float) -> dict[str, float] | None:
    return {metric: float(values[index]) / amount for metric, values in gains.items()} if amount > least else None
