"""How far the time of a whole step may lie from its prediction: the spread of each of its operators, put together."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from models.checks import FloatArray, IntArray
from models.hardware.rates import RATE_CLASSES
from models.operators.activity import TermActivity
from models.operators.intervals import OperatorSpread, operator_spread
from models.operators.step import StepProgram, Term
from models.tables import constants

LARGE_SIDE = 512
SHORT_PROMPT_TOKENS = 128
MEASURED_TOKENS = 65_536
"""Rows m of the largest measured GEMM."""
GEMM_CLASS: Mapping[str, str] = {"bf16": "gemm", "fp16": "gemm", "fp8": "gemm_narrow", "fp4": "gemm_fp4"}
"""Format that multiplies -> class whose rows show it; others no table shows."""
UNCALIBRATED_SHARE = 0.05
"""Share of a step in operators that no measurement shows from which its interval is called uncalibrated."""


@dataclass(frozen=True)
class StepSpread:
    """
    Shares and spreads of the operators of a step on n_designs designs.

    `shares`, `between` and `within` have the shape (n_designs, n_terms): share of the time, and 90 % half widths of
    log(time) that all operators of a group have in common on a device, and that each has for itself.
    """

    groups: tuple[str, ...]
    shares: FloatArray
    between: FloatArray
    within: FloatArray
    calibrated: np.ndarray

    @property
    def uncalibrated_share(self) -> FloatArray:
        """Share of the time in operators, formats or sizes that no measurement shows, shape (n_designs,)."""
        return np.asarray((self.shares * ~self.calibrated).sum(axis=1))

    @property
    def levels(self) -> tuple[tuple[str, ...], FloatArray]:
        """Groups, and the half width that each gives the step, shape (n_designs, n_groups)."""
        names = tuple(dict.fromkeys(self.groups))
        member = np.array([[group == name for name in names] for group in self.groups], dtype=np.float64)
        return names, (self.shares * self.between) @ member

    @property
    def half_width(self) -> FloatArray:
        """
        90 % half width of log(step time), shape (n_designs,).

        Errors between devices add within a group and are independent between groups; those within a device are
        independent for every operator [1]_.

        References
        ----------
        .. [1] JCGM 100:2008, Guide to the expression of uncertainty in measurement, section 5.
        """
        _, levels = self.levels
        alone = np.square(self.shares * self.within).sum(axis=1)
        return np.asarray(np.sqrt(np.square(levels).sum(axis=1) + alone))


def step_spread(
    program: StepProgram, alternatives: IntArray, terms: Mapping[str, TermActivity], step_s: FloatArray
) -> StepSpread:
    """
    Return the spread of a step that was run with `keep_terms`.

    Parameters
    ----------
    program : StepProgram
    alternatives : array of shape (n_designs, 1)
        The one alternative of each design.
    terms : mapping
        Activity of every operator, of shape (n_designs, 1).
    step_s : array of shape (n_designs, 1)
        Time of the whole; what no operator takes is the host's. [s]
    """
    by_name = {each.name: each for each in program.terms}
    found = [_term_of(by_name, name) for name in terms]
    times = [np.broadcast_to(each.time_s, step_s.shape)[:, 0] for each in terms.values()]
    host_s = np.maximum(step_s[:, 0] - sum(times, np.zeros(len(step_s))), 0.0)
    shares = np.stack([*times, host_s], axis=1) / step_s
    spreads = [_spreads(each, alternatives[:, 0]) for each in found]
    host = OperatorSpread(constants("intervals")["host_log_half_width"], 0.0, 2)
    columns = [*spreads, [host] * len(step_s)]
    return StepSpread(
        groups=(*(_GROUP.get(each.kind, each.kind) for each in found), "host"),
        shares=shares,
        between=np.array([[each.between for each in column] for column in columns]).T,
        within=np.array([[each.within for each in column] for column in columns]).T,
        calibrated=np.array([[each.calibrated for each in column] for column in columns]).T,
    )


_GROUP: Mapping[str, str] = {"fused": "vector", "epilogue": "vector", "state": "vector", "prefill": "attention",
                             "decode": "attention"}  # fmt: skip
"""Kind of a term -> group whose level between devices it shares."""


def _term_of(by_name: Mapping[str, Term], name: str) -> Term:
    return by_name.get(name) or by_name[re.sub(r"_\d+$", "", name)]


def _spreads(each: Term, alternatives: IntArray) -> list[OperatorSpread]:
    """Spread of one term on each design."""
    columns = each.index[alternatives].tolist()
    distinct = {
        c: _SPREAD[each.kind](each, {name: float(v[c]) for name, v in each.columns.items()}) for c in set(columns)
    }
    return [distinct[c] for c in columns]


def _gemm(each: Term, sizes: Mapping[str, float]) -> OperatorSpread:
    name = RATE_CLASSES[int(sizes["rate_class"])]
    if name not in GEMM_CLASS:
        return _unmeasured(operator_spread("gemm_narrow"))
    if sizes["m"] > MEASURED_TOKENS:
        return _unmeasured(operator_spread(GEMM_CLASS[name]), "unmeasured_size_ratio")
    small = min(sizes["n"], sizes["k"]) < LARGE_SIDE and name != "fp4"
    return operator_spread("gemm_small" if small else GEMM_CLASS[name])


def _prefill(each: Term, sizes: Mapping[str, float]) -> OperatorSpread:
    return operator_spread("attention_short" if sizes["tokens"] < SHORT_PROMPT_TOKENS else "attention_prefill")


def _collective(each: Term, sizes: Mapping[str, float]) -> OperatorSpread:
    if sizes.get("engine_kernel", 0.0) > 0:
        return operator_spread("collectives_engine")
    spread = operator_spread("collectives")
    return _unmeasured(spread) if sizes["scale_out"] > 0 else spread


def _unmeasured(spread: OperatorSpread, ratio: str = "uncalibrated_widening_ratio") -> OperatorSpread:
    """The spread of the nearest measured operator, widened and marked."""
    factor = constants("intervals")[ratio]
    return OperatorSpread(spread.between * factor, spread.within * factor, 0)


_SPREAD: Mapping[str, Callable[[Term, Mapping[str, float]], OperatorSpread]] = {
    "gemm": _gemm,
    "prefill": _prefill,
    "decode": lambda each, sizes: operator_spread("attention_decode"),
    "experts": lambda each, sizes: operator_spread("experts"),
    "vector": lambda each, sizes: operator_spread("vector"),
    "fused": lambda each, sizes: operator_spread("vector"),
    "epilogue": lambda each, sizes: operator_spread("vector"),
    "state": lambda each, sizes: _unmeasured(operator_spread("vector")),
    "collective": _collective,
    "host": lambda each, sizes: OperatorSpread(constants("intervals")["host_log_half_width"], 0.0, 2),
}
"""Kind of a term -> its spread at one set of sizes."""
