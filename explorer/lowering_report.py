"""Convolutions layer by layer: gathered on the way to the arrays, or written out as a matrix first (im2col)."""

from __future__ import annotations

from typing import Any

import numpy as np

from models.checks import FloatArray
from models.hardware.design import DesignBatch
from models.operators.factor_tables import FactorTables
from models.operators.step import Term, run_step
from models.throughput.convnet import distinct_layers
from models.throughput.work import CompiledWork

COMPARED = ("convolution", "depthwise", "depthwise_macs", "im2col")
"""Begin of the names of terms that differ between the two ways."""


def lowering_document(
    compiled: CompiledWork, chosen: int, designs: DesignBatch, tables: FactorTables
) -> dict[str, Any] | None:
    """
    Return both ways of every distinct layer of a convolution network on one design, in its chosen precision mix.

    Parameters
    ----------
    compiled : CompiledWork
        Of kind convnet.
    chosen : int
        Alternative that the design works at.
    designs : DesignBatch
        The one design.
    tables : FactorTables
        Shared rows.

    Returns
    -------
    dict or None
        layers, each {name, count, m, n, k, direct_s, im2col_s, expansion_bytes, faster} for one run of it, and the
        sums over the network; None where the study fixes one way.
    """
    mix, im2col = compiled.choices["mix"], compiled.choices["im2col"]
    ways = [int(np.flatnonzero((mix == mix[chosen]) & (im2col == way))[0]) for way in (0, 1) if (im2col == way).any()]
    if len(ways) < 2:
        return None
    activity = run_step(
        compiled.program, designs, tables, alternatives=np.array([ways]), keep_terms=True
    )  # fmt: skip
    seconds = {name: done.time_s[0] for name, done in activity.terms.items()}
    terms = {each.name: each for each in compiled.program.terms}
    layers = [
        _layer(i, name, count, terms, seconds, ways)
        for i, (name, count) in enumerate(distinct_layers(compiled.scenario.layers))  # type: ignore[union-attr]
    ]
    rest_s = float(activity.time_s[0, 0]) - sum(each["count"] * each["direct_s"] for each in layers)
    sums = {way: rest_s + sum(each["count"] * each[f"{way}_s"] for each in layers) for way in ("direct", "im2col")}
    best_s = rest_s + sum(each["count"] * min(each["direct_s"], each["im2col_s"]) for each in layers)
    return {
        "layers": layers,
        "direct_s": sums["direct"],
        "im2col_s": sums["im2col"],
        "best_of_each_layer_s": best_s,
        "expansion_bytes": sum(each["count"] * each["expansion_bytes"] for each in layers),
    }


def _layer(
    position: int, name: str, count: int, terms: dict[str, Term], seconds: dict[str, FloatArray], ways: list[int]
) -> dict[str, Any]:
    """Both ways of one layer, one run of it."""
    own = [f"{kind}_{position}" for kind in COMPARED if f"{kind}_{position}" in terms]
    direct_s, im2col_s = (sum(float(seconds[each][way]) for each in own) / count for way in (0, 1))
    sizes = _columns(terms[f"convolution_{position}"], ways[1])
    expanded = terms.get(f"im2col_{position}")
    elements = _columns(expanded, ways[1])["elements"] if expanded is not None else 0.0
    return {
        "name": name,
        "count": count,
        **{size: sizes[size] for size in ("m", "n", "k")},
        "direct_s": direct_s,
        "im2col_s": im2col_s,
        "expansion_bytes": 2.0 * elements * sizes["output_bytes"],
        "faster": "direct" if direct_s <= im2col_s else "im2col",
    }


def _columns(each: Term, alternative: int) -> dict[str, float]:
    place = int(each.index[alternative])
    return {name: float(values[place]) for name, values in each.columns.items()}
