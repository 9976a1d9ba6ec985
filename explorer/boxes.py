"""Boxes of designs: what they hold, and those that cover a space."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from explorer.problem import Problem
from explorer.space import RATE_DOUBLING, Parameter, Space, numeric_values
from models.checks import BoolArray, IntArray
from models.hardware.memory import memory_table
from models.operators.program_traits import used_classes
from models.precision.formats import RATE_CLASSES
from models.precision.promotion import class_code, promoted_classes
from models.serving.steady import CompiledServing

LINKS: Mapping[str, str] = {"scale_up": "scale_up_link", "scale_out": "scale_out_link"}
"""Kind of link -> parameter that sets its bandwidth."""

PIECE = 4
"""Alternatives of a scenario of a mixture that are kept or left out together."""


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
        points, points, nothing, nothing, nothing, np.ones((len(points), len(mixture_windows(problem))), dtype=bool)
    )


def point_boxes(points: IntArray, first: IntArray, last: IntArray) -> Boxes:
    """Boxes that hold one design each."""
    nothing = np.zeros((len(points), 0), dtype=bool)
    return Boxes(points, points, first, last, np.zeros(len(points), dtype=np.int64), nothing)


def join(parts: list[Boxes]) -> Boxes:
    """All boxes of several batches in order."""
    return Boxes(*[np.concatenate([getattr(p, f.name) for p in parts]) for f in dataclasses.fields(Boxes)])


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
    n_kept = len(mixture_windows(problem)) if len(problem.scenarios) > 1 else 0
    kept = np.ones((len(low), n_kept), dtype=bool)
    return Boxes(low, high, chosen[:, 0], chosen[:, 1], np.zeros(len(low), dtype=np.int64), kept)


def mixture_windows(problem: Problem) -> list[tuple[int, IntArray]]:
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


def alternative_windows(problem: Problem) -> IntArray:
    """First and last alternative of each window of the scenario, shape (n_windows, 2); one window for a mixture."""
    return np.array([[0, 0]]) if len(problem.scenarios) > 1 else problem.scenarios[0].windows
