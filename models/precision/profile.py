"""Measured error amplification of a network: how strongly each rounding site moves its logits."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.checks import require_known, require_non_negative, require_positive
from models.precision.formats import FORMATS, Format
from models.tables import DATA

_WIDE_CODE_BITS = 16
"""From here on a format has no blocks and no scale, so its Gaussian error holds for every tensor."""


@dataclass(frozen=True)
class AmplificationProfile:
    """
    Amplification and per-token rounding error of every site of one network.

    `float_amplification` and `int_amplification` are e/eps with floating-point and with integer formats: they differ
    where a weight matrix has a few large input channels. `eps_at` holds the rounding error itself, per site and
    format, as far as measured; other formats fall back on it scaled by their Gaussian error. `error_at` holds the
    logit error of the single site where it was measured with that very format, which beats amplification times eps.
    """

    name: str
    n_layers: int
    float_amplification: Mapping[str, float]
    int_amplification: Mapping[str, float]
    eps_at: Mapping[str, Mapping[str, float]]
    error_at: Mapping[str, Mapping[str, float]]
    source: str = ""

    def amplification(self, site: str, kind: str) -> float:
        """Relative logit error per relative rounding error of a site [1]."""
        table = self.float_amplification if kind == "float" else self.int_amplification
        return table[require_known("rounding site", site, table)]

    def eps(self, site: str, number: Format) -> float:
        """Relative rounding error of a format at a site, per token or weight row [1]."""
        known = self.eps_at.get(site, {})
        if number.name in known:
            return known[number.name]
        if number.code_bits >= _WIDE_CODE_BITS:
            return number.gaussian_eps
        return number.gaussian_eps * _excess(known, number)


def _excess(known: Mapping[str, float], number: Format) -> float:
    """Measured over Gaussian error of the most similar measured format: same kind, then nearest block and width."""
    candidates = [FORMATS[name] for name in known if name in FORMATS and FORMATS[name].code_bits < _WIDE_CODE_BITS]
    if not candidates:
        return 1.0
    nearest = min(candidates, key=lambda f: _distance(f, number))
    return known[nearest.name] / nearest.gaussian_eps


def _distance(first: Format, second: Format) -> tuple[bool, bool, int, int]:
    ratio = abs(_block_rank(first) - _block_rank(second))
    same_scale = first.scale == second.scale or not {first.scale, second.scale} & {"e8m0"}
    return first.kind != second.kind, not same_scale, ratio, abs(first.code_bits - second.code_bits)


def _block_rank(number: Format) -> int:
    return {0: 0, -1: 12, -2: 24}.get(number.block, number.block.bit_length())


def profile_from_json(document: Any, where: str) -> AmplificationProfile:
    """
    Return the profile of a parsed JSON document, checked.

    Raises
    ------
    ValueError
        If a key is missing or a number is not positive; the message names it.
    """
    for key in ("name", "n_layers", "float_amplification", "int_amplification", "eps", "error"):
        if key not in document:
            raise ValueError(f"{key} is missing in amplification profile {where}")
    for key in ("float_amplification", "int_amplification"):
        for site, value in document[key].items():
            require_positive(f"{key}.{site} in {where}", value, "1")
    for key in ("eps", "error"):
        for site, row in document[key].items():
            for name, value in row.items():
                require_known("number format", name, FORMATS)
                require_non_negative(f"{key}.{site}.{name} in {where}", value, "1")
    require_positive(f"n_layers in {where}", document["n_layers"], "1")
    return AmplificationProfile(
        name=str(document["name"]),
        n_layers=int(document["n_layers"]),
        float_amplification=document["float_amplification"],
        int_amplification=document["int_amplification"],
        eps_at=document["eps"],
        error_at=document["error"],
        source=str(document.get("source", "")),
    )


def read_profile(path: Path) -> AmplificationProfile:
    """Return the profile in a JSON file written by `write_profile`."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"amplification profile {path.name} must be JSON: {error}") from None
    return profile_from_json(document, path.name)


def profile_document(profile: AmplificationProfile) -> dict[str, Any]:
    """Plain data that `profile_from_json` reads back, with four significant digits."""

    def rounded(table: Mapping[str, float]) -> dict[str, float]:
        return {key: float(f"{value:.4g}") for key, value in table.items()}

    return {
        "name": profile.name,
        "source": profile.source,
        "n_layers": profile.n_layers,
        "float_amplification": rounded(profile.float_amplification),
        "int_amplification": rounded(profile.int_amplification),
        "eps": {site: rounded(row) for site, row in profile.eps_at.items()},
        "error": {site: rounded(row) for site, row in profile.error_at.items()},
    }


def write_profile(profile: AmplificationProfile, path: Path) -> None:
    """Write a profile as JSON with four significant digits."""
    path.write_text(json.dumps(profile_document(profile), indent=1) + "\n", encoding="utf-8")


@functools.cache
def default_profile() -> AmplificationProfile:
    """Return the shipped profile, measured on a 135M-parameter decoder; its file states how."""
    return read_profile(DATA / "precision" / "amplification_smollm2_135m.json")
