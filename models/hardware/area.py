"""Die area of a design: sum of its components or the edge its memory needs, whichever is larger, with an interval."""

from __future__ import annotations

import functools
from statistics import NormalDist

import numpy as np

from models.checks import FloatArray
from models.hardware.area_terms import CORE_PARTS, EFFECTS, core_terms, outer_terms
from models.hardware.design import DesignBatch, take
from models.hardware.memory import memory_column, second_tier_column
from models.tables import DATA, read_rows
from models.technology import Technology, default_technology

PARTS = (*CORE_PARTS, "uncore", "network_on_chip", "memory_interface", "second_tier_interface", "links",
         "host_interface", "fixed", "other", "edge_fill")  # fmt: skip
"""Keys of the breakdown. `edge_fill` is silicon that only makes room for memory interfaces along the edge."""


def die_area_mm2(designs: DesignBatch, technology: Technology | None = None) -> FloatArray:
    """
    Return the area of all compute dies of each design.

    A = max(A_sum, A_edge): the components, or a die large enough that the memory interfaces fit in the usable
    share of its perimeter. Logic, SRAM and analogue parts scale with the node each in their own way.

    Parameters
    ----------
    designs : DesignBatch
        Of n_designs entries; of a box, its lower corner gives a valid lower bound at equal categories, since
        area never falls in a count, size, bandwidth or rate (it falls in `n_dies` where the edge decides, and in
        `array_k` at equal elements: enumerate these).
    technology : Technology, optional
        Node tables and fitted constants.

    Returns
    -------
    array of shape (n_designs,)
        [mm2]

    References
    ----------
    Constants: `constants/area.csv`, fitted by `models/fidelity/fit_area.py` on whole dies.

    Examples
    --------
    >>> from models.hardware.design import reference_design
    >>> bool(350 < die_area_mm2(reference_design())[0] < 650)
    True
    """
    used = technology or default_technology()
    return np.maximum(component_area_mm2(designs, used), edge_area_mm2(designs, used))


def component_area_mm2(designs: DesignBatch, technology: Technology | None = None) -> FloatArray:
    """Return the sum of the components, edge apart, shape (n_designs,) [mm2]."""
    used = technology or default_technology()
    core = sum(core_terms(designs, used).values(), np.zeros(designs.n_designs))
    outer = sum(outer_terms(designs, used).values(), np.zeros(designs.n_designs))
    return np.asarray((1.0 + used.constants["area"]["uncore_fraction"]) * core + outer)


def edge_area_mm2(designs: DesignBatch, technology: Technology | None = None) -> FloatArray:
    """
    Return the smallest area whose perimeter holds the memory interfaces.

    d dies in a row share their inner edges, so the outer one is (2 d + 2) sqrt(A / d), of which only a share can
    carry memory interfaces.

    Returns
    -------
    array of shape (n_designs,)
        [mm2]
    """
    c = (technology or default_technology()).constants["area"]
    stacks = designs.memory_stacks + designs.spare_memory_stacks
    edge_mm = memory_column("edge_mm", designs.memory_kind, technology) * stacks
    edge_mm = edge_mm + second_tier_column("edge_mm", designs.second_tier)
    side_mm = edge_mm / (c["edge_usable_fraction"] * (2.0 * designs.n_dies + 2.0))
    return np.asarray(designs.n_dies * side_mm**2)


def area_breakdown_mm2(designs: DesignBatch, technology: Technology | None = None) -> dict[str, FloatArray]:
    """
    Return the parts of `die_area_mm2`, which they add up to.

    Returns
    -------
    dict of part to array of shape (n_designs,)
        Keys are `PARTS`. [mm2]

    Examples
    --------
    >>> from models.hardware.design import reference_design
    >>> parts = area_breakdown_mm2(reference_design())
    >>> bool(np.isclose(sum(part[0] for part in parts.values()), die_area_mm2(reference_design())[0]))
    True
    """
    used = technology or default_technology()
    parts = core_terms(designs, used)
    parts["uncore"] = used.constants["area"]["uncore_fraction"] * sum(parts.values(), np.zeros(designs.n_designs))
    parts |= outer_terms(designs, used)
    total = sum(parts.values(), np.zeros(designs.n_designs))
    parts["edge_fill"] = np.maximum(edge_area_mm2(designs, used) - total, 0.0)
    return {name: parts[name] for name in PARTS}


def area_limits(
    designs: DesignBatch, technology: Technology | None = None, area_mm2: FloatArray | None = None
) -> dict[str, FloatArray]:
    """
    Return by how much each design breaks a limit of manufacturing; at most 0 is feasible.

    Returns
    -------
    dict of limit to array of shape (n_designs,)
        `reticle_excess_mm2`: area of one die over the exposure field. `edge_excess_mm`: edge that the memory
        interfaces need over what dies at the reticle limit offer.
    """
    used = technology or default_technology()
    c = used.constants["area"]
    area = die_area_mm2(designs, used) if area_mm2 is None else area_mm2
    reticle_mm2 = c["reticle_limit_mm2"]
    outer_mm = (2.0 * designs.n_dies + 2.0) * np.sqrt(reticle_mm2) * c["edge_usable_fraction"]
    needed_mm = memory_column("edge_mm", designs.memory_kind, used) * (
        designs.memory_stacks + designs.spare_memory_stacks
    )
    return {
        "reticle_excess_mm2": area / designs.n_dies - reticle_mm2,
        "edge_excess_mm": needed_mm + second_tier_column("edge_mm", designs.second_tier) - outer_mm,
    }


def area_violation_ratio(
    designs: DesignBatch, technology: Technology | None = None, area_mm2: FloatArray | None = None
) -> dict[str, FloatArray]:
    """Return the limits of `area_limits` as relative excess, at most 0 is feasible, shape (n_designs,) each [1]."""
    used = technology or default_technology()
    limits = area_limits(designs, used, area_mm2)
    reticle_mm2 = used.constants["area"]["reticle_limit_mm2"]
    offered_mm = (2.0 * designs.n_dies + 2.0) * np.sqrt(reticle_mm2) * used.constants["area"]["edge_usable_fraction"]
    return {
        "reticle": limits["reticle_excess_mm2"] / reticle_mm2,
        "memory_edge": limits["edge_excess_mm"] / offered_mm,
    }


def area_interval_mm2(
    designs: DesignBatch,
    technology: Technology | None = None,
    coverage: float = 0.9,
    area_mm2: FloatArray | None = None,
) -> tuple[FloatArray, FloatArray]:
    """
    Return the interval that holds the area of a real die of each design.

    The spread in the logarithm is sqrt(J C J' + s^2): the fitted constants' posterior covariance C through the
    sensitivities J of the log area, and the scatter s of whole dies about the model. `area_mm2` is the area of the
    designs where the caller has it already.

    Returns
    -------
    low, high : arrays of shape (n_designs,)
        [mm2]
    """
    used = technology or default_technology()
    names, covariance = area_covariance()
    sensitivity = area_log_sensitivity(designs, names, used)
    variance = np.einsum("di,ij,dj->d", sensitivity, covariance, sensitivity)
    spread = np.sqrt(variance + used.constants["area"]["residual_log_sd"] ** 2)
    factor = np.exp(NormalDist().inv_cdf(0.5 + coverage / 2.0) * spread)
    area = die_area_mm2(designs, used) if area_mm2 is None else area_mm2
    return area / factor, area * factor


def area_log_sensitivity(designs: DesignBatch, names: tuple[str, ...], technology: Technology) -> FloatArray:
    """
    Return d ln(area) / d ln(constant), for the log effects of a node d ln(area) / d effect.

    Returns
    -------
    array of shape (n_designs, n_constants)
        Central differences, all in one call. [1]
    """
    n_names, step, values = len(names), 1e-4, technology.constants["area"]
    copies = take(designs, np.tile(np.arange(designs.n_designs), 2 * n_names))
    own = {}
    for i, name in enumerate(names):
        ends, width = np.full(2 * n_names, values[name]), 1.0 if name in EFFECTS else values[name]
        ends[2 * i : 2 * i + 2] += step * width * np.array([-1.0, 1.0])
        own[name] = np.repeat(ends, designs.n_designs)
    area = die_area_mm2(copies, technology.with_constants_of_each("area", own))
    low, high = np.moveaxis(area.reshape(n_names, 2, designs.n_designs), 1, 0)
    return np.asarray(np.log(high / low).T / (2.0 * step))


@functools.cache
def area_covariance() -> tuple[tuple[str, ...], FloatArray]:
    """Return the names of the fitted constants and the posterior covariance of their logarithms."""
    rows = read_rows(DATA / "constants" / "area_covariance.csv")
    names = tuple(row["name"] for row in rows)
    return names, np.array([[float(row[name]) for name in names] for row in rows])
