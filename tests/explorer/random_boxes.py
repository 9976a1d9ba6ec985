"""Problems on the full space and random boxes of them."""

import numpy as np

from explorer.boxes import Boxes
from explorer.objectives import Objective
from models.metrics import metrics_of
from models.serving.scenario import Slo
from tests.explorer.small_studies import LONG, problem_of, study, with_limits

N_BOXES = 5000 if LONG else 300

FULL = problem_of(study(system={"n_chips": 2}, quality=None) | {"space": "full"})
LIMITED = with_limits(FULL, area_mm2=600.0, unit_cost_usd=1500.0, slo=Slo(0.5, 0.02))
SMALL = problem_of(study(quality=None))
BOUNDED = tuple(
    Objective(name, metric.direction == "maximize") for name, metric in metrics_of("llm_serving").items()
    if metric.bounded
)  # fmt: skip


def random_boxes(problem, n_boxes, seed, widest=1.0):
    """Random boxes with random windows, some of one design."""
    rng = np.random.default_rng(seed)
    sizes = problem.space.sizes
    several = np.array([p.ordered or p.joined for p in problem.space.parameters])
    first = rng.integers(0, sizes, (n_boxes, len(sizes)))
    width = np.floor(rng.random((n_boxes, len(sizes))) ** 2 * widest * sizes).astype(int)
    last = np.where(several, np.minimum(first + width, sizes - 1), first)
    windows = problem.scenarios[0].windows[rng.integers(len(problem.scenarios[0].windows), size=n_boxes)]
    begin = rng.integers(windows[:, 0], windows[:, 1] + 1)
    end, nothing = rng.integers(begin, windows[:, 1] + 1), np.zeros((n_boxes, 0), dtype=bool)
    return Boxes(first, last, begin, end, np.arange(n_boxes), nothing)


def points_inside(boxes, seed):
    return np.random.default_rng(seed).integers(boxes.low, boxes.high + 1)
