"""Boxes of designs, and bounds that no design inside can beat."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from explorer.constraints import chip_violations
from explorer.document import StudyError
from explorer.objectives import COMBINED, REGRET, Mixture, Objective, objective_values
from explorer.problem import Problem
from explorer.space import RATE_DOUBLING, Parameter, Space, designs_at, numeric_values
from models.checks import BoolArray, FloatArray, IntArray
from models.evaluate import evaluate, figures_of
from models.evaluation import ScenarioEvaluation, take_figures, worst_violation
from models.hardware.area import die_area_mm2
from models.hardware.array_variants import variants_code
from models.hardware.design import DesignBatch, take
from models.hardware.memory import (
    cheapest_of,
    memory_bandwidth_bytes_per_s,
    memory_capacity_bytes,
    memory_table,
)
from models.hardware.power import full_rate_power_w
from models.metrics import METRICS
from models.operators.program_traits import used_classes
from models.precision.formats import RATE_CLASSES
from models.precision.promotion import class_code, promoted_classes
from models.serving.steady import CompiledServing

LINKS: Mapping[str, str] = {"scale_up": "scale_up_link", "scale_out": "scale_out_link"}
"""Kind of link -> parameter that sets its bandwidth."""

WINDOW_STEPS = (2, 8)
"""Widths of windows up to which boxes are bounded together; wider ones are one further group."""

MIXTURE_ROWS = 16_384
"""Pairs of a box and a window that are evaluated together."""

PIECE = 4
"""Alternatives of a scenario of a mixture that are kept or left out together."""

TABULATED = ("array_shape", "arrays_per_core", "n_cores", "scratchpad_per_core", "noc_per_core")
"""Parameters by which cycles of GEMMs are tabulated: designs that agree in them go to the same process of a team."""

PLACE_FACTORS = np.array([1, 3, 5, 7, 11])
"""Odd, so that a step of any parameter moves a design to the other one of two processes."""

UNSEEN_PER_S = 1e300
"""Rate of a scenario that was not looked at."""

SLACK = 1e-9
"""Relative slack by which bounds are rounded outward against floating point."""


@dataclass(frozen=True)
class Boxes:
    """
    Boxes of a space: per parameter the lowest and the highest index, and a window of inner alternatives.

    `low` and `high` have shape (n_boxes, n_parameters) and are equal for categories that are not joined. `first` and
    `last` of shape
    (n_boxes,) are the window: alternatives of one degree and mix, neighbouring batches. `parent` is a tag that
    selections carry along. In a mixture `kept` of shape (n_boxes, n_windows) tells which windows of which scenario
    still matter, and `first` and `last` are idle; otherwise it has no columns.
    """

    low: IntArray
    high: IntArray
    first: IntArray
    last: IntArray
    parent: IntArray
    kept: BoolArray

    @property
    def n_boxes(self) -> int:
        """Number of boxes."""
        return len(self.low)

    def take(self, index: IntArray | BoolArray) -> Boxes:
        """The boxes at `index`."""
        return Boxes(*[getattr(self, field.name)[index] for field in dataclasses.fields(self)])


def mixture_point_boxes(problem: Problem, points: IntArray) -> Boxes:
    """Boxes that hold one design each, with every window of every scenario of a mixture."""
    nothing = np.zeros(len(points), dtype=np.int64)
    return Boxes(
        points, points, nothing, nothing, nothing, np.ones((len(points), len(_mixture_windows(problem))), dtype=bool)
    )


def point_boxes(points: IntArray, first: IntArray, last: IntArray) -> Boxes:
    """Boxes that hold one design each."""
    nothing = np.zeros((len(points), 0), dtype=bool)
    return Boxes(points, points, first, last, np.zeros(len(points), dtype=np.int64), nothing)


def join(parts: list[Boxes]) -> Boxes:
    """All boxes of several batches in order."""
    return Boxes(*[np.concatenate([getattr(p, f.name) for p in parts]) for f in dataclasses.fields(Boxes)])


def require_boundable(objectives: tuple[Objective, ...]) -> None:
    """
    Refuse, by name, an objective whose value on a box this model cannot bound.

    Raises
    ------
    StudyError
        With a pointer to the objective.
    """
    faults = [
        {"pointer": f"/objectives/{i}/metric", "detail": f"{o.metric} cannot be certified in this direction"}
        for i, o in enumerate(objectives)
        if not is_boundable(o)
    ]
    if faults:
        raise StudyError(faults)


def is_boundable(objective: Objective) -> bool:
    """Whether the two-batch evaluation of a box bounds the objective."""
    if objective.metric in (COMBINED, REGRET):
        return objective.maximize == (objective.metric == COMBINED)
    metric = METRICS[objective.metric]
    return metric.bounded and objective.maximize == (metric.direction == "maximize")


def idle_parameters(problem: Problem) -> tuple[str, ...]:
    """
    Parameters that no scenario of the study can use, so that the cheapest value is at least as good as any.

    A second tier is idle only beside the choice of none, of two tiers neither need be cheaper in every respect, and
    only where no scenario may put what it has no room for into it.
    """
    used = frozenset().union(*[each.used_links(np.arange(each.n_alternatives)) for each in problem.scenarios])
    offloads = any(isinstance(each, CompiledServing) and each.cold is not None for each in problem.scenarios)
    free = [p.name for p in problem.space.parameters if p.name == "second_tier" and "none" in p.values]
    tiers = [] if offloads else free
    return (*tiers, *[parameter for link, parameter in LINKS.items() if link not in used])


def root_boxes(problem: Problem) -> Boxes:
    """
    Return boxes that hold an optimum: for every combination of categories, and of degree and mix.

    Parameters that nothing uses are fixed at their cheapest value, and formats that a mix does not use are left
    out beside it, which loses no optimum since area, power and cost rise with them and nothing else changes.
    """
    space, idle = problem.space, idle_parameters(problem)
    spans = [_root_spans(p, idle) for p in space.parameters]
    corner = [
        np.array(np.meshgrid(*ends, indexing="ij")).reshape(len(spans), -1).T for ends in zip(*spans, strict=True)
    ]
    windows = alternative_windows(problem)
    pair = np.arange(len(corner[0]) * len(windows))
    category, window = pair // len(windows), pair % len(windows)
    formats = [p.name for p in space.parameters].index("native_formats")
    kept = useful_formats(problem, windows)[window, corner[0][category, formats]]
    category, window = category[kept], window[kept]
    low, high, chosen = corner[0][category], corner[1][category], windows[window]
    for link, axis in _link_axes(space).items():
        high[~uses_link(problem, windows, link)[window], axis] = 0
    n_kept = len(_mixture_windows(problem)) if len(problem.scenarios) > 1 else 0
    kept = np.ones((len(low), n_kept), dtype=bool)
    return Boxes(low, high, chosen[:, 0], chosen[:, 1], np.zeros(len(low), dtype=np.int64), kept)


def _mixture_windows(problem: Problem) -> list[tuple[int, IntArray]]:
    """Windows of each scenario in pieces: position of the scenario, and alternatives, the last of which recurs."""
    windows = []
    for i, each in enumerate(problem.scenarios):
        for first, last in each.windows:
            for start in range(first, last + 1, PIECE):
                windows.append((i, np.minimum(start + np.arange(PIECE), last)))
    return windows


def _link_axes(space: Space) -> dict[str, int]:
    """Axis of each kind of link."""
    names = [p.name for p in space.parameters]
    return {link: names.index(parameter) for link, parameter in LINKS.items()}


def uses_link(problem: Problem, windows: IntArray, link: str) -> BoolArray:
    """Whether some alternative of each window sends over a kind of link, shape (n_windows,)."""
    if len(problem.scenarios) > 1:
        return np.array([LINKS[link] not in idle_parameters(problem)])
    only = problem.scenarios[0]
    return np.array([link in only.used_links(np.arange(first, last + 1)) for first, last in windows])


def _root_spans(parameter: Parameter, idle: tuple[str, ...]) -> tuple[list[int], list[int]]:
    """Lowest and highest index of each part of a parameter's values that boxes start from."""
    last = len(parameter.values) - 1
    if parameter.name in idle:
        cheapest = 0 if parameter.ordered else parameter.values.index("none")
        return [cheapest], [cheapest]
    if parameter.name == "memory_kind":
        return _runs([bool(memory_table()["hbm"][kind]) for kind in numeric_values(parameter)])
    if parameter.ordered or parameter.joined:
        return [0], [last]
    return list(range(last + 1)), list(range(last + 1))


def _runs(values: list[bool]) -> tuple[list[int], list[int]]:
    """First and last position of each run of equal values."""
    starts = [i for i, value in enumerate(values) if i == 0 or value != values[i - 1]]
    return starts, [*[start - 1 for start in starts[1:]], len(values) - 1]


def useful_formats(problem: Problem, windows: IntArray) -> BoolArray:
    """
    Whether a set of native formats can be best for the mix of a window, shape (n_windows, n_format_sets).

    It cannot where a subset of it computes every class of the mix in the same way: the subset is the smaller
    array and is as fast.
    """
    sets = next(p.values for p in problem.space.parameters if p.name == "native_formats")
    useful = np.ones((len(windows), len(sets)), dtype=bool)
    if len(problem.scenarios) > 1:
        return useful
    for row, (first, last) in enumerate(windows):
        used = used_classes(problem.scenarios[0].program, np.arange(first, last + 1))
        ways = [_way_computed(native, used) for native in sets]
        for i, own in enumerate(sets):
            useful[row, i] = not any(set(o) < set(own) and ways[j] == ways[i] for j, o in enumerate(sets))
    return useful


def _way_computed(native_formats: tuple[str, ...], used: frozenset[int]) -> tuple[tuple[float, ...], ...]:
    """How arrays with some native formats compute each class: whether natively, as which, and at which rate."""
    rates = np.zeros((1, len(RATE_CLASSES)))
    for name in native_formats:
        rates[0, class_code(name)] = RATE_DOUBLING.get(name, 1.0)
    computed = promoted_classes(rates)[0]
    return tuple((rates[0, code] > 0, computed[code], rates[0, computed[code]]) for code in sorted(used))


def _array_variants(space: Space, boxes: Boxes) -> FloatArray:
    """Set of array organisations that each box holds, as codes of shape (n_boxes,)."""
    names = [p.name for p in space.parameters]
    axes = [names.index("stationarity"), names.index("array_groups")]
    spans = [boxes.low[:, axes[0]], boxes.high[:, axes[0]], boxes.low[:, axes[1]], boxes.high[:, axes[1]]]
    radix = tuple(len(space.parameters[axis].values) for axis in np.repeat(axes, 2))
    distinct, inverse = np.unique(np.ravel_multi_index(spans, radix), return_inverse=True)
    values = [numeric_values(space.parameters[i]) for i in axes]
    codes = []
    for low, high, least, most in np.stack(np.unravel_index(distinct, radix), axis=1):
        held = itertools.product(values[0][low : high + 1], values[1][least : most + 1])
        codes.append(float(variants_code(frozenset(held))))
    return np.array(codes)[inverse]


def alternative_windows(problem: Problem) -> IntArray:
    """First and last alternative of each window of the scenario, shape (n_windows, 2); one window for a mixture."""
    return np.array([[0, 0]]) if len(problem.scenarios) > 1 else problem.scenarios[0].windows


class Rival(Protocol):
    """What designs are held against: those already found."""

    def __call__(self, cost: FloatArray) -> BoolArray:
        """Whether a design of such costs, shape (..., n_objectives), would still matter, shape (...)."""


@dataclass(frozen=True)
class Below:
    """Everything matters that costs less than a threshold in the first objective."""

    threshold: float

    def __call__(self, cost: FloatArray) -> BoolArray:
        """Whether each cost is below."""
        return np.asarray(cost[..., 0] < self.threshold)


EVERYTHING = Below(np.inf)


@dataclass(frozen=True)
class BoxBounds:
    """
    Bounds of boxes, objectives as costs to minimise.

    `cost` of shape (n_boxes, n_objectives) is never above the cost of any feasible design and alternative inside,
    infinite where none can be feasible; `first` and `last`, or `kept`, are the alternatives that still matter;
    `left_out` of shape (n_boxes,) is the least cost in the first objective of a feasible one that does not, and
    `matters` tells whether any does.
    """

    cost: FloatArray
    first: IntArray
    last: IntArray
    left_out: FloatArray
    kept: BoolArray
    matters: BoolArray

    def narrow(self, boxes: Boxes) -> Boxes:
        """The boxes with the alternatives that still matter."""
        return dataclasses.replace(boxes, first=self.first, last=self.last, kept=self.kept)


def bound_boxes(
    problem: Problem,
    boxes: Boxes,
    objectives: tuple[Objective, ...],
    rival: Rival = EVERYTHING,
    *,
    prompts: bool = True,
) -> BoxBounds:
    """
    Return bounds: times at the upper corner of every box, area, energy per access and cost at the lower.

    A point box gives the exact values of its design at its best alternative of the window. Alternatives that no longer
    matter beside `rival` are left out of the bound and of the returned windows, save where none matters. Without
    `prompts` those computed alone are left out where only their latency follows from them.
    """
    place = _place(problem, boxes.high)
    parts, order = _shared_by_place(problem, _bound_boxes, (boxes,), (objectives, rival, prompts), place)
    return BoxBounds(
        *[np.concatenate([getattr(p, f.name) for p in parts])[order] for f in dataclasses.fields(BoxBounds)]
    )


def _shared(problem: Problem, work: Callable[..., Any], rows: tuple[Any, ...], args: tuple[Any, ...] = ()) -> list[Any]:
    """`work(problem, *rows, *args)` in parts of rows that the processes of a team do side by side, or in one."""
    return problem.team[0].shared(problem, work, rows, args) if problem.team else [work(problem, *rows, *args)]


def _shared_by_place(
    problem: Problem, work: Callable[..., Any], rows: tuple[Any, ...], args: tuple[Any, ...], place: IntArray
) -> tuple[list[Any], IntArray | slice]:
    """As `_shared`, rows of one place always in one process; with the positions of the rows in the joined parts."""
    if not problem.team:
        return _shared(problem, work, rows, args), slice(None)
    parts, position = problem.team[0].shared_by_place(problem, work, rows, args, place)
    return parts, position


def without_prompts(problem: Problem) -> Problem:
    """The problem with prompts computed alone left out where only their latency follows from them."""
    left = [each.without_prompts() if isinstance(each, CompiledServing) else each for each in problem.scenarios]
    return dataclasses.replace(problem, scenarios=tuple(left))


def _place(problem: Problem, points: IntArray) -> IntArray:
    """A number for each design, equal where the designs share their rows of the largest factor tables."""
    names = [p.name for p in problem.space.parameters]
    axes = [names.index(name) for name in TABULATED]
    return np.asarray(points[:, axes] @ PLACE_FACTORS)


def _bound_boxes(
    problem: Problem, boxes: Boxes, objectives: tuple[Objective, ...], rival: Rival, prompts: bool
) -> BoxBounds:
    if not prompts:
        problem = without_prompts(problem)
    if boxes.kept.shape[1] and boxes.n_boxes:
        return _bound_mixture(problem, boxes, objectives, rival)
    cost = np.full((boxes.n_boxes, len(objectives)), np.inf)
    first, last, left_out = boxes.first.copy(), boxes.last.copy(), np.full(boxes.n_boxes, np.inf)
    matters = np.zeros(boxes.n_boxes, dtype=bool)
    width = boxes.last - boxes.first + 1
    sizes = np.searchsorted(WINDOW_STEPS, width)
    for size in np.unique(sizes):
        rows = np.flatnonzero(sizes == size)
        part = _bound_window(problem, boxes.take(rows), int(width[rows].max()), objectives, rival)
        cost[rows], first[rows], last[rows], left_out[rows] = part.cost, part.first, part.last, part.left_out
        matters[rows] = part.matters
    return BoxBounds(cost, first, last, left_out, boxes.kept, matters)


def corners(problem: Problem, boxes: Boxes) -> tuple[DesignBatch, DesignBatch]:
    """
    Performance batch and cost batch of boxes.

    Upper and lower corners; where a box holds several organisations of its arrays or kinds of memory, the best of
    them for each product, and in bandwidth, capacity and each cost.
    """
    upper = _designs(problem, boxes.high)
    if np.array_equal(boxes.low, boxes.high):
        return upper, upper
    variants = _array_variants(problem.space, boxes)
    fastest = _of_memory_kinds(problem.space, boxes, upper, np.max)
    return dataclasses.replace(fastest, array_variants=variants), _cheapest_designs(problem, boxes, boxes.low)


def _designs(problem: Problem, points: IntArray) -> DesignBatch:
    document = problem.document
    return designs_at(problem.space, points, node_nm=document.technology.node_nm, tdp_w=document.budget.tdp)


def _cheapest_designs(problem: Problem, boxes: Boxes, points: IntArray) -> DesignBatch:
    """Designs at `points` of boxes, with memory as cheap as any kind of the box."""
    return _of_memory_kinds(problem.space, boxes, _designs(problem, points), np.min)


def _of_memory_kinds(space: Space, boxes: Boxes, designs: DesignBatch, end: Callable[..., Any]) -> DesignBatch:
    """Designs with the most or the least that the kinds of memory of each box have, and the costs of the cheapest."""
    axis = [p.name for p in space.parameters].index("memory_kind")
    low, high = boxes.low[:, axis], boxes.high[:, axis]
    if np.array_equal(low, high):
        return designs
    kinds = np.asarray(numeric_values(space.parameters[axis]))
    spans, inverse = np.unique(low * len(kinds) + high, return_inverse=True)
    held = [kinds[span // len(kinds) : span % len(kinds) + 1] for span in spans]
    codes = np.array([each[0] if len(each) == 1 else cheapest_of(each) for each in held], dtype=np.float64)
    one = np.ones(1)
    bandwidth = np.array([end(memory_bandwidth_bytes_per_s(each, one)) for each in held])
    capacity = np.array([end(memory_capacity_bytes(each, one)) for each in held])
    return dataclasses.replace(
        designs,
        memory_kind=codes[inverse],
        memory_bandwidth_bytes_per_s=bandwidth[inverse] * designs.memory_stacks,
        memory_capacity_bytes=capacity[inverse] * designs.memory_stacks,
    )


def alternative_costs(
    problem: Problem, points: IntArray, first: IntArray, last: IntArray, objectives: tuple[Objective, ...]
) -> tuple[FloatArray, IntArray]:
    """
    Return exact costs of designs at each alternative of their windows.

    Returns
    -------
    cost : array of shape (n_points, n_window, n_objectives)
        Infinite where infeasible.
    alternative : array of shape (n_points, n_window)
        Alternatives beyond a shorter window repeat its last.
    """
    width = int((last - first).max()) + 1
    place = _place(problem, points)
    parts, order = _shared_by_place(problem, _point_costs, (points, first, last), (width, objectives), place)
    cost, alternative = (np.concatenate(each)[order] for each in zip(*parts, strict=True))
    return cost, alternative


def _point_costs(
    problem: Problem, points: IntArray, first: IntArray, last: IntArray, width: int, objectives: tuple[Objective, ...]
) -> tuple[FloatArray, IntArray]:
    costs, _, wanted = _window_costs(problem, point_boxes(points, first, last), width, objectives, 0.0)
    return costs, np.zeros((len(points), 1), dtype=np.int64) if wanted is None else wanted


def _bound_window(
    problem: Problem, boxes: Boxes, width: int, objectives: tuple[Objective, ...], rival: Rival
) -> BoxBounds:
    """Bounds of boxes whose windows are at most `width` alternatives wide."""
    costs, _, wanted = _window_costs(problem, boxes, width, objectives, SLACK)
    costs = _outward(costs)
    if wanted is None:
        wanted = np.zeros((boxes.n_boxes, 1), dtype=np.int64)
    matters: BoolArray = np.isfinite(costs[:, :, 0]) & rival(costs)
    any_matters = np.asarray(matters.any(axis=1))
    counted = matters | ~any_matters[:, None]
    bound = np.where(counted[:, :, None], costs, np.inf).min(axis=1)
    begin, end = np.argmax(counted, axis=1), width - 1 - np.argmax(counted[:, ::-1], axis=1)
    rows, places = np.arange(boxes.n_boxes), np.arange(width)
    outside = (places < begin[:, None]) | (places > end[:, None])
    left_out = np.where(outside, costs[:, :, 0], np.inf).min(axis=1)
    return BoxBounds(bound, wanted[rows, begin], wanted[rows, end], left_out, boxes.kept, any_matters)


def _outward(costs: FloatArray) -> FloatArray:
    """Bounds lowered by the slack; infinite ones stay."""
    return np.asarray(costs - SLACK * np.abs(np.where(np.isfinite(costs), costs, 0.0)))


def _window_costs(
    problem: Problem, boxes: Boxes, width: int, objectives: tuple[Objective, ...], slack: float
) -> tuple[FloatArray, BoolArray, IntArray | None]:
    """Costs of each alternative of each window, infinite where a limit is exceeded by more than `slack`."""
    performance, cheapest = corners(problem, boxes)
    several = len(problem.scenarios) > 1
    wanted = None if several else np.minimum(boxes.first[:, None] + np.arange(width), boxes.last[:, None])
    evaluations = evaluate(performance, cheapest, problem.scenarios, problem.tables, wanted, problem.technology)
    chip = chip_violations(problem.limits, cheapest, evaluations[0].figures)
    affordable = np.max(np.stack([v[:, 0] for v in chip.values()]), axis=0) <= slack
    if several:
        costs, possible = _mixture_costs(problem, evaluations, objectives, slack)
    else:
        possible = worst_violation(evaluations[0]) <= slack
        costs = np.stack([o.cost(objective_values(o, evaluations, problem.mixture)) for o in objectives], axis=2)
    possible = possible & affordable[:, None]
    return np.where(possible[:, :, None], costs, np.inf), possible, wanted


def _mixture_costs(
    problem: Problem, evaluations: list[ScenarioEvaluation], objectives: tuple[Objective, ...], slack: float
) -> tuple[FloatArray, BoolArray]:
    """Costs of a mixture with each scenario at its own best alternative, shape (n_boxes, 1, n_objectives)."""
    possible = np.ones((evaluations[0].units_per_s.shape[0], 1), dtype=bool)
    best = []
    for each in evaluations:
        allowed = worst_violation(each) <= slack
        possible &= allowed.any(axis=1, keepdims=True)
        rate = np.where(allowed, each.units_per_s, 0.0).max(axis=1, keepdims=True)
        best.append(dataclasses.replace(each, units_per_s=np.maximum(rate, np.finfo(float).tiny)))
    mixture: Mixture = problem.mixture
    costs = np.stack([o.cost(objective_values(o, best, mixture)) for o in objectives], axis=2)
    return np.where(possible[:, :, None], costs, np.inf), possible


def _bound_mixture(problem: Problem, boxes: Boxes, objectives: tuple[Objective, ...], rival: Rival) -> BoxBounds:
    """
    Bounds of a mixture: each scenario at the best of its kept windows.

    Scenarios are looked at one after the other; a box that those seen put beyond `rival`, were the others for
    nothing, is looked at no further. A window matters as long as the mixture may still beat `rival` with its scenario
    confined to it and the others at their best.
    """
    performance, cheapest = corners(problem, boxes)
    windows, n = _mixture_windows(problem), boxes.n_boxes
    figures = figures_of(cheapest, problem.technology)
    frame = _any_evaluation(problem, performance, cheapest)
    chip = chip_violations(problem.limits, cheapest, figures)
    alive = np.max(np.stack([v[:, 0] for v in chip.values()]), axis=0) <= SLACK
    owner = np.array([scenario for scenario, _ in windows])

    def costs(rates: FloatArray, rows: IntArray | slice) -> FloatArray:
        """Outward costs of rates of shape (n_scenarios, n_rows), infinite where a scenario does not run."""
        shown = dataclasses.replace(frame, figures=take_figures(figures, rows))
        each = [dataclasses.replace(shown, units_per_s=np.maximum(r, np.finfo(float).tiny)[:, None]) for r in rates]
        values = [o.cost(objective_values(o, each, problem.mixture)[:, 0]) for o in objectives]
        return _outward(np.where((rates.min(axis=0) > 0)[:, None], np.stack(values, axis=1), np.inf))

    everyone = slice(None)
    cost, rate = np.full((n, len(objectives)), np.inf), np.zeros((n, len(windows)))
    best = np.full((len(problem.scenarios), n), UNSEEN_PER_S)
    for scenario in np.argsort(np.bincount(owner), kind="stable"):
        rows, columns = np.nonzero(boxes.kept & alive[:, None] & (owner == scenario))
        for start in range(0, len(rows), MIXTURE_ROWS):
            part = slice(start, start + MIXTURE_ROWS)
            corner = take(performance, rows[part]), take(cheapest, rows[part])
            wanted = np.stack([windows[column][1] for column in columns[part]])
            rate[rows[part], columns[part]] = _best_rates(problem, *corner, int(scenario), wanted)
        best[scenario, alive] = rate[alive][:, owner == scenario].max(axis=1)
        cost[alive] = costs(best, everyone)[alive]
        alive &= np.isfinite(cost[:, 0]) & rival(cost)
    kept, left_out = np.zeros_like(boxes.kept), np.where(alive, np.inf, cost[:, 0])
    for column, (scenario, _) in enumerate(windows):
        rows = np.flatnonzero(alive & (rate[:, column] > 0))
        own = best[:, rows]
        own[scenario] = rate[rows, column]
        confined = costs(own, rows)
        kept[rows, column] = rival(confined)
        left_out[rows] = np.minimum(left_out[rows], np.where(kept[rows, column], np.inf, confined[:, 0]))
    return BoxBounds(cost, boxes.first, boxes.last, left_out, kept, alive)


def _any_evaluation(problem: Problem, performance: DesignBatch, cheapest: DesignBatch) -> ScenarioEvaluation:
    """An evaluation to put rates and figures into: objectives of a mixture depend on nothing else."""
    one = np.zeros(1, dtype=np.int64)
    corner, first = (take(performance, one), take(cheapest, one)), problem.scenarios[:1]
    return evaluate(*corner, first, problem.tables, one[:, None], problem.technology)[0]


def _best_rates(
    problem: Problem, performance: DesignBatch, cheapest: DesignBatch, scenario: int, wanted: IntArray
) -> FloatArray:
    """Best feasible rate of one scenario among wanted alternatives, 0 where none is, shape (n_designs,) [1/s]."""
    one = [problem.scenarios[scenario]]
    found = evaluate(performance, cheapest, one, problem.tables, wanted, problem.technology)[0]
    return np.asarray(np.where(worst_violation(found) <= SLACK, found.units_per_s, 0.0).max(axis=1))


def tighten(problem: Problem, boxes: Boxes) -> Boxes:
    """
    Return the boxes that the area budget leaves, each axis cut to the largest index it can afford.

    With all other parameters at their lowest, area rises along each axis, so everything beyond the cut is over
    budget whatever the rest is. Boxes whose lowest corner is over budget are left out.
    """
    return join(_shared(problem, _tighten, (boxes,))) if boxes.n_boxes else boxes


def tighten_halves(problem: Problem, boxes: Boxes) -> Boxes:
    """Return `tighten` of lower and then upper halves of tight boxes: the lower ones are tight as they are."""
    lower, upper = np.array_split(np.arange(boxes.n_boxes), 2)
    return join([boxes.take(lower), tighten(problem, boxes.take(upper))])


def _tighten(problem: Problem, boxes: Boxes) -> Boxes:
    limit = problem.document.budget.area * (1.0 + SLACK)
    boxes = boxes.take(_area_mm2(problem, boxes, boxes.low) <= limit)
    ordered = np.array([p.ordered for p in problem.space.parameters])
    rows, axes = np.nonzero((boxes.high > boxes.low) & ordered)
    over = boxes.high[rows, axes]
    beyond = ~_fits(problem, boxes, rows, axes, over, limit)
    rows, axes, over = rows[beyond], axes[beyond], over[beyond]
    affordable = boxes.low[rows, axes]
    while np.any(over - affordable > 1):
        middle = (affordable + over) // 2
        fits = _fits(problem, boxes, rows, axes, middle, limit)
        affordable, over = np.where(fits, middle, affordable), np.where(fits, over, middle)
    high = boxes.high.copy()
    high[rows, axes] = affordable
    return dataclasses.replace(boxes, high=high)


def _fits(
    problem: Problem, boxes: Boxes, rows: IntArray, axes: IntArray, index: IntArray, limit_mm2: float
) -> BoolArray:
    """Whether the cheapest corner of boxes `rows`, each with the axis of `axes` at `index`, keeps the area budget."""
    some = boxes.take(rows)
    return np.asarray(_area_mm2(problem, some, _raised(some.low, axes, index)) <= limit_mm2)


def _raised(points: IntArray, axes: IntArray, index: IntArray) -> IntArray:
    """Points with one axis each at another index."""
    raised = points.copy()
    raised[np.arange(len(points)), axes] = index
    return raised


def _area_mm2(problem: Problem, boxes: Boxes, points: IntArray) -> FloatArray:
    return die_area_mm2(_cheapest_designs(problem, boxes, points), problem.technology)


def budget_spans(problem: Problem, boxes: Boxes, axes: IntArray) -> FloatArray:
    """
    Return what raising each axis from its low to its high index costs, others low, in budgets.

    Returns
    -------
    array of shape (n_boxes, n_axes)
        Share of the area budget plus share of the power cap. [1]
    """
    return np.concatenate(_shared(problem, _budget_spans, (boxes,), (axes,)))


def _budget_spans(problem: Problem, boxes: Boxes, axes: IntArray) -> FloatArray:
    spans = np.zeros((boxes.n_boxes, len(axes)))
    rows, columns = np.nonzero(boxes.high[:, axes] > boxes.low[:, axes])
    raised = _raised(boxes.low[rows], axes[columns], boxes.high[rows, axes[columns]])
    spans[rows, columns] = _budget_shares(problem, raised) - _budget_shares(problem, boxes.low)[rows]
    return spans


def _budget_shares(problem: Problem, points: IntArray) -> FloatArray:
    budget, designs, used = problem.document.budget, _designs(problem, points), problem.technology
    return np.asarray(die_area_mm2(designs, used) / budget.area + full_rate_power_w(designs, used) / budget.tdp)
