"""Who gets which tokens in the rows of aiconfigurator: even shares, or shares drawn from a power law."""

from __future__ import annotations

import functools
import re

import numpy as np

from models.checks import FloatArray
from models.fidelity.report import TableError
from models.fidelity.rows import MeasuredRows

DRAWS = 16
"""Random assignments of experts to ranks over which the busiest rank is averaged."""

LARGEST_SHARE = 0.8
"""Of all tokens: upper end of the power law from which the collector draws tokens per expert."""


def routed_load(rows: MeasuredRows) -> tuple[FloatArray, FloatArray]:
    """Return active experts and routed rows of the busiest rank, each of shape (n_rows,)."""
    names = ("tokens", "n_experts", "topk", "ep")
    sizes = np.column_stack([rows.number(name) for name in names] + [_power_law_exponent(rows)])
    distinct, index = np.unique(sizes, axis=0, return_inverse=True)
    loads = np.array([_load(*(float(value) for value in row)) for row in distinct])
    return loads[index, 0], loads[index, 1]


def _power_law_exponent(rows: MeasuredRows) -> FloatArray:
    """Exponent of `power_law_x`, 0 where routing is balanced."""
    routing = rows.text("routing")
    bad = np.flatnonzero([not re.fullmatch(r"balanced|power_law_\d+(\.\d+)?", text) for text in routing])
    if bad.size:
        rule = f"routing must be balanced or as power_law_1.2, got '{routing[bad[0]]}'"
        raise TableError(rule, rows.file, int(rows.lines[bad[0]]), "routing")
    last = np.array([str(name).rsplit("_", 1)[-1] for name in routing])
    return np.asarray(np.where(last == "balanced", "0", last), dtype=np.float64)


@functools.cache
def _load(tokens: float, n_experts: float, top_k: float, ranks: float, exponent: float) -> tuple[float, float]:
    choices = tokens * top_k
    if exponent == 0:
        touched = min(n_experts, choices)
        return max(touched / ranks, 1.0), max(choices / ranks, choices / touched)
    per_expert = np.round(_power_law_tokens(tokens, int(n_experts), choices, exponent))
    local = max(int(n_experts // ranks), 1)
    rng = np.random.default_rng(0)
    drawn = rng.permuted(np.tile(per_expert, (DRAWS, 1)), axis=1)[:, : local * (len(per_expert) // local)]
    by_rank = drawn.reshape(DRAWS, -1, local)
    busiest = np.take_along_axis(by_rank, by_rank.sum(axis=2).argmax(axis=1)[:, None, None], axis=1)[:, 0]
    return max(float((busiest > 0).sum(axis=1).mean()), 1.0), max(float(busiest.sum(axis=1).mean()), 1.0)


def _power_law_tokens(tokens: float, n_experts: int, choices: float, exponent: float) -> FloatArray:
    """Expected tokens of each expert in rising order: quantiles of x^-exponent, at most all tokens each."""
    share = (np.arange(n_experts) + 0.5) / n_experts
    power = 1.0 - exponent
    low, high = 1.0, max(LARGEST_SHARE * tokens, 1.0001) ** power
    weight = (low + share * (high - low)) ** (1.0 / power)
    expected = weight / weight.sum() * choices
    for _ in range(4):  # what the cap cuts off goes to the others
        capped = expected >= tokens
        rest = expected[~capped].sum()
        if not capped.any() or rest <= 0:
            break
        expected = np.where(capped, tokens, expected * (choices - tokens * capped.sum()) / rest)
    return np.asarray(np.minimum(expected, tokens))
