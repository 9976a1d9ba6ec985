"""Constants of operator times as a study uses them: the global ones, times the ratios of a calibration profile."""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from models.checks import require_known, require_positive
from models.operators.gemm_constants import GemmConstants, gemm_constants_from
from models.tables import DATA, constants, read_rows

MOST_CONSTANTS = 8
"""Constants that a profile may hold of one family."""


@dataclass(frozen=True)
class CalibratedConstant:
    """One constant of a profile: which global constants it multiplies, and the range a fit may give it."""

    family: str
    name: str
    scales: tuple[str, ...]
    """Globs of the names it multiplies in the constants files of its family."""
    low: float
    high: float
    meaning: str


@functools.cache
def calibrated_constants() -> Mapping[str, Mapping[str, CalibratedConstant]]:
    """Return every constant that a profile may hold, by family and name; from `data/calibrated_constants.csv`."""
    found: dict[str, dict[str, CalibratedConstant]] = {}
    for row in read_rows(DATA / "calibrated_constants.csv"):
        found.setdefault(row["family"], {})[row["name"]] = CalibratedConstant(
            row["family"], row["name"], tuple(row["scales"].split(";")), float(row["low"]), float(row["high"]),
            row["meaning"],
        )  # fmt: skip
    return found


FILES_OF_FAMILY: Mapping[str, tuple[str, ...]] = {
    "gemm": ("gemm",),
    "quantise": ("gemm",),
    "attention_prefill": ("attention", "attention_sources"),
    "attention_decode": ("attention", "attention_sources"),
    "norm": ("elementwise", "elementwise_sources"),
    "activation": ("elementwise", "elementwise_sources"),
    "softmax": ("elementwise", "elementwise_sources"),
    "rope": ("elementwise", "elementwise_sources"),
    "residual": ("elementwise", "elementwise_sources"),
    "embedding": ("elementwise", "elementwise_sources"),
    "experts": ("moe", "moe_sources"),
    "collectives": ("collective", "collective_sources"),
}
"""Family of a profile -> files of the constants that it scales."""

FAMILY_OF_VECTOR: Mapping[str, str] = {
    "norm": "norm", "layer_norm": "norm", "router": "norm", "activation": "activation", "softmax": "softmax",
    "rope": "rope", "residual": "residual", "embedding": "embedding", "quantise": "rope", "dequantise": "rope",
}  # fmt: skip
"""Row-wise operator -> family whose ratios it takes."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """
    Positive ratios by family and name, fixed for a whole study; none leave the global constants as they are.

    A ratio multiplies constants of the operator model, so every term stays monotone in the design and bounds on boxes
    of designs stay valid. A scaled share (`_fraction`) never exceeds 1, so no operator beats its roofline.
    """

    ratios: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    most_constants: int = MOST_CONSTANTS
    """Of one family; a fit tries more before it keeps the few that matter."""

    def __post_init__(self) -> None:
        """Refuse unknown names, ratios out of their range, and more constants than a family may hold."""
        known = calibrated_constants()
        for family, values in self.ratios.items():
            require_known("operator family", family, known)
            if len(values) > self.most_constants:
                raise ValueError(f"{family} must hold at most {self.most_constants} constants, got {len(values)}")
            for name, ratio in values.items():
                require_known(f"constant of {family}", name, known[family])
                _require_in_range(known[family][name], ratio)

    def constants(self, family: str) -> Mapping[str, float]:
        """Return all constants of a family as calibrated, sources of data included."""
        if family not in self._scaled:
            merged = {name: value for file in FILES_OF_FAMILY[family] for name, value in constants(file).items()}
            self._scaled[family] = scaled_constants(merged, family, self.ratios.get(family, {}))
        return self._scaled[family]

    def vector(self, op: str) -> Mapping[str, float]:
        """Return the constants of a row-wise operator."""
        return self.constants(FAMILY_OF_VECTOR[op])

    @functools.cached_property
    def gemm(self) -> GemmConstants:
        """Constants of GEMM time as one record."""
        return gemm_constants_from(self.constants("gemm"))

    @functools.cached_property
    def _scaled(self) -> dict[str, Mapping[str, float]]:
        return {}


UNCALIBRATED = Calibration()


def scaled_constants(values: Mapping[str, float], family: str, ratios: Mapping[str, float]) -> dict[str, float]:
    """Return the constants with the ratios of one family applied, shares at most 1."""
    scaled = dict(values)
    for name, ratio in ratios.items():
        for glob in calibrated_constants()[family][name].scales:
            for each in fnmatch.filter(values, glob):
                value = scaled[each] * ratio
                scaled[each] = min(value, 1.0) if each.endswith("_fraction") else value
    return scaled


def _require_in_range(constant: CalibratedConstant, ratio: float) -> None:
    require_positive(f"{constant.family}.{constant.name}", ratio, "1")
    if not constant.low * (1 - 1e-6) <= ratio <= constant.high * (1 + 1e-6):
        raise ValueError(
            f"{constant.family}.{constant.name} must be between {constant.low:g} and {constant.high:g}, got {ratio:g}"
        )
