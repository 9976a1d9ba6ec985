"""Samplers by name, and the next points they propose for a study."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from explorer.evolution_sampler import EvolutionSampler
from explorer.objectives import Objective
from explorer.records import TrialRecord
from explorer.sequence_samplers import ExhaustiveSampler, SobolSampler
from explorer.space import Space, point_of
from models.checks import IntArray

STARTUP_TRIALS = 20
"""Random trials before TPE builds its model."""

POPULATION = 40
"""Trials of one generation of NSGA-II and NSGA-III."""

CMA_POPULATION = 10
"""Trials of one generation of CMA-ES, which learns after each."""


@dataclass(frozen=True)
class Request:
    """
    What a sampler is made from.

    `study_seed` is the same for the whole study and `seed` differs from batch to batch; `allowed` are the parameters
    it chooses.
    """

    study_seed: int
    seed: int
    allowed: Mapping[str, BaseDistribution]


SamplerFactory = Callable[[Request], BaseSampler]


def _tpe(request: Request) -> BaseSampler:
    return optuna.samplers.TPESampler(
        seed=request.seed, multivariate=True, constant_liar=True, n_startup_trials=STARTUP_TRIALS
    )


SAMPLERS: Mapping[str, SamplerFactory] = {
    "tpe": _tpe,
    "random": lambda request: optuna.samplers.RandomSampler(seed=request.seed),
    "nsga2": lambda request: optuna.samplers.NSGAIISampler(seed=request.seed, population_size=POPULATION),
    "nsga3": lambda request: optuna.samplers.NSGAIIISampler(seed=request.seed, population_size=POPULATION),
    "cmaes": lambda request: EvolutionSampler(request.allowed, request.seed, CMA_POPULATION),
    "qmc": lambda request: SobolSampler(request.allowed, request.study_seed),
    "exhaustive": lambda request: ExhaustiveSampler(request.allowed),
}
"""Sampler by name -> function of a request. All are Optuna's or extend its `BaseSampler`."""

EXACT = "exact"
"""Our own: proposals come from the branch and bound."""

AUTO = "auto"
"""Exact where every objective can be bounded, TPE where not."""

EXHAUSTIVE = "exhaustive"
"""Every design of the space, in order."""

SAMPLER_NAMES = (AUTO, EXACT, *SAMPLERS)

ONE_OBJECTIVE = ("cmaes",)
"""Samplers that follow one objective."""

BATCH_TRIALS: Mapping[str, int] = {"tpe": 5, "cmaes": CMA_POPULATION}
"""Trials that a sampler is asked for before it learns how they did, where fewer than a chunk."""


def distributions(space: Space, filled: Collection[str] = ()) -> dict[str, BaseDistribution]:
    """
    Index of each parameter's value: an integer where values are ordered, a category otherwise.

    Parameters that are `filled` by a rule, and so not chosen by the sampler, are left out.
    """
    return {
        p.name: IntDistribution(0, len(p.values) - 1)
        if p.ordered
        else CategoricalDistribution(list(range(len(p.values))))
        for p in space.parameters
        if p.name not in filled
    }


def optuna_study(
    space: Space,
    objectives: Sequence[Objective],
    records: Sequence[TrialRecord],
    sampler: BaseSampler | None = None,
    filled: Collection[str] = (),
) -> optuna.Study:
    """Return an in-memory Optuna study that holds every record as a finished trial, named constraints included."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        directions=["maximize" if o.maximize else "minimize" for o in objectives], sampler=sampler
    )
    allowed = distributions(space, filled)
    study.add_trials([_frozen(space, record, allowed, sampler) for record in records])
    return study


def _frozen(
    space: Space, record: TrialRecord, allowed: Mapping[str, BaseDistribution], sampler: BaseSampler | None
) -> FrozenTrial:
    point = point_of(space, record.params)
    params = {p.name: int(i) for p, i in zip(space.parameters, point, strict=True) if p.name in allowed}
    return create_trial(
        state=TrialState.COMPLETE,
        values=record.objectives,
        params=params,
        distributions=dict(allowed),
        constraints=record.excess,
        user_attrs={"violated": record.violated},
        system_attrs=_generation(sampler, record.number),
    )


def _generation(sampler: BaseSampler | None, number: int) -> dict[str, int]:
    """The mark by which a genetic sampler knows the generation of a trial; without it every trial is its first."""
    key = getattr(sampler, "_GENERATION_KEY", None)
    return {} if key is None else {key: number // POPULATION}


class Asker:
    """
    A sampler beside the trials it has learned from, for several batches in a row.

    What it asks for is a function of the trials, the seeds and the count alone. Parameters that are `filled` are not
    chosen by the sampler; they stand at 0.
    """

    def __init__(
        self,
        name: str,
        space: Space,
        objectives: Sequence[Objective],
        records: Sequence[TrialRecord],
        study_seed: int,
        filled: Collection[str] = (),
    ) -> None:
        self._name, self._space, self._study_seed = name, space, study_seed
        self._allowed = distributions(space, filled)
        self._filled = filled
        self._study = optuna_study(space, objectives, (), self._sampler(0))
        self.learn(records)

    def learn(self, records: Sequence[TrialRecord]) -> None:
        """Add finished trials."""
        sampler = self._study.sampler
        self._study.add_trials([_frozen(self._space, record, self._allowed, sampler) for record in records])

    def ask(self, seed: int, count: int, away: Sequence[IntArray] = ()) -> IntArray:
        """
        Return what the sampler asks for, some of which may have been judged before, shape (count, n_parameters).

        `away` are points of shape (n_parameters,) that are being judged; the sampler keeps off them.
        """
        self._study.sampler = self._sampler(seed)
        for point in away:
            params = self._params(point)
            running = create_trial(state=TrialState.RUNNING, params=params, distributions=self._allowed)
            self._study.add_trial(running)
        trials = [self._study.ask(self._allowed) for _ in range(count)]
        for trial in trials:  # what is judged in their place comes back as trials of its own
            self._study.tell(trial, state=TrialState.FAIL)
        points = [[int(trial.params.get(p.name, 0)) for p in self._space.parameters] for trial in trials]
        return np.array(points, dtype=np.int64).reshape(count, len(self._space.parameters))

    def _sampler(self, seed: int) -> BaseSampler:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return SAMPLERS[self._name](Request(self._study_seed, seed, self._allowed))

    def _params(self, point: IntArray) -> dict[str, int]:
        named = zip(self._space.parameters, point, strict=True)
        return {p.name: int(i) for p, i in named if p.name in self._allowed}


def seed_of(seeds: Sequence[int]) -> int:
    """Seed of a batch, from the seed of the study and the numbers of the batch."""
    return int(np.random.default_rng(list(seeds)).integers(2**31))


def distinct(points: IntArray, space: Space, seen: set[tuple[int, ...]], rng: np.random.Generator) -> IntArray:
    """Return the points, those in `seen` or met before replaced by near ones; what is returned is added to `seen`."""
    found = []
    for point in points:
        new = unseen(point, space, seen, rng)
        seen.add(tuple(new))
        found.append(new)
    return np.array(found, dtype=np.int64).reshape(len(found), len(space.parameters))


def seen_points(space: Space, records: Sequence[TrialRecord]) -> set[tuple[int, ...]]:
    """Points of all trials."""
    return {tuple(point_of(space, record.params)) for record in records}


def propose(
    name: str,
    space: Space,
    objectives: Sequence[Objective],
    records: Sequence[TrialRecord],
    seeds: Sequence[int],
    count: int,
) -> IntArray:
    """
    Return `count` new points (fewer where the space is exhausted): a function of its arguments alone.

    Parameters
    ----------
    name : str
        A key of `SAMPLERS`.
    records : sequence of TrialRecord
        All earlier trials of the study.
    seeds : sequence of int
        Seed of the study, then the numbers of the batch.

    Returns
    -------
    array of shape (n_points, n_parameters)
        Indices into the space's values; none was judged before, none is repeated.
    """
    count = min(count, space.n_designs - len(records))
    points = Asker(name, space, objectives, records, seeds[0]).ask(seed_of(seeds), count)
    return distinct(points, space, seen_points(space, records), np.random.default_rng([*seeds, 1]))


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
