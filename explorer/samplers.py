"""Samplers by name, and the next points they propose for a study."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from explorer.objectives import Objective
from explorer.records import TrialRecord
from explorer.space import Space, point_of
from models.checks import IntArray

SamplerFactory = Callable[[int], BaseSampler]

STARTUP_TRIALS = 20
"""Random trials before TPE builds its model."""


def _tpe(seed: int) -> BaseSampler:
    return optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True, n_startup_trials=STARTUP_TRIALS)


def _qmc(seed: int) -> BaseSampler:
    return optuna.samplers.QMCSampler(seed=seed, scramble=True, warn_independent_sampling=False)


SAMPLERS: Mapping[str, SamplerFactory] = {
    "tpe": _tpe,
    "random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
    "nsga2": lambda seed: optuna.samplers.NSGAIISampler(seed=seed, population_size=50),
    "nsga3": lambda seed: optuna.samplers.NSGAIIISampler(seed=seed, population_size=50),
    "qmc": _qmc,
}
"""Sampler of Optuna by name -> function of a seed."""

EXACT = "exact"
"""Our own: proposals come from the branch and bound."""

AUTO = "auto"
"""Exact where every objective can be bounded, TPE where not."""

SAMPLER_NAMES = (AUTO, EXACT, *SAMPLERS)


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Index of each parameter's value: an integer where values are ordered, a category otherwise."""
    return {
        p.name: IntDistribution(0, len(p.values) - 1)
        if p.ordered
        else CategoricalDistribution(list(range(len(p.values))))
        for p in space.parameters
    }


def optuna_study(
    space: Space, objectives: Sequence[Objective], records: Sequence[TrialRecord], sampler: BaseSampler | None = None
) -> optuna.Study:
    """Return an in-memory Optuna study that holds every record as a finished trial, named constraints included."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        directions=["maximize" if o.maximize else "minimize" for o in objectives], sampler=sampler
    )
    allowed = distributions(space)
    study.add_trials([_frozen(space, record, allowed) for record in records])
    return study


def _frozen(space: Space, record: TrialRecord, allowed: dict[str, BaseDistribution]) -> FrozenTrial:
    point = point_of(space, record.params)
    return create_trial(
        state=TrialState.COMPLETE,
        values=record.objectives,
        params={name: int(i) for name, i in zip(allowed, point, strict=True)},
        distributions=allowed,
        constraints=record.excess,
        user_attrs={"violated": record.violated, "operating_point": record.operating_point},
    )


def propose(
    name: str, space: Space, objectives: Sequence[Objective], records: Sequence[TrialRecord], seed: Any, count: int
) -> IntArray:
    """
    Return `count` new points (fewer where the space is exhausted): a function of its arguments alone.

    Parameters
    ----------
    name : str
        A key of `SAMPLERS`.
    records : sequence of TrialRecord
        All earlier trials of the study.
    seed : sequence of int
        Seed of the study and number of the chunk.

    Returns
    -------
    array of shape (n_points, n_parameters)
        Indices into the space's values; none was judged before, none is repeated.
    """
    rng = np.random.default_rng(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = SAMPLERS[name](int(rng.integers(2**31)))
        study = optuna_study(space, objectives, records, sampler)
        asked = [study.ask(distributions(space)).params for _ in range(min(count, space.n_designs - len(records)))]
    seen = {tuple(point_of(space, record.params)) for record in records}
    points = []
    for params in asked:
        point = unseen(np.array([int(v) for v in params.values()]), space, seen, rng)
        seen.add(tuple(point))
        points.append(point)
    return np.array(points, dtype=np.int64).reshape(len(points), len(space.parameters))


def unseen(point: IntArray, space: Space, seen: set[tuple[int, ...]], rng: np.random.Generator) -> IntArray:
    """The point itself, or a near one that was not judged yet: ever more parameters are drawn anew."""
    candidate, tries = point, 0
    while tuple(candidate) in seen:
        tries += 1
        if tries > 200:
            return _first_unseen(space, seen)
        candidate = point.copy()
        changed = rng.choice(len(point), size=min(1 + tries // 20, len(point)), replace=False)
        candidate[changed] = rng.integers(0, space.sizes[changed])
    return candidate


def _first_unseen(space: Space, seen: set[tuple[int, ...]]) -> IntArray:
    """The first unjudged point in the order of the space, for spaces that are nearly exhausted."""
    for flat in range(space.n_designs):
        point = np.array(np.unravel_index(flat, space.sizes))
        if tuple(point) not in seen:
            return point
    raise ValueError("the space holds no design that was not judged")
