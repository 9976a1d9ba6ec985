"""Chip counts of a scaling report: those asked for, or a ladder from one chip through the node to many nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from explorer.document import StudyError
from models.serving.scenario import System

MOST_CHIPS = 16_384
"""Where the ladder ends by default."""

LARGEST_COUNT = 65_536
"""Chips of the largest system that a study can state."""


def chip_ladder(n_chips_per_node: int, most: int = MOST_CHIPS, nodes_per_rack: int = 1) -> list[int]:
    """
    Return powers of two of chips below a node, the whole node, and powers of two of nodes, at most `most` chips.

    A whole rack, the nodes of one leaf switch, is among them.

    Examples
    --------
    >>> chip_ladder(8, 64)
    [1, 2, 4, 8, 16, 32, 64]
    >>> chip_ladder(72, 300)
    [1, 2, 4, 8, 16, 32, 64, 72, 144, 288]
    >>> chip_ladder(8, 64, nodes_per_rack=3)
    [1, 2, 4, 8, 16, 24, 32, 64]
    """
    inside = [2**i for i in range(n_chips_per_node.bit_length()) if 2**i < n_chips_per_node]
    nodes = {2**i for i in range(max(most // n_chips_per_node, 1).bit_length())} | {nodes_per_rack}
    return [n for n in inside + sorted(n_chips_per_node * each for each in nodes) if n <= most]


def read_chip_counts(asked: Any, system: System, pointer: str = "/scaling") -> list[int]:
    """
    Return the chip counts that a request asks for, rising: true, {max_chips: n} or {chips: [n, ...]}.

    Raises
    ------
    StudyError
        With a pointer to every count that is no part of a node and no whole number of nodes.
    """
    rack = nodes_per_rack(system) or 1
    if asked is True:
        return chip_ladder(system.n_chips_per_node, nodes_per_rack=rack)
    if not isinstance(asked, Mapping) or set(asked) - {"chips", "max_chips"} or len(asked) != 1:
        raise StudyError([{"pointer": pointer, "detail": "must be true, or hold exactly one of chips and max_chips"}])
    if "max_chips" in asked:
        most = _counts([asked["max_chips"]], f"{pointer}/max_chips", None)
        return chip_ladder(system.n_chips_per_node, most[0], rack)
    stated = asked["chips"]
    if not isinstance(stated, list) or not stated or len(stated) > 64:
        raise StudyError([{"pointer": f"{pointer}/chips", "detail": "must be a list of 1 to 64 chip counts"}])
    return sorted(set(_counts(stated, f"{pointer}/chips", system.n_chips_per_node)))


def nodes_per_rack(system: System) -> int | None:
    """Nodes under one leaf switch of the network, None where one switch joins all."""
    network = system.interconnect.scale_out
    return None if network is None else network.nodes_per_leaf


def _counts(stated: list[Any], pointer: str, node: int | None) -> list[int]:
    faults = []
    for i, each in enumerate(stated):
        where = pointer if node is None else f"{pointer}/{i}"
        if isinstance(each, bool) or not isinstance(each, int) or not 1 <= each <= LARGEST_COUNT:
            faults.append({"pointer": where, "detail": f"must be a whole number, 1 to {LARGEST_COUNT}, got {each!r}"})
        elif node is not None and each > node and each % node:
            detail = f"must be at most {node} or a multiple of {node}, the chips of a node, got {each}"
            faults.append({"pointer": where, "detail": detail})
    if faults:
        raise StudyError(faults)
    return stated
