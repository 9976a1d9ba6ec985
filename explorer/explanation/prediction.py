"""
What relief of a resource will gain, predicted from the shares of the time in which operators wait for it.

Of every operator two numbers are measured: the share s of its time that waits for the resource (by how many percent
it gets faster with a percent more of it), and the part r of its time that is left where the resource is free. The
time with f times as much is then

    t(f) = t (1 - s + s f^-q)^(1/q),  q from t(infinity) = r,

which is a smooth maximum of what the resource takes and all the rest: serial at q = 1, hidden at large q. Times of an
array also end where something else is just as slow, so compute takes the mean of this and of the steepest law that
share and rest allow, max(r, t (1 - s + s / f)). The predicted savings go into the programs of the scenario as credits;
pipelines, prompts and the clock under the power cap are worked out from those as ever.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from explorer.explanation.resources import HOST_SCHEDULING, POWER_CAP, relieved
from explorer.explanation.work import Judged, Work, fresh, programs_of, with_programs
from models.checks import FloatArray, IntArray
from models.evaluate import Compiled
from models.operators.factor_tables import FactorTables
from models.operators.step import StepActivity, StepProgram, Term, run_parts

PROBE_FACTOR = 1.1
"""By how much more and less of a resource its share of the time is measured."""

FREE_FACTOR = 1e6
"""So much of a resource that nothing waits for it."""

LEAST_SHARE = 1e-6
"""Shares below this are rounding."""


def law(time_s: FloatArray, share: FloatArray, rest: FloatArray, factor: FloatArray | float) -> FloatArray:
    """
    Return the time with `factor` times as much of a resource.

    Parameters
    ----------
    time_s : array
        With what there is. [s]
    share, rest : arrays of the same shape
        Share of the time that waits for the resource, and of what is left where it is free. [1]
    factor : scalar or array that broadcasts
        [1]
    """
    waits = np.clip(share, LEAST_SHARE, 1.0 - LEAST_SHARE)
    inverse = np.clip(np.log(np.clip(rest, 1e-9, 1.0)) / np.log1p(-waits), 0.02, 1e3)
    smooth = (1.0 - waits + waits * np.power(factor, -1.0 / inverse)) ** inverse
    return np.asarray(time_s * np.where(share > LEAST_SHARE, smooth, 1.0))


def steepest_law(time_s: FloatArray, share: FloatArray, rest: FloatArray, factor: FloatArray | float) -> FloatArray:
    """The least time that a share and a rest allow: serial until something else is as slow [s]."""
    return np.asarray(time_s * np.maximum(1.0 - share + share / factor, rest))


def measured_shares(probed_s: FloatArray) -> tuple[FloatArray, FloatArray]:
    """
    Return share and rest from times with 1, `PROBE_FACTOR`, 1 / `PROBE_FACTOR` and `FREE_FACTOR` of a resource.

    Parameters
    ----------
    probed_s : array of shape (4, ...)
        [s]
    """
    now, more, less, free = np.maximum(probed_s, 1e-30)
    share = np.clip(np.log(less / more) / (2.0 * np.log(PROBE_FACTOR)), 0.0, 1.0)
    return share, np.minimum(free / now, 1.0)


def predicted(work: Work, name: str, factor: float) -> Judged:
    """The work with `factor` times as much of a resource, from shares alone: nothing is evaluated with that much."""
    if name == POWER_CAP:  # no operator waits for it: the clock settles on what they do
        return work.judged(relieved(work.performance, name, factor))
    compiled = [_credited(work, each, own, name, factor) for each, own in _pairs(work)]
    return fresh(work, compiled).now()


def with_host(work: Work, factor: float) -> Work:
    """The work where the host takes 1 / `factor` of its time for each step."""
    compiled = [
        with_programs(each, {key: _faster_host(p, factor) for key, (p, _) in programs_of(each, own).items()})
        for each, own in _pairs(work)
    ]
    return fresh(work, compiled)


def _pairs(work: Work) -> list[tuple[Compiled, int]]:
    return list(zip(work.compiled, work.alternatives, strict=True))


def _faster_host(program: StepProgram, factor: float) -> StepProgram:
    terms = tuple(
        dataclasses.replace(each, columns={"seconds": each.columns["seconds"] / factor})
        if each.kind == "host"
        else each
        for each in program.terms
    )
    return dataclasses.replace(program, terms=terms, overhead_s=program.overhead_s / factor)


def _credited(work: Work, compiled: Compiled, alternative: int, name: str, factor: float) -> Compiled:
    changed = {}
    for key, (program, wanted) in programs_of(compiled, alternative).items():
        layers, edge = _saved_s(work, program, wanted, name, factor)
        credits = [_credit(program, wanted, saved, at_edge) for saved, at_edge in ((layers, False), (edge, True))]
        changed[key] = dataclasses.replace(program, terms=(*program.terms, *credits))
    return with_programs(compiled, changed)


def _credit(program: StepProgram, wanted: IntArray, saved_s: FloatArray, edge: bool) -> Term:
    """A term that takes saved seconds off a program."""
    seconds = np.zeros(program.n_alternatives)
    seconds[wanted] = -saved_s
    index = np.arange(program.n_alternatives)
    return Term("relief", "host", "", {"seconds": seconds}, index, np.ones(program.n_alternatives), edge)


def _saved_s(
    work: Work, program: StepProgram, wanted: IntArray, name: str, factor: float
) -> tuple[FloatArray, FloatArray]:
    """Seconds that the layers and the rest of a program save at each wanted alternative."""
    if name == HOST_SCHEDULING:
        host = [each for each in program.terms if each.kind == "host"]
        own = sum((each.columns["seconds"][each.index[wanted]] * each.count[wanted] for each in host), np.zeros(1))
        return np.zeros(len(wanted)), np.asarray((program.overhead_s + own) * (1.0 - 1.0 / factor))
    probes = relieved(work.copies(4), name, np.array([1.0, PROBE_FACTOR, 1.0 / PROBE_FACTOR, FREE_FACTOR]))
    parts = run_parts(
        program, probes, FactorTables(), alternatives=np.tile(wanted, (4, 1)), keep_terms=True
    )  # fmt: skip
    layers, edge = (_part_saved_s(each, name, factor) for each in parts)
    return layers, edge


def _part_saved_s(part: StepActivity, name: str, factor: float) -> FloatArray:
    total = np.zeros(part.time_s.shape[1])
    for each in part.terms.values():
        probed = np.broadcast_to(each.time_s, part.time_s.shape)
        share, rest = measured_shares(probed)
        after = law(probed[0], share, rest, factor)
        if name == "compute":
            after = 0.5 * (after + steepest_law(probed[0], share, rest, factor))
        total += np.where(probed[0] > 0, probed[0] - after, 0.0)
    return total
