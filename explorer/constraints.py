"""Named limits of a study -> relative excess per design, at most 0 where the limit is kept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from explorer.document import BudgetDocument
from models.checks import FloatArray
from models.evaluation import Figures
from models.hardware.design import DesignBatch


@dataclass(frozen=True)
class Limits:
    """The budget of one chip in the units used inside; infinite where nothing is asked."""

    area_mm2: float
    tdp_w: float
    memory_stacks: float
    unit_cost_usd: float
    quality_excess: float
    """How far the best mix exceeds the quality budget, relative; at most 0 where some mix keeps it."""


def read_limits(budget: BudgetDocument, quality_excess: float) -> Limits:
    """The limits of a budget."""
    return Limits(
        area_mm2=budget.area,
        tdp_w=budget.tdp,
        memory_stacks=np.inf if budget.memory_stacks is None else budget.memory_stacks,
        unit_cost_usd=np.inf if budget.unit_cost is None else budget.unit_cost,
        quality_excess=quality_excess,
    )


def chip_violations(limits: Limits, cost: DesignBatch, chips: Figures) -> dict[str, FloatArray]:
    """
    Relative excess of each chip over the budget and over what physics allows, shape (n_designs, 1) each.

    The power cap (`tdp`) is exceeded only where the lowest clock already breaks it: otherwise the clock settles below.
    """
    return {
        "area": chips.area_mm2 / limits.area_mm2 - 1.0,
        "memory_stacks": cost.memory_stacks[:, None] / limits.memory_stacks - 1.0,
        "unit_cost": chips.unit_cost_usd / limits.unit_cost_usd - 1.0,
        "quality": np.full((cost.n_designs, 1), limits.quality_excess),
        **chips.violations,
    }
