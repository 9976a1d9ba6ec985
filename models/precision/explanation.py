"""Why a mix is what it is: error and bytes per module, what more budget buys, which module deserves which advice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from models.checks import FloatArray, require_non_negative
from models.precision.error import SITES, error_bill_nats
from models.precision.knapsack import cheapest_choices
from models.precision.mix import GEMM_MODULES, VECTOR_MODULES, PrecisionMix
from models.precision.profile import AmplificationProfile, default_profile
from models.tables import constants

if TYPE_CHECKING:
    from models.architectures.lowered import LoweredNetwork

ADVICE = {
    (True, True): "worth a native format between the two: narrow it as far as the budget goes, it pays and it costs",
    (True, False): "keep wide: narrowing saves little and spends the budget",
    (False, True): "narrow first: saves most for the least error",
    (False, False): "leave as the hardware likes it best: neither error nor time depends on it",
}
"""What each class of modules asks for, by (amplification is high, resource return is high)."""


@dataclass(frozen=True)
class ModulePrecision:
    """One row of the precision map of a mix."""

    module: str
    stationary: str
    """Format of the weights, of the cache, or of the values between products."""
    moving: str
    """Format of the inputs; empty where there is none."""
    stored_bits: float
    saved_fraction: float
    """Bits saved against bf16."""
    kl_nats: float
    error_share_fraction: float


def precision_map(
    mix: PrecisionMix,
    network: LoweredNetwork | int,
    *,
    kappa: float = 1.0,
    profile: AmplificationProfile | None = None,
) -> tuple[ModulePrecision, ...]:
    """Return formats, saved bits and share of the error of every module of a network, the largest share first."""
    bill = error_bill_nats(mix, network, kappa=kappa, profile=profile)
    total = sum(bill.values())
    modules: dict[str, float] = {}
    for (module, _), kl_nats in bill.items():
        modules[module] = modules.get(module, 0.0) + kl_nats
    rows = []
    for module, kl_nats in sorted(modules.items(), key=lambda item: -item[1]):
        stationary, moving, bits = _formats(mix, module)
        rows.append(ModulePrecision(module, stationary, moving, bits, 1.0 - bits / 16.0, kl_nats, kl_nats / total))
    return tuple(rows)


def module_amplification(profile: AmplificationProfile | None = None) -> dict[str, float]:
    """
    Return the amplification of each module: its sites' in quadrature, the larger of floating point and integer [1].

    Rounding every site of a module by eps moves the logits by this times eps, relatively.
    """
    measured = profile or default_profile()
    squared: dict[str, float] = {}
    for site in SITES.values():
        worst = max(measured.amplification(site.name, kind) for kind in ("float", "int"))
        for module in site.modules:
            squared[module] = squared.get(module, 0.0) + worst**2
    return {module: float(np.sqrt(value)) for module, value in squared.items()}


def advice(amplification: ArrayLike, resource_return: ArrayLike) -> list[str]:
    """
    Return the advice for modules from their amplification and what resources return when only they get them.

    Parameters
    ----------
    amplification, resource_return : arrays of shape (n_modules,)
        As `module_amplification`; relative gain of the objective per relative gain of the module. [1]
    """
    high_error = require_non_negative("amplification", amplification, "1") >= _threshold("high_amplification_ratio")
    high_gain = require_non_negative("resource_return", resource_return, "1") >= _threshold(
        "high_resource_return_fraction"
    )
    return [ADVICE[bool(error), bool(gain)] for error, gain in zip(high_error, high_gain, strict=True)]


def budget_return(
    cost: Sequence[FloatArray], error: Sequence[FloatArray], budget: float, *, more_fraction: float = 0.1
) -> FloatArray:
    """
    Return what a larger error budget buys: the share of the optimal cost it saves.

    Parameters
    ----------
    cost, error : sequences of arrays
        As `cheapest_choices` takes them.
    budget : float
        Budget before. [nat]
    more_fraction : float
        Growth of the budget. [1]

    Returns
    -------
    array of shape (n_designs,)
        Saved share; NaN where even the larger budget fits nothing, 1 where only the larger one fits something.
    """
    _, before = cheapest_choices(cost, error, budget)
    _, after = cheapest_choices(cost, error, budget * (1.0 + more_fraction))
    with np.errstate(invalid="ignore"):
        saved: FloatArray = 1.0 - after / before
    return saved


def accumulator_squared_error(
    mantissa_bits: ArrayLike,
    reduction_size: ArrayLike,
    chunk_size: ArrayLike,
    *,
    profile: AmplificationProfile | None = None,
) -> FloatArray:
    """
    Return the squared logit error of a narrow accumulator that rounds once per chunk and is promoted to fp32 never.

    eps = 0.21 2^-m sqrt(K / chunk) at every matrix product of a layer, as if each weight matrix had that error. An
    accumulator of at least 7 mantissa bits more than the operands needs no such term; one that truncates needs 10.

    Parameters
    ----------
    mantissa_bits : array of shape (n_designs,)
        Stored mantissa bits of the accumulator. [1]
    reduction_size : array of shape (n_designs,)
        Length of the sum, the hidden size of the network. [1]
    chunk_size : array of shape (n_designs,)
        Products that are added exactly before the accumulator rounds. [1]

    Returns
    -------
    array of shape (n_designs,)
        To be added to the squared errors of the other sites. [1]
    """
    measured = profile or default_profile()
    linears = [site for site in SITES.values() if site.operand == "weight" and site.grows_with_depth]
    amplified = sum(measured.amplification(site.name, "float") ** 2 for site in linears)
    roundings = np.asarray(reduction_size, dtype=np.float64) / np.asarray(chunk_size, dtype=np.float64)
    eps = constants("precision")["fp_rounding_eps_ratio"] * 2.0 ** -np.asarray(mantissa_bits, dtype=np.float64)
    return np.asarray(amplified * eps**2 * roundings)


def _threshold(name: str) -> float:
    return constants("precision")[name]


def _formats(mix: PrecisionMix, module: str) -> tuple[str, str, float]:
    """Format that is stored, format that meets it, and stored bits."""
    if module == "key":
        return mix.key_format, mix.vector_format["query"], mix.key_bits
    if module == "value":
        return mix.value_format, mix.vector_format["probabilities"], mix.value_bits
    if module in VECTOR_MODULES:
        return mix.vector_format[module], "", mix.vector_bits(module)
    if module not in GEMM_MODULES:
        raise LookupError(f"unknown module '{module}' in the error bill")
    return mix.weight_format[module], mix.activation_format[module], mix.weight_bits(module)
