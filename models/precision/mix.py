"""Which module of a network runs in which format, and what that means for bytes, rates and widening work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from models.checks import FloatArray, require_known
from models.precision.formats import RATE_CLASSES, Format, number_format
from models.precision.promotion import class_code, common_classes, needs_widening
from models.tables import DATA, constants, read_json

LINEAR_MODULES = (
    "attention_qkv", "attention_output", "attention_q_a", "attention_q_b", "attention_kv_a", "attention_kv_b",
    "ffn_up", "ffn_down", "expert_up", "expert_down", "shared_expert_up", "shared_expert_down",
)  # fmt: skip
"""Matrix products inside the layers; a recipe that says `linears` means all of them."""

STATE_MODULES = ("state_in", "state_out")
"""Projections around a recurrent state: their error was never measured, so no group of a recipe holds them."""

GEMM_MODULES = (*LINEAR_MODULES, *STATE_MODULES, "moe_gate", "output_head", "embedding", "patch_embedding")
"""Modules that own weights. `embedding` is looked up, never multiplied, so only its storage counts."""

VECTOR_MODULES = ("query", "scores", "probabilities", "norm", "ffn_hidden", "residual")
"""Values between the matrix products, whose format is the vector units' and their traffic's."""

ATTENTION_MODULES = ("attention_scores", "attention_context")
"""Products with the cache: query times key, probabilities times value."""

_GATE_SIGNIFICAND_BITS = 8
"""Significand of bf16: a routing gate below it flips experts, which no additive budget describes."""

_BLEND_SITES = ("w_v", "w_o", "w_gate", "w_up", "w_down")
"""Weight sites that a mix may split over several formats."""


@dataclass(frozen=True)
class TrainingFormats:
    """Formats of what only training keeps: the operand of the backward GEMMs and the optimiser state."""

    gradient: str
    gradient_storage: str
    master_weight: str
    first_moment: str
    second_moment: str

    @property
    def state_bytes_per_parameter(self) -> float:
        """Gradient, master weight and both moments [B]; the weights of the GEMMs come on top."""
        stored = (self.gradient_storage, self.master_weight, self.first_moment, self.second_moment)
        return sum(number_format(name).weight_bits for name in stored) / 8.0


@dataclass(frozen=True)
class PrecisionMix:
    """
    One assignment of formats to modules; build it with `precision_mix` or take a named one from `RECIPES`.

    `blends` refines a weight site inside a module (`w_v` of `attention_qkv`) to several formats, each for a share
    of the layers, as the k-quant recipes do.
    """

    name: str
    weight_format: Mapping[str, str] = field(hash=False)
    activation_format: Mapping[str, str] = field(hash=False)
    key_format: str
    value_format: str
    vector_format: Mapping[str, str] = field(hash=False)
    blends: Mapping[str, Mapping[str, float]] = field(hash=False)
    training: TrainingFormats | None = None
    source: str = ""

    def weight_bits(self, module: str) -> float:
        """Stored bits per weight of a module with scales, blends of its sites included [bit]."""
        base = number_format(self.weight_format[module]).weight_bits
        shares = _site_shares(module)
        return base + sum(shares[s] * (_blend_bits(b) - base) for s, b in self.blends.items() if s in shares)

    def activation_bits(self, module: str) -> float:
        """Stored bits per activation that enters a module, with scales [bit]."""
        return number_format(self.activation_format[module]).activation_bits

    def vector_bits(self, module: str) -> float:
        """Stored bits per value of a vector module such as `residual` or `norm` [bit]."""
        return number_format(self.vector_format[module]).activation_bits

    @property
    def key_bits(self) -> float:
        """Stored bits per cached key element, with scales [bit]."""
        return number_format(self.key_format).activation_bits

    @property
    def value_bits(self) -> float:
        """Stored bits per cached value element, with scales [bit]."""
        return number_format(self.value_format).activation_bits

    @property
    def kv_bits(self) -> float:
        """Mean stored bits per element of the KV cache [bit]."""
        return 0.5 * (self.key_bits + self.value_bits)

    def operand_formats(self, module: str) -> tuple[Format, Format]:
        """Stationary and moving operand of a module: weight and activation, or cache and what meets it."""
        if module == "attention_scores":
            return number_format(self.key_format), number_format(self.vector_format["query"])
        if module == "attention_context":
            return number_format(self.value_format), number_format(self.vector_format["probabilities"])
        return number_format(self.weight_format[module]), number_format(self.activation_format[module])

    def compute_class(self, module: str) -> str:
        """Narrowest array rate that contains both operands, were every rate native."""
        return common_classes(*self.operand_formats(module))[0]

    def quantise_ops_per_activation(self, module: str) -> float:
        """Vector operations that scale and round one activation on the way in; none for 16 bits and wider [1]."""
        return rounding_ops(self.operand_formats(module)[1])


def rounding_ops(number: Format) -> float:
    """Vector operations that scale and round one value to a format; none for 16 bits and wider [1]."""
    return constants("precision")["online_quantisation_ops_per_element"] if number.code_bits < 16 else 0.0


def precision_mix(
    name: str,
    *,
    weights: Mapping[str, str] | None = None,
    activations: Mapping[str, str] | None = None,
    kv: tuple[str, str] = ("bf16", "bf16"),
    vectors: Mapping[str, str] | None = None,
    blends: Mapping[str, Mapping[str, float]] | None = None,
    training: TrainingFormats | None = None,
    source: str = "",
) -> PrecisionMix:
    """
    Return a mix that is bf16 except where stated; `linears` and `all` stand for groups of modules.

    Raises
    ------
    UnknownNameError
        If a module or format is unknown.
    ValueError
        If the expert gate is below bf16, or the shares of a blend do not add to one.

    Examples
    --------
    >>> precision_mix("kv", kv=("fp8_e4m3", "nvfp4")).kv_bits
    6.254
    """
    mix = PrecisionMix(
        name=name,
        weight_format=_filled(GEMM_MODULES, weights or {}),
        activation_format=_filled(GEMM_MODULES, activations or {}),
        key_format=number_format(kv[0]).name,
        value_format=number_format(kv[1]).name,
        vector_format=_filled(VECTOR_MODULES, vectors or {}),
        blends=MappingProxyType({s: MappingProxyType(dict(b)) for s, b in (blends or {}).items()}),
        training=training,
        source=source,
    )
    _require_wide_gate(mix)
    _require_whole_blends(mix)
    return mix


def compute_rate_ratio(mix: PrecisionMix, module: str, designs: object) -> FloatArray:
    """
    Return the rate at which the arrays of each design run a module, over bf16.

    A machine is a set of native pairs with a rate each; an operation is promoted to the fastest native class that
    contains both operands.

    Parameters
    ----------
    mix : PrecisionMix
    module : str
        One of `GEMM_MODULES` or `ATTENTION_MODULES`.
    designs : DesignBatch
        Its columns `<class>_rate_ratio` of shape (n_designs,) are read: a rate over bf16, 0 where not native.

    Returns
    -------
    array of shape (n_designs,)
        Rate over bf16; 0 where no native class contains both operands. [1]
    """
    return _fastest(mix, module, designs)[0]


def dequantisation_ops(mix: PrecisionMix, module: str, designs: object) -> FloatArray:
    """
    Return the vector operations that widen one weight or cache element on each design.

    None where the class that runs the module is the format's own, or where block-scaled 4- and 6-bit operands meet
    an fp8 array that runs one of those classes too: such arrays take any mixture of them.

    Returns
    -------
    array of shape (n_designs,)
        Operations per element of the stationary operand. [1]
    """
    stationary, _ = mix.operand_formats(module)
    _, chosen = _fastest(mix, module, designs)
    codes = np.array([class_code(name) for name in common_classes(*mix.operand_formats(module))])
    widened = needs_widening(
        class_code(stationary.native_class), class_code(stationary.rate_class), codes[chosen],
        _rate(designs, stationary.rate_class) > 0,
    )  # fmt: skip
    return np.where(widened, stationary.dequantisation_ops, 0.0)


def _fastest(mix: PrecisionMix, module: str, designs: object) -> tuple[FloatArray, np.ndarray]:
    """Best rate of each design and the index of its class among the common ones (narrowest on a tie)."""
    classes = common_classes(*mix.operand_formats(module))
    rates = np.stack([_rate(designs, name) for name in classes])
    chosen = rates.argmax(axis=0)
    return rates.max(axis=0), chosen


def _rate(designs: object, rate_class: str) -> FloatArray:
    return np.asarray(getattr(designs, f"{require_known('rate class', rate_class, RATE_CLASSES)}_rate_ratio"))


def _filled(modules: tuple[str, ...], stated: Mapping[str, str]) -> Mapping[str, str]:
    """bf16 for every module, then groups, then single modules."""
    groups = {"linears": LINEAR_MODULES, "all": tuple(m for m in modules if m not in ("moe_gate", *STATE_MODULES))}
    filled = dict.fromkeys(modules, "bf16")
    for key in sorted(stated, key=lambda key: (key not in groups, key != "all")):
        require_known("module", key, (*groups, *modules))
        filled |= dict.fromkeys((m for m in groups.get(key, (key,)) if m in modules), number_format(stated[key]).name)
    return MappingProxyType(filled)


def _require_wide_gate(mix: PrecisionMix) -> None:
    for operand, chosen in (("weight", mix.weight_format), ("activation", mix.activation_format)):
        number = number_format(chosen["moe_gate"])
        if number.kind != "float" or number.significand_bits < _GATE_SIGNIFICAND_BITS:
            raise ValueError(f"moe_gate {operand} format must be at least bf16, got {number.name} in mix '{mix.name}'")


def _require_whole_blends(mix: PrecisionMix) -> None:
    for site, blend in mix.blends.items():
        require_known("weight site", site, _BLEND_SITES)
        for name in blend:
            number_format(name)
        if abs(sum(blend.values()) - 1.0) > 1e-9 or min(blend.values()) < 0:
            raise ValueError(f"shares of blend {site} must add to 1, got {dict(blend)} in mix '{mix.name}'")


def _site_shares(module: str) -> Mapping[str, float]:
    """Share of a module's weights that each of its sites holds."""
    value_share = constants("precision")["value_share_of_qkv_fraction"]
    shares = {"attention_qkv": {"w_v": value_share}, "ffn_up": {"w_gate": 0.5, "w_up": 0.5}}
    single = {"ffn_down": {"w_down": 1.0}, "attention_output": {"w_o": 1.0}}
    ffn = {"expert_up": "ffn_up", "shared_expert_up": "ffn_up", "expert_down": "ffn_down"}
    alias = ffn.get(module, "ffn_down" if module == "shared_expert_down" else module)
    return (shares | single).get(alias, {})


def _blend_bits(blend: Mapping[str, float]) -> float:
    return sum(share * number_format(name).weight_bits for name, share in blend.items())


def _read_recipe(name: str, entry: Mapping[str, object]) -> PrecisionMix:
    fields = {key: value for key, value in entry.items() if key not in ("kv", "training")}
    training = entry.get("training")
    return precision_mix(
        name,
        kv=tuple(entry.get("kv", ("bf16", "bf16"))),  # type: ignore[arg-type]
        training=TrainingFormats(**training) if isinstance(training, dict) else None,
        **fields,  # type: ignore[arg-type]
    )


RECIPES: Mapping[str, PrecisionMix] = MappingProxyType(
    {n: _read_recipe(n, e) for n, e in read_json(DATA / "precision" / "recipes.json")["recipes"].items()}
)


def recipe(name: str) -> PrecisionMix:
    """Return the named precision mix, or raise with the nearest known name."""
    return RECIPES[require_known("precision recipe", name, RECIPES)]
