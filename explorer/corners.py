"""Corners of boxes as designs: the fastest and the cheapest that a box could hold."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from explorer.boxes import Boxes
from explorer.problem import Problem
from explorer.space import Space, designs_at, numeric_values
from models.checks import FloatArray, IntArray
from models.hardware.array_variants import variants_code
from models.hardware.design import DesignBatch
from models.hardware.memory import cheapest_of, memory_bandwidth_bytes_per_s, memory_capacity_bytes


def corners(problem: Problem, boxes: Boxes) -> tuple[DesignBatch, DesignBatch]:
    """
    Performance batch and cost batch of boxes.

    Upper and lower corners; where a box holds several organisations of its arrays or kinds of memory, the best of
    them for each product, and in bandwidth, capacity and each cost.
    """
    upper = designs_of(problem, boxes.high)
    if np.array_equal(boxes.low, boxes.high):
        return upper, upper
    variants = _array_variants(problem.space, boxes)
    fastest = _of_memory_kinds(problem.space, boxes, upper, np.max)
    return dataclasses.replace(fastest, array_variants=variants), cheapest_designs(problem, boxes, boxes.low)


def designs_of(problem: Problem, points: IntArray) -> DesignBatch:
    """The designs at points of the study's space."""
    document = problem.document
    return designs_at(problem.space, points, node_nm=document.technology.node_nm, tdp_w=document.budget.tdp)


def cheapest_designs(problem: Problem, boxes: Boxes, points: IntArray) -> DesignBatch:
    """Designs at `points` of boxes, with memory as cheap as any kind of the box."""
    return _of_memory_kinds(problem.space, boxes, designs_of(problem, points), np.min)


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
