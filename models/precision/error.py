"""What a precision mix costs in quality: every rounding site adds its squared error, and the sum becomes nats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from models.checks import require_positive
from models.precision.formats import Format, number_format
from models.precision.mix import GEMM_MODULES, PrecisionMix
from models.precision.profile import AmplificationProfile, default_profile
from models.tables import DATA, constants, read_rows

if TYPE_CHECKING:
    from models.architectures.lowered import LoweredNetwork


@dataclass(frozen=True)
class Site:
    """One place where rounding enters; the columns of `sites.csv`."""

    name: str
    operand: str
    grows_with_depth: bool
    parallel: bool
    modules: tuple[str, ...]


SITES: Mapping[str, Site] = MappingProxyType(
    {
        row["site"]: Site(
            row["site"], row["operand"], row["block"] == "1", row["parallel"] == "1", tuple(row["modules"].split(";"))
        )
        for row in read_rows(DATA / "precision" / "sites.csv")
    }
)


@dataclass(frozen=True)
class ErrorTerm:
    """One site of one module, with the share of the site's squared error that this module carries."""

    site: Site
    module: str
    share: float


DENSE_MODULES = ("attention_qkv", "attention_output", "ffn_up", "ffn_down", "output_head", "embedding")
"""Modules of a plain decoder, assumed where only a number of layers is known."""


def error_terms(network: LoweredNetwork | int) -> tuple[ErrorTerm, ...]:
    """
    Return every rounding site of a network with its share of the squared error.

    Modules in series (the two factors of a latent projection) each count in full for the layers that have them.
    Modules side by side (dense, routed and shared experts) split a site by the weights one token meets.
    The expert gate has no term: it is a constraint.
    """
    shares = _dense_shares() if isinstance(network, int) else _module_shares(network)
    terms = []
    for site in SITES.values():
        if site.operand in ("cache", "vector"):
            terms.append(ErrorTerm(site, site.modules[0], 1.0))
            continue
        present = [module for module in _owners(site, network) if module in shares]
        total = sum(shares[m][1] for m in present) if site.parallel else 1.0
        for module in present:
            share = shares[module][1] / total if site.parallel else shares[module][0]
            terms.append(ErrorTerm(site, module, share))
    return tuple(terms)


def _owners(site: Site, network: LoweredNetwork | int) -> tuple[str, ...]:
    """Modules whose format a site takes; a tied embedding is the table of the output head."""
    tied = not isinstance(network, int) and network.tied_embeddings
    return ("output_head",) if tied and site.name == "embedding" else site.modules


def mix_kl_nats(
    mix: PrecisionMix,
    network: LoweredNetwork | int,
    *,
    kappa: float = 1.0,
    profile: AmplificationProfile | None = None,
) -> float:
    """
    Return the KL divergence per token that a mix costs at the output of a network.

    KL = kappa 3.8 sum_s share_s (A_s eps_s)^2, with A of block sites scaled by sqrt(layers / measured layers). Valid
    for KL below about 0.5 and round-to-nearest formats; above, the sum over-predicts and stays a safe bound.

    Parameters
    ----------
    mix : PrecisionMix
    network : LoweredNetwork or int
        The network, or the number of layers of a plain dense decoder. [1]
    kappa : float
        KL of this network over that of the profile's network at the same relative error. [1]
    profile : AmplificationProfile, optional
        Measured amplification; the shipped one where left out.

    Returns
    -------
    float
        Expected KL divergence from the unquantised network. [nat/token]

    Examples
    --------
    >>> from models.precision.mix import recipe
    >>> mix_kl_nats(recipe("bf16"), 32) < mix_kl_nats(recipe("deepseek_v3"), 32) < mix_kl_nats(recipe("fp8"), 32)
    True
    """
    return float(sum(error_bill_nats(mix, network, kappa=kappa, profile=profile).values()))


def error_bill_nats(
    mix: PrecisionMix,
    network: LoweredNetwork | int,
    *,
    kappa: float = 1.0,
    profile: AmplificationProfile | None = None,
) -> dict[tuple[str, str], float]:
    """KL that each (module, site) adds [nat/token]; the values add to `mix_kl_nats`."""
    require_positive("kappa", kappa, "1")
    measured = profile or default_profile()
    scale = kappa * constants("precision")["kl_per_squared_error_nats"]
    depth = depth_factor(network, measured)
    return {
        (term.module, term.site.name): scale * squared_error(term, formats_at(mix, term), measured, depth)
        for term in error_terms(network)
    }


def known_kappa(network: str) -> float:
    """
    Return the measured kappa of a network by its catalogue name, 1 where nothing is known [1].

    It turns the scale of the profile's network into that of `network`; the order of mixes does not depend on it,
    nor does a budget that is stated as a recipe.
    """
    rows = read_rows(DATA / "precision" / "kappa.csv")
    return next((float(row["kappa"]) for row in rows if row["network"] == network), 1.0)


def relative_logit_error(kl_nats: float) -> float:
    """Relative error of the centred logits that costs `kl_nats` at kappa 1: the other way to state a budget [1]."""
    return float(np.sqrt(kl_nats / constants("precision")["kl_per_squared_error_nats"]))


def squared_error(term: ErrorTerm, formats: Mapping[str, float], profile: AmplificationProfile, depth: float) -> float:
    """Squared relative logit error of one term whose layers are split over `formats` (name to share) [1]."""
    grown = depth if term.site.grows_with_depth else 1.0
    return sum(
        term.share * share * grown * site_error(term.site.name, number_format(name), profile) ** 2
        for name, share in formats.items()
    )


def site_error(site: str, number: Format, profile: AmplificationProfile) -> float:
    """Relative logit error with a site of the profile's network in one format: measured, else A eps [1]."""
    measured = profile.error_at.get(site, {}).get(number.name)
    if measured is not None:
        return measured
    return profile.amplification(site, number.kind) * profile.eps(site, number)


def formats_at(mix: PrecisionMix, term: ErrorTerm) -> Mapping[str, float]:
    """Formats of a term's site under a mix, with their shares of the layers."""
    if term.site.operand == "weight":
        return mix.blends.get(term.site.name, {mix.weight_format[term.module]: 1.0})
    if term.site.operand == "activation":
        return {mix.activation_format[term.module]: 1.0}
    if term.site.operand == "cache":
        return {mix.key_format if term.module == "key" else mix.value_format: 1.0}
    return {mix.vector_format[term.module]: 1.0}


def depth_factor(network: LoweredNetwork | int, profile: AmplificationProfile) -> float:
    """Layers of the network over those of the profile: squared errors of block sites add layer by layer [1]."""
    layers = network if isinstance(network, int) else network.n_layers
    return float(require_positive("layers", layers, "1")) / profile.n_layers


def _dense_shares() -> dict[str, tuple[float, float]]:
    return dict.fromkeys(DENSE_MODULES, (1.0, 1.0))


def _module_shares(network: LoweredNetwork) -> dict[str, tuple[float, float]]:
    """Per module: share of the layers that have it, and the weights that one token meets."""
    shares: dict[str, tuple[float, float]] = {"embedding": (1.0, network.embedding_parameters)}
    for linear in network.linears:
        if linear.module not in GEMM_MODULES or linear.module == "moe_gate":
            continue
        layers, met = shares.get(linear.module, (0.0, 0.0))
        active = linear.count * linear.n_in * linear.n_out * max(linear.top_k, 1)
        once = linear.module in ("output_head", "embedding")
        shares[linear.module] = (1.0 if once else min(1.0, layers + linear.count / network.n_layers), met + active)
    return shares
