"""The error of a published quantisation scheme, read from its name and the columns of a table of results."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from models.precision.error import SITES
from models.precision.formats import FORMATS, number_format
from models.precision.profile import AmplificationProfile, default_profile
from models.tables import DATA, constants, read_rows

_LINEAR_WEIGHTS = ("w_q", "w_k", "w_v", "w_o", "w_gate", "w_up", "w_down")
_LINEAR_INPUTS = ("qkv_input", "o_input", "ffn_input", "down_input")
_MIX_EXPONENT = {"chosen": "mix_chosen_exponent", "tail": "mix_placed_exponent", "head": "mix_placed_exponent"}


@dataclass(frozen=True)
class SchemeRow:
    """One published recipe, as the columns of `published_quality.csv` describe it; `None` where empty."""

    scheme: str
    module_scope: str
    weight_bits: float | None
    activation_bits: float | None
    kv_bits: float | None
    block: str


@dataclass(frozen=True)
class _Rule:
    """The row of `schemes.csv` that a name matched, with what the expression captured."""

    columns: Mapping[str, str]
    captured: Mapping[str, str]

    def factor(self, name: str) -> float:
        return float(self.columns[name] or 1.0)


def scheme_kl_nats(row: SchemeRow, *, profile: AmplificationProfile | None = None) -> float:
    """
    Return the KL divergence that a published scheme costs on the network of the profile.

    The name decides format, per-tensor exceptions and method by `schemes.csv`; a name that no expression there
    knows is integers of the stated widths and block. Only the order of schemes means something: the scale differs
    from network to network by one factor.

    Parameters
    ----------
    row : SchemeRow
    profile : AmplificationProfile, optional
        Measured amplification; the shipped one where left out.

    Returns
    -------
    float
        Predicted KL divergence from the unquantised network. [nat/token]

    Examples
    --------
    >>> q4, q6 = (SchemeRow(name, "weights", None, 16, 16, "256") for name in ("Q4_K_M", "Q6_K"))
    >>> scheme_kl_nats(q4) > scheme_kl_nats(q6)
    True
    """
    measured = profile or default_profile()
    rule = _rule(row.scheme.lower())
    squared = {site: number_error(site, "bf16", measured) for site in SITES}
    weights = rule.captured.get("w")
    if weights:
        squared |= _weight_errors(replace(row, scheme=weights), _rule(weights), measured)
    else:
        squared |= _weight_errors(row, rule, measured)
    squared |= _input_errors(row, rule, measured)
    squared |= _cache_errors(row, rule, measured)
    return constants("precision")["kl_per_squared_error_nats"] * sum(squared.values())


def number_error(site: str, name: str, profile: AmplificationProfile, *, gaussian: bool = False) -> float:
    """Squared logit error of a site in one format; `gaussian` where a rotation took the outliers away [1]."""
    number = number_format(name)
    eps = number.gaussian_eps if gaussian else profile.eps(site, number)
    return (profile.amplification(site, number.kind) * eps) ** 2


def _weight_errors(row: SchemeRow, rule: _Rule, profile: AmplificationProfile) -> dict[str, float]:
    """Squared errors of all weight sites that the scheme touches."""
    name = rule.columns["weight"]
    bits = _bits_in_name(row.scheme) or row.weight_bits
    if not name and (bits is None or bits >= 16):
        return {}
    factor = rule.factor("weight_factor")
    if "imatrix" in row.scheme.lower():
        factor *= constants("precision")["imatrix_variance_factor"]
    errors = {}
    for site in _LINEAR_WEIGHTS:
        errors[site] = factor * _named_or_wide(site, name, bits, row.block, profile)
    errors |= {
        site: factor * sum(share * number_error(site, number, profile) for number, share in blend.items())
        for site, blend in _blends(rule.columns["blends"], row).items()
    }
    mixed = re.search(r"mix=(\w+)", rule.columns["blends"])
    if mixed:
        kept = _share_left_narrow(bits) ** constants("precision")[_MIX_EXPONENT[mixed[1]]]
        wide = {site: number_error(site, "mxfp8", profile) for site in _LINEAR_WEIGHTS}
        errors |= {site: kept * errors[site] + (1 - kept) * wide[site] for site in _LINEAR_WEIGHTS}
    return errors


def _input_errors(row: SchemeRow, rule: _Rule, profile: AmplificationProfile) -> dict[str, float]:
    """Squared errors of the inputs of the linears."""
    name = rule.columns["activation"]
    if not name and (row.activation_bits is None or row.activation_bits >= 16):
        return {}
    name, _, shape = (name or _integer(row.activation_bits or 16, row.block)).partition(":")
    factor = rule.factor("activation_factor")
    errors = {site: factor * number_error(site, name, profile, gaussian=shape == "gaussian") for site in _LINEAR_INPUTS}
    mixed = re.search(r"mix=(\w+)", rule.columns["blends"])
    bits = _bits_in_name(row.scheme) or row.weight_bits
    if mixed and bits is not None:
        kept = _share_left_narrow(bits) ** constants("precision")[_MIX_EXPONENT[mixed[1]]]
        errors = {s: kept * e + (1 - kept) * number_error(s, "mxfp8", profile) for s, e in errors.items()}
    return errors


def _cache_errors(row: SchemeRow, rule: _Rule, profile: AmplificationProfile) -> dict[str, float]:
    """Squared errors of keys and values."""
    names = {site: rule.captured.get(letter, "") for site, letter in (("k_cache", "k"), ("v_cache", "v"))}
    names["v_cache"] = names["v_cache"] or names["k_cache"]
    if not any(names.values()):
        if row.kv_bits is not None and row.kv_bits >= 16:
            return {}
        stated = _integer(row.kv_bits, row.block) if row.kv_bits is not None else ""
        names = dict.fromkeys(names, rule.columns["key_value"] or stated)
    factor = rule.factor("activation_factor")
    return {site: factor * number_error(site, _known(name), profile) for site, name in names.items() if name}


def _named_or_wide(site: str, name: str, bits: float | None, block: str, profile: AmplificationProfile) -> float:
    if name == "bits":
        variance = constants("precision")["codebook_variance"] * float(4.0 ** -(bits or 4.0))
        return profile.amplification(site, "int") ** 2 * variance
    return number_error(site, _known(name or _integer(bits or 16, block)), profile)


def _known(name: str) -> str:
    """A format of ours for a name of the table."""
    aliases = {"f16": "fp16", "f32": "fp32"}
    name = aliases.get(name, name)
    return name if name in FORMATS else "bf16"


def _integer(bits: float, block: str) -> str:
    """The integer format nearest to a stated width and block."""
    size = int(block) if block.isdigit() else 0
    whole = max(2, min(8, round(bits)))
    if whole == 8:
        return "int8_tensor" if block == "tensor" else "int8"
    if whole == 4:
        return "int4" if size == 0 else "int4_g128" if size >= 128 else "int4_g64" if size >= 64 else "int4_g32"
    return {2: "q2_k", 3: "int3" if size == 0 else "int3_g64", 5: "int5_g64", 6: "int6_g64", 7: "int8"}[whole]


def _blends(text: str, row: SchemeRow) -> dict[str, dict[str, float]]:
    """Sites with formats of their own, and what the scope column says about values and the down projection."""
    blends = {}
    for part in text.split():
        site, _, shares = part.partition("=")
        if site in SITES:
            blends[site] = {n: float(share) for n, _, share in (s.partition(":") for s in shares.split("+"))}
    described = f"{row.scheme} {row.module_scope}".lower()
    raised = re.search(r"attn_v (\d) ?bit", described)
    if raised:
        blends["w_v"] = {f"q{raised[1]}_k": 1.0}
    elif re.search(r"attn_v.*low", described):
        blends.pop("w_v", None)
    if re.search(r"ffn_down (low|not raised)", described):
        blends.pop("w_down", None)
    return blends


def _bits_in_name(scheme: str) -> float | None:
    """Bits that a name such as `Exl2 4.25bpw` or `MXFP4/8 mix 5b` states."""
    found = re.search(r"(\d+(?:\.\d+)?) ?b(?:pw)?\b", scheme)
    return float(found[1]) if found else None


def _share_left_narrow(bits: float | None) -> float:
    """Share of the layers that stay at 4 bits where the others take 8."""
    return min(1.0, max(0.0, (8.0 - (bits or 4.0)) / 4.0))


@functools.cache
def _rules() -> tuple[tuple[re.Pattern[str], Mapping[str, str]], ...]:
    return tuple((re.compile(row["pattern"]), row) for row in read_rows(DATA / "precision" / "schemes.csv"))


def _rule(name: str) -> _Rule:
    for pattern, row in _rules():
        found = pattern.search(name)
        if found:
            return _Rule(row, {key: value for key, value in found.groupdict().items() if value})
    nothing = dict.fromkeys(("weight", "blends", "activation", "key_value", "weight_factor", "activation_factor"), "")
    return _Rule(nothing, {})
