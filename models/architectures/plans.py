"""Parallel plans: how a network is dealt to chips that work together, for serving and training alike."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from models.architectures.lowered import LoweredNetwork


@dataclass(frozen=True)
class ParallelPlan:
    """
    Chips that run a network together: tensor x attention data x pipeline parallel.

    `tensor_parallel` chips share every layer. `attention_data_parallel` such groups have tokens of their own and
    share the routed experts, whole experts dealt to all of them. `pipeline_parallel` stages hold the layers.
    """

    tensor_parallel: int = 1
    attention_data_parallel: int = 1
    pipeline_parallel: int = 1

    @property
    def stage_chips(self) -> int:
        """Chips that share the layers of one stage."""
        return self.tensor_parallel * self.attention_data_parallel

    @property
    def n_chips(self) -> int:
        """Chips of one engine; a system runs as many engines side by side as it has room for."""
        return self.stage_chips * self.pipeline_parallel


def require_plan(network: LoweredNetwork, plan: ParallelPlan, n_chips: int, n_chips_per_node: int) -> None:
    """
    Refuse a plan that a network or a system cannot be dealt by.

    Raises
    ------
    ValueError
        If the plan's chips do not divide those of the system, a tensor parallel group neither divides a node nor fills
        whole ones, or there are more shares than heads, experts or layers.
    """
    if n_chips % plan.n_chips:
        raise ValueError(
            f"tensor_parallel x attention_data_parallel x pipeline_parallel must divide {n_chips} chips, "
            f"got {plan.tensor_parallel} x {plan.attention_data_parallel} x {plan.pipeline_parallel} = {plan.n_chips}"
        )
    tensor, groups, node = plan.tensor_parallel, plan.attention_data_parallel, n_chips_per_node
    if node % tensor and tensor % node:
        raise ValueError(f"tensor_parallel must divide a node of {node} chips or fill whole nodes, got {tensor}")
    heads = min((a.n_heads for a in network.attentions), default=1)
    if tensor > heads:
        raise ValueError(f"tensor_parallel must be at most {heads}, the heads of {network.name}, got {tensor}")
    experts = max((o.n_experts for o in network.linears if o.rows == "routed"), default=0)
    if groups > 1 and plan.stage_chips > experts:
        raise ValueError(
            f"tensor_parallel x attention_data_parallel must be at most {experts}, the routed experts of "
            f"{network.name}, where attention_data_parallel is above 1, got {plan.stage_chips}"
        )
    stage_share(network.n_layers, plan.pipeline_parallel)


def divisors(n: int) -> list[int]:
    """All divisors of a positive whole number, rising."""
    return [k for k in range(1, n + 1) if n % k == 0]


def stage_share(n_layers: int, pipeline_parallel: int) -> float:
    """Share of the layers on the stage that has the most of them [1]."""
    if pipeline_parallel > n_layers:
        raise ValueError(f"pipeline_parallel must be at most {n_layers}, the number of layers, got {pipeline_parallel}")
    return math.ceil(n_layers / pipeline_parallel) / n_layers


def tensor_parallel_degrees(network: LoweredNetwork, n_chips: int, n_chips_per_node: int) -> list[int]:
    """
    Degrees that divide the chips and leave at least one query head to each: inside a node, or of whole nodes.

    Whole nodes shorten a step as no single one can, and pay for it with the slower links between them.
    """
    heads = min((a.n_heads for a in network.attentions), default=1)
    inside = [t for t in range(1, min(n_chips_per_node, heads) + 1) if n_chips_per_node % t == 0]
    beyond = list(range(2 * n_chips_per_node, min(n_chips, heads) + 1, n_chips_per_node))
    return [t for t in inside + beyond if n_chips % t == 0]


def stage_plans(network: LoweredNetwork, n_chips: int, n_chips_per_node: int) -> list[ParallelPlan]:
    """
    Return every way to share a layer: tensor parallel, and for routed experts groups with tokens of their own.

    Experts are dealt whole, so groups together have at most as many chips as there are experts; groups of several
    nodes each are left out. Degrees rise, those without further groups first within each.
    """
    experts = max((o.n_experts for o in network.linears if o.rows == "routed"), default=0)
    plans = []
    for tensor in tensor_parallel_degrees(network, n_chips, n_chips_per_node):
        groups = divisors(n_chips // tensor) if tensor <= n_chips_per_node else [1]
        plans += [ParallelPlan(tensor, d) for d in groups if d == 1 or tensor * d <= experts]
    return plans


def pipeline_depths(n_layers: int, most: int) -> list[int]:
    """
    Return the numbers of stages worth trying on `most` times the chips of one stage, rising.

    They divide `most`. One whose fullest stages together count more layers than those of a deeper pipeline is left
    out, so that stages x layers of the fullest stage rises along the list: on this a shallower pipeline that fits is
    never worse than a deeper one (see `models.serving.pipeline`).

    Examples
    --------
    With 33 layers two stages count 34, three count 33.

    >>> pipeline_depths(33, 6), pipeline_depths(80, 8)
    ([1, 3, 6], [1, 2, 4, 8])
    """
    depths = [p for p in divisors(most) if p <= n_layers]
    counted = [p * math.ceil(n_layers / p) for p in depths]
    least = list(itertools.accumulate(reversed(counted), min))[::-1]
    return [p for p, own, best in zip(depths, counted, least, strict=True) if own <= best]
