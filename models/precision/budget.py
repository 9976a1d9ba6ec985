"""The quality a study allows, as one number, and the mixes of formats that stay within it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from models.checks import require_positive
from models.precision.error import mix_kl_nats
from models.precision.mix import RECIPES, PrecisionMix, recipe
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
    network: LoweredNetwork | int,
    native_classes: Iterable[str],
    *,
    kappa: float = 1.0,
    profile: AmplificationProfile | None = None,
) -> tuple[PrecisionMix, ...]:
    """
    Return the mixes worth evaluating on designs whose arrays run exactly `native_classes`, at most 16.

    Parameters
    ----------
    budget : float
        From `budget_nats`. [nat/token]
    native_classes : iterable of str
        Of `formats.RATE_CLASSES`.
    """
    return recipes_under_budget(budget, network, kappa=kappa, profile=profile)
