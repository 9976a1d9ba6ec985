"""
How the links of a system lie: which share of a chip's links a collective can use, and how many steps it takes.

Inside a node the chips hang on a switch, or each is joined to its neighbours along the dimensions of a ring, mesh or
torus; all ports of a chip together have its stated rate. Between nodes lies a fat tree of leaf switches, each with
`nodes_per_leaf` nodes, whose links upwards carry 1/oversubscription of what comes from below.

Groups of a node are blocks of its grid. Where chips of a group are not next to each other because each stands for a
block of other chips (`stride` of them: the tensor parallel neighbours of a data parallel group), as many groups share
the links between them.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

ScaleUpTopology = Literal["switched", "ring", "mesh", "torus"]


@dataclass(frozen=True)
class ScaleUp:
    """Links inside a node; `dimensions` are the sides of the grid, none where chips hang on a switch."""

    topology: ScaleUpTopology = "switched"
    dimensions: tuple[int, ...] = ()
    hop_latency_s: float = 0.0
    """Added for every hop to what measured switches take [s]."""


@dataclass(frozen=True)
class ScaleOut:
    """The network between nodes."""

    nodes_per_leaf: int | None = None
    """Nodes under one leaf switch; None where one switch joins all."""
    oversubscription_ratio: float = 1.0
    """Rate from the nodes of a leaf over the rate of its links upwards, at least 1 [1]."""
    hop_latency_s: float = 0.0
    """Added for every message to what measured switches in a node take [s]."""
    port_bytes_per_s: float | None = None
    """Rate of the network for one chip and direction; None where only the chip's own link limits it [B/s]."""


@dataclass(frozen=True)
class Interconnect:
    """Topologies of a system, and which share of a step's collectives other work covers."""

    scale_up: ScaleUp = field(default_factory=ScaleUp)
    scale_out: ScaleOut | None = None
    """None: one switch joins all nodes, and collectives between them run in a ring."""
    overlap_fraction: float = 0.0


@dataclass(frozen=True)
class Path:
    """One algorithm of a collective on a topology."""

    link_fraction: float
    """Share of the rate of a chip's links [1]."""
    n_steps: float
    """Steps after the first message, of the kind that measured latencies count [1]."""
    n_hops: float
    """Links or switches that messages pass one after the other [1]."""
    wire_ratio: float = 1.0
    """Bytes over those of the algorithm that sends least [1]."""


def scale_up_paths(links: ScaleUp, op: str, n: int, stride: int = 1) -> tuple[Path, ...]:
    """
    Return the algorithms of a collective among `n` chips of one node.

    On a grid messages go around or along one dimension after the other, every chip with as many parts of the message
    as dimensions, each of which begins with another [1]_; all-to-all follows the dimensions in order, and is held up
    by the links in the middle.

    Parameters
    ----------
    links : ScaleUp
    op : str
        A key of `COLLECTIVES`; `send_recv` goes to the next block of `stride` chips.
    n, stride : int
        Chips of the group, and chips of the block that each of them stands for. [1]

    References
    ----------
    .. [1] N. Jain, Y. Sabharwal, "Optimal bucket algorithms for large MPI collectives on torus interconnects", ICS
       2010, doi:10.1145/1810085.1810093.

    Examples
    --------
    A closed ring of eight uses both its ports, four of them in a row can only use one each.

    >>> ring = ScaleUp("ring", (8,))
    >>> [scale_up_paths(ring, "all_gather", n)[0].link_fraction for n in (8, 4)]
    [1.0, 0.5]
    """
    if links.topology == "switched" or n <= 1:
        return (_switched(op, n),)
    return (_grid_path(links.topology, links.dimensions, op, n, stride),)


def _switched(op: str, n: int) -> Path:
    steps = max(n - 1.0, 0.0)
    return Path(1.0, steps, {"all_reduce": 2.0 * steps, "all_to_all": 1.0}.get(op, steps))


@functools.lru_cache(maxsize=4096)
def _grid_path(topology: str, sides: tuple[int, ...], op: str, n: int, stride: int) -> Path:
    """The best block of `n` blocks of `stride` chips, or a row along the whole grid where none is of that size."""
    port = 0.5 / len(sides)
    found = [
        _block_path(topology, sides, inner, block, op)
        for inner in _most_compact(topology, sides, stride)
        for block in _blocks(tuple(d // a for d, a in zip(sides, inner, strict=True)), n)
    ]
    row = Path(min(port / stride / (n if op == "all_to_all" else 1.0), 1.0), n - 1.0, (n - 1.0) * stride)
    return max(found, key=lambda path: (path.link_fraction, -path.n_steps), default=row)


def _blocks(sides: tuple[int, ...], n: int) -> Iterator[tuple[int, ...]]:
    """Blocks of `n` chips whose sides divide those of the grid."""
    choices = [[a for a in range(1, d + 1) if d % a == 0] for d in sides]
    return (block for block in itertools.product(*choices) if math.prod(block) == n)


@functools.lru_cache(maxsize=1024)
def _most_compact(topology: str, sides: tuple[int, ...], n: int) -> list[tuple[int, ...]]:
    """The block of `n` chips that gathers fastest, none where no block has that size."""
    ones = tuple(1 for _ in sides)
    blocks = list(_blocks(sides, n))
    rated = [(_block_path(topology, sides, ones, block, "all_gather").link_fraction, block) for block in blocks]
    return [max(rated)[1]] if rated else []


def _block_path(topology: str, sides: tuple[int, ...], inner: tuple[int, ...], block: tuple[int, ...], op: str) -> Path:
    """A block of `block` blocks of `inner` chips on a grid of `sides`."""
    port = 0.5 / len(sides)
    closed = [topology != "mesh" and a * b == d for d, a, b in zip(sides, inner, block, strict=True)]
    rates = [port * (2.0 if ring else 1.0) / a for ring, a in zip(closed, inner, strict=True)]
    active = [(b, rate, a) for b, rate, a in zip(block, rates, inner, strict=True) if b > 1]
    if not active:
        return Path(1.0, 0.0, 0.0)
    n = math.prod(block)
    hops = sum((b - 1) * a for b, _, a in active)
    if op == "send_recv":
        _, rate, a = max(active, key=lambda each: each[1])
        return Path(min(rate, 1.0), n - 1.0, float(a))
    if op == "all_to_all":
        slowest = max((b * b // 4) / b / rate for b, rate, _ in active)
        fraction = (n - 1.0) / n / slowest
        return Path(min(fraction, 1.0), n - 1.0, float(sum(b // 2 * a for b, _, a in active)))
    fraction = (n - 1.0) / n / _bucket_time([each[0] for each in active], [each[1] for each in active])
    steps = float(sum(each[0] - 1 for each in active))
    return Path(min(fraction, 1.0), steps, hops * (2.0 if op == "all_reduce" else 1.0))


def _bucket_time(sides: list[int], rates: list[float]) -> float:
    """Time to gather a message of one byte, split over the dimensions, over chips of one byte a second [s]."""
    k = len(sides)
    total = 0.0
    for phase in range(k):
        slowest = 0.0
        for first in range(k):
            held = math.prod(sides[(first + before) % k] for before in range(phase))
            now = (first + phase) % k
            slowest = max(slowest, (sides[now] - 1) / sides[now] / held / k / rates[now])
        total += slowest
    return total


def scale_out_paths(network: ScaleOut, op: str, n: int, stride: int = 1) -> tuple[Path, ...]:
    """
    Return the algorithms of a collective among chips of equal rank in `n` nodes.

    Nodes of a group lie side by side. A ring crosses the border of a leaf once in either direction, so that it bears
    any oversubscription up to the nodes of a leaf; two trees, each of which has as inner nodes what the other has as
    leaves, reduce in the logarithm of the steps with n/(n - 1) of the bytes [1]_; gathering by halving distances
    [2]_ sends the few first messages far and the many last ones inside a leaf. All-to-all sends upwards what is not
    for the nodes of the own leaf.

    Parameters
    ----------
    network : ScaleOut
    op : str
        A key of `COLLECTIVES`; `send_recv` goes from each node to the one `stride` further on.
    n, stride : int
        Nodes of the group, and nodes of the block that each stands for. [1]

    References
    ----------
    .. [1] P. Sanders, J. Speck, J. L. Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
       Parallel Computing 35(12), 2009, doi:10.1016/j.parco.2009.09.001.
    .. [2] R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH", Int.
       J. High Performance Computing Applications 19(1), 2005, doi:10.1177/1094342005051521.
    """
    if n <= 1:
        return (Path(1.0, 0.0, 0.0),)
    leaf, ratio = network.nodes_per_leaf, network.oversubscription_ratio
    inside = leaf is None or n * stride <= leaf
    m = n * stride if leaf is None else leaf
    near = max(m / stride, 1.0)
    around = 1.0 if inside else min(near / ratio, 1.0)
    steps, rounds = n - 1.0, float(math.ceil(math.log2(n)))
    if op == "send_recv":
        return (Path(1.0 if inside else 1.0 / max(1.0, ratio * min(stride, m) / m), steps, 1.0),)
    if op == "all_to_all":
        leaving = 0.0 if inside else ratio * (n - near) / (n - 1.0)
        return (Path(1.0 / max(1.0, leaving), steps, 1.0),)
    if op == "all_reduce":
        return Path(around, steps, 2.0 * steps), Path(around, rounds, 2.0 * rounds, n / (n - 1.0))
    far = 0.0 if inside else 1.0 / near - 1.0 / n
    halving = (1.0 - 1.0 / n) / ((1.0 - 1.0 / n - far) + ratio * far)
    return Path(around, steps, steps), Path(halving, rounds, rounds)
