"""Whether a search still finds anything better."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from explorer.hypervolume import dominated_hypervolume
from explorer.objectives import Objective
from explorer.records import TrialRecord

STALL_FRACTION = 1e-3
"""Growth of the hypervolume below which a search has stalled [1]."""


def is_stalled(objectives: Sequence[Objective], records: Sequence[TrialRecord], window: int) -> bool:
    """
    Return whether the last `window` trials made the dominated hypervolume grow by less than `STALL_FRACTION`.

    The hypervolume reaches up to the worst feasible design met in each objective; with one objective it is the
    distance of the best from the worst. Before anything feasible was found nothing has stalled.
    """
    signs = np.array([o.sign for o in objectives])
    costs = np.array([np.array(r.objectives) * signs for r in records if r.feasible]).reshape(-1, len(signs))
    n_before = sum(r.feasible for r in records[:-window]) if len(records) > window else 0
    if not n_before:
        return False
    worst = costs.max(axis=0)
    before, after = (dominated_hypervolume(part, worst) for part in (costs[:n_before], costs))
    return bool(after <= before * (1.0 + STALL_FRACTION))
