"""CMA-ES over ordered values and categories as an Optuna sampler."""

from __future__ import annotations

import numpy as np
from cmaes import CatCMAwM
from optuna.distributions import CategoricalDistribution
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from explorer.sequence_samplers import Distributions, WholePointSampler, sizes_of

LEAST_INTEGER_VALUES = 3
"""Values from which on an ordered parameter is searched along its order; with two it is a category."""


class EvolutionSampler(WholePointSampler):
    """
    CatCMA with margin [1]_, which searches ordered parameters and categories together.

    Finished trials are told in their order, a generation at a time, whoever proposed them: an infeasible design ranks
    behind every feasible one, by the sum of its excesses. One objective.

    References
    ----------
    .. [1] R. Hamano et al., "CatCMA with Margin: Stochastic Optimization for Continuous, Integer, and Categorical
       Variables", arXiv:2504.07884, 2025.
    """

    def __init__(self, allowed: Distributions, seed: int, population: int) -> None:
        super().__init__(allowed)
        self._sizes, self._seed, self._population = sizes_of(allowed), seed, population
        is_category = [isinstance(each, CategoricalDistribution) for each in allowed.values()]
        free = [i for i, size in enumerate(self._sizes) if size > 1]
        self._integers = [i for i in free if not is_category[i] and self._sizes[i] >= LEAST_INTEGER_VALUES]
        self._categories = [i for i in free if i not in self._integers]
        self._optimizer: CatCMAwM | None = None

    def point(self, study: Study, trial: FrozenTrial) -> list[int]:
        """Index of the value of each parameter."""
        found = [0] * len(self._sizes)
        if not self._integers and not self._categories:
            return found
        if self._optimizer is None:
            self._optimizer = self._told(study)
        solution = self._optimizer.ask()
        for place, i in enumerate(self._integers):
            found[i] = int(solution.z[place])
        for place, i in enumerate(self._categories):
            found[i] = int(np.argmax(solution.c[place]))
        return found

    def _told(self, study: Study) -> CatCMAwM:
        """The optimizer after every whole generation of finished trials."""
        optimizer = CatCMAwM(
            z_space=[list(range(self._sizes[i])) for i in self._integers] or None,
            c_space=[self._sizes[i] for i in self._categories] or None,
            population_size=self._population,
            seed=self._seed,
        )
        sign = -1.0 if study.direction == StudyDirection.MAXIMIZE else 1.0
        trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        for last in range(self._population, len(trials) + 1, self._population):
            generation = trials[last - self._population : last]
            ranked = sorted(generation, key=lambda each: _rank(each, sign))
            optimizer.tell([(self._solution(each), float(place)) for place, each in enumerate(ranked)])
        return optimizer

    def _solution(self, trial: FrozenTrial) -> CatCMAwM.Solution:
        """A finished trial as the optimizer states its own."""
        point = [int(trial.params[name]) for name in self.allowed]
        integers = np.array([point[i] for i in self._integers], dtype=np.float64)
        chosen = np.zeros((len(self._categories), max((self._sizes[i] for i in self._categories), default=0)), bool)
        for place, i in enumerate(self._categories):
            chosen[place, point[i]] = True
        return CatCMAwM.Solution(
            z=integers if self._integers else None,
            c=chosen if self._categories else None,
            _v_raw=integers if self._integers else None,
        )


def _rank(trial: FrozenTrial, sign: float) -> tuple[float, float]:
    """Order of trials: by their excess over limits, then by what is minimised."""
    excess = sum(value for value in trial.constraints.values() if value > 0)
    return excess, sign * float(trial.values[0])
