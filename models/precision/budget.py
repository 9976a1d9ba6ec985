"""The quality a study allows, as one number, and the mixes of formats that stay within it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from models.checks import FloatArray, require_positive
from models.precision.choices import choice_groups, mix_of
from models.precision.error import mix_kl_nats
from models.precision.knapsack import cheapest_choices
from models.precision.mix import RECIPES, PrecisionMix, recipe
from models.precision.prices import Load, choice_costs, mix_costs, representative_loads
from models.precision.profile import AmplificationProfile

if TYPE_CHECKING:
    from models.architectures.lowered import LoweredNetwork


def budget_nats(
    network: LoweredNetwork | int,
    *,
    max_kl_nats: float | None = None,
    no_worse_than: str | None = None,
    kappa: float = 1.0,
    profile: AmplificationProfile | None = None,
) -> float:
    """
    Return the quality budget of a study as KL per token.

    Parameters
    ----------
    network : LoweredNetwork or int
        The network, or the number of layers of a plain dense decoder. [1]
    max_kl_nats : float, optional
        The budget itself. [nat/token]
    no_worse_than : str, optional
        Recipe whose own error is the budget. Without either, the budget is infinite.

    Returns
    -------
    float
        Largest allowed KL divergence from the unquantised network. [nat/token]

    Raises
    ------
    ValueError
        If both are given, or the budget is below what bf16 everywhere costs.
    UnknownNameError
        If the recipe is unknown.
    """
    if max_kl_nats is not None and no_worse_than is not None:
        raise ValueError("quality takes max_kl_nats or no_worse_than, got both")
    if no_worse_than is not None:
        return mix_kl_nats(recipe(no_worse_than), network, kappa=kappa, profile=profile)
    if max_kl_nats is None:
        return float("inf")
    require_positive("quality.max_kl_nats", max_kl_nats, "nat")
    least = mix_kl_nats(recipe("bf16"), network, kappa=kappa, profile=profile)
    if max_kl_nats < least:
        raise ValueError(
            f"quality.max_kl_nats must be at least {least:.3g} nat, which bf16 everywhere costs, got {max_kl_nats:g}"
        )
    return float(max_kl_nats)


def recipes_under_budget(
    budget: float,
    network: LoweredNetwork | int,
    *,
    names: Iterable[str] = ("bf16", "fp8", "fp8_kv8", "deepseek_v3", "w4a16", "w8a8_kv8", "nvfp4"),
    kappa: float = 1.0,
    profile: AmplificationProfile | None = None,
) -> tuple[PrecisionMix, ...]:
    """Return the named recipes whose KL is within `budget` [nat/token], in the order of `names`."""
    chosen = (RECIPES[name] for name in names)
    allowed = budget * (1.0 + 1e-12)
    return tuple(mix for mix in chosen if mix_kl_nats(mix, network, kappa=kappa, profile=profile) <= allowed)


def mixes_under_budget(
    budget: float,
    network: LoweredNetwork,
    native_classes: Iterable[str],
    *,
    kappa: float = 1.0,
    profile: AmplificationProfile | None = None,
    limit: int = 12,
    tolerance: float = 0.005,
) -> tuple[PrecisionMix, ...]:
    """
    Return the mixes worth evaluating on designs whose arrays run `native_classes`.

    Every mix is the exact optimum of some machine and load of `prices.representative_loads` under the budget. Of
    these optima a few are kept so that on none of the loads the best kept one costs more than `tolerance` beyond
    the optimum, or `limit` are reached: each next one is what the worst served load asks for.

    Parameters
    ----------
    budget : float
        From `budget_nats`; infinite allows everything. [nat/token]
    network : LoweredNetwork
    native_classes : iterable of str
        Of `formats.RATE_CLASSES`.
    limit : int
        Largest number of mixes. [1]
    tolerance : float
        Extra cost that needs no mix of its own. [1]

    Returns
    -------
    tuple of PrecisionMix
        At least one.

    Raises
    ------
    ValueError
        If no mix of formats that these arrays run stays within the budget; the message states the least error.
    """
    groups = choice_groups(network, tuple(native_classes), kappa=kappa, profile=profile)
    costs = choice_costs(network, groups, representative_loads())
    errors = [group.kl_nats for group in groups]
    choices, best = cheapest_choices(costs, errors, budget)
    if not np.isfinite(best).all():
        least = sum(float(values.min()) for values in errors)
        raise ValueError(f"no mix of native formats stays within {budget:.3g} nat, the least error is {least:.3g} nat")
    distinct = np.unique(choices, axis=0)
    total = sum(cost[:, distinct[:, g]] for g, cost in enumerate(costs))
    kept = _cover(total / best[:, None] - 1.0, limit, tolerance)
    return tuple(mix_of(groups, distinct[index]) for index in kept)


def mixes_of_classes(
    budget: float,
    network: LoweredNetwork,
    class_sets: Iterable[Collection[str]],
    *,
    kappa: float = 1.0,
    profile: AmplificationProfile | None = None,
    limit: int = 4,
) -> tuple[PrecisionMix, ...]:
    """
    Return the mixes of several kinds of arrays as one list without repetition.

    A mix that some array does not run natively is promoted there, so one list serves a batch of all kinds. Kinds
    none of whose mixes stays within the budget add nothing; if that holds for all, the last complaint is raised.
    At most `limit` of each kind: with 4, 12 to 17 mixes serve the five kinds of the full space, and other loads than
    the representative ones cost 0.2 to 0.7 % more than with the best mix of all, on average over machines.
    """
    found: dict[str, PrecisionMix] = {}
    complaint: ValueError | None = None
    for native in class_sets:
        try:
            mixes = mixes_under_budget(budget, network, native, kappa=kappa, profile=profile, limit=limit)
        except ValueError as error:
            complaint = error
            continue
        found |= {mix.name: mix for mix in mixes}
    if not found and complaint is not None:
        raise complaint
    return tuple(found.values())


@dataclass(frozen=True)
class MixSelection:
    """Mixes that compete in a search, and what leaving out the others costs on the loads they were chosen on."""

    mixes: tuple[PrecisionMix, ...]
    n_considered: int
    """Distinct optima of all class sets and loads, and the candidates beside them."""
    largest_extra_cost_fraction: float
    """Cost of the best kept mix over the optimum of all combinations, at the load and class set served worst."""
    mean_extra_cost_fraction: float


def mixes_of_space(
    budget: float,
    network: LoweredNetwork,
    class_sets: Iterable[Collection[str]],
    *,
    always: Sequence[PrecisionMix] = (),
    candidates: Sequence[PrecisionMix] = (),
    loads: Sequence[Load] | None = None,
    kappa: float = 1.0,
    profile: AmplificationProfile | None = None,
    limit: int = 12,
    tolerance: float = 0.02,
) -> MixSelection:
    """
    Return the mixes worth evaluating in a space whose designs have one of several sets of native classes.

    The exact optima of every set on the representative loads compete with `candidates`. Beside `always` so many are
    kept that on no set and load the best kept mix costs more than `tolerance` beyond the optimum, or that there are
    `limit` mixes: a mix that serves several kinds of arrays is kept once, one that none prefers is not.

    Parameters
    ----------
    budget : float
        From `budget_nats`; infinite allows everything. [nat/token]
    network : LoweredNetwork
    class_sets : iterable of collections of str
        Native classes, of `formats.RATE_CLASSES`.
    always : sequence of PrecisionMix
        Mixes of the list whatever they cost; they count towards `limit`.
    candidates : sequence of PrecisionMix
        Further mixes within the budget that may be kept.
    loads : sequence of Load, optional
        Steps that the mixes are judged on, those of the workload; `representative_loads` where left out.
    limit : int
        Largest number of mixes. [1]
    tolerance : float
        Extra cost that needs no mix of its own. [1]

    Returns
    -------
    MixSelection
        `always` first.

    Raises
    ------
    ValueError
        If on no set any mix stays within the budget; the message states the least error.
    """
    judged, sets = loads or representative_loads(), list(class_sets)
    known = {mix.name: mix for mix in (*always, *candidates)}
    optima, complaint = [], ""
    for native in sets:
        groups = choice_groups(network, tuple(native), kappa=kappa, profile=profile)
        choices, best = cheapest_choices(
            choice_costs(network, groups, judged), [group.kl_nats for group in groups], budget
        )
        if not np.isfinite(best).all():
            least = sum(float(group.kl_nats.min()) for group in groups)
            complaint = f"no mix of native formats stays within {budget:.3g} nat, the least error is {least:.3g} nat"
            continue
        found = (mix_of(groups, choice) for choice in np.unique(choices, axis=0))
        known |= {mix.name: mix for mix in found if mix.name not in known}
        optima.append((native, groups, best))
    if not optima:
        raise ValueError(complaint)
    mixes = list(known.values())
    regret = [mix_costs(network, mixes, groups, native, judged) / best[:, None] for native, groups, best in optima]
    extra = np.concatenate(regret) - 1.0
    kept = _cover(extra, limit, tolerance, list(range(len(always))))
    served = extra[:, kept].min(axis=1)
    return MixSelection(tuple(mixes[i] for i in kept), len(mixes), float(served.max()), float(served.mean()))


def _cover(regret: FloatArray, limit: int, tolerance: float, always: Sequence[int] = ()) -> list[int]:
    """
    Columns that serve every row within `tolerance`: `always`, then each time the one that lowers the mean regret most.
    """
    kept = list(always) or [int(regret.mean(axis=0).argmin())]
    while len(kept) < limit:
        served = regret[:, kept].min(axis=1)
        if served.max() <= tolerance:
            break
        kept.append(int(np.minimum(regret, served[:, None]).mean(axis=0).argmin()))
    return kept
