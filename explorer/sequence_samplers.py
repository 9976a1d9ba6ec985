"""Samplers that learn nothing: a low-discrepancy sequence, and every design in order."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState
from scipy.stats import qmc

Distributions = Mapping[str, BaseDistribution]


def sizes_of(allowed: Distributions) -> list[int]:
    """Number of values of each parameter."""
    return [_size(each) for each in allowed.values()]


def _size(distribution: BaseDistribution) -> int:
    if isinstance(distribution, CategoricalDistribution):
        return len(distribution.choices)
    assert isinstance(distribution, IntDistribution)
    return distribution.high - distribution.low + 1


class WholePointSampler(BaseSampler):
    """A sampler that chooses all parameters of a trial together; `point` is what an extension states."""

    def __init__(self, allowed: Distributions) -> None:
        self.allowed = dict(allowed)

    @abstractmethod
    def point(self, study: Study, trial: FrozenTrial) -> list[int]:
        """Index of the value of each parameter."""

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """All parameters."""
        return self.allowed

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Values of all parameters."""
        return dict(zip(search_space, self.point(study, trial), strict=True))

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Refuse: a parameter that was not stated at the start has no place in a point."""
        raise ValueError(f"{param_name} is not among the parameters of the sampler")


class SobolSampler(WholePointSampler):
    """Scrambled Sobol sequence [1]_: trial n takes its n-th point, whatever was judged meanwhile.

    References
    ----------
    .. [1] A. B. Owen, "Scrambling Sobol' and Niederreiter-Xing points", J. Complexity 14(4), 1998.
    """

    def __init__(self, allowed: Distributions, seed: int) -> None:
        super().__init__(allowed)
        self._sizes = np.array(sizes_of(allowed))
        self._engine = qmc.Sobol(len(self._sizes), scramble=True, rng=np.random.default_rng(seed))

    def point(self, study: Study, trial: FrozenTrial) -> list[int]:
        """Index of the value of each parameter."""
        ahead = trial.number - self._engine.num_generated
        if ahead > 0:
            self._engine.fast_forward(ahead)
        drawn = self._engine.random(1)[0]
        return [int(i) for i in np.minimum(np.floor(drawn * self._sizes), self._sizes - 1)]


class ExhaustiveSampler(WholePointSampler):
    """Every design once, in the order of the space."""

    def __init__(self, allowed: Distributions) -> None:
        super().__init__(allowed)
        self._sizes = tuple(sizes_of(allowed))
        self._taken: set[int] | None = None
        self._next = 0

    def point(self, study: Study, trial: FrozenTrial) -> list[int]:
        """Index of the value of each parameter."""
        if self._taken is None:
            known = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.RUNNING))
            points = [[each.params[name] for name in self.allowed] for each in known if each.number != trial.number]
            self._taken = {int(np.ravel_multi_index(tuple(point), self._sizes)) for point in points}
        while self._next in self._taken and self._next + 1 < int(np.prod(self._sizes, dtype=object)):
            self._next += 1
        found = [int(i) for i in np.unravel_index(self._next, self._sizes)]
        self._taken.add(self._next)
        return found
