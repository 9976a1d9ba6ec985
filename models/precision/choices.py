"""Groups of modules that take a format together, and the options of each that no other option beats."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from models.checks import FloatArray, require_known
from models.precision.error import depth_factor, error_terms, squared_error
from models.precision.formats import RATE_CLASSES, number_format
from models.precision.mix import PrecisionMix, precision_mix
from models.precision.profile import AmplificationProfile, default_profile
from models.precision.promotion import class_code, common_classes, contains, needs_widening
from models.tables import DATA, constants, read_rows

if TYPE_CHECKING:
    from models.architectures.lowered import LoweredNetwork

_LINEAR_GROUPS = {
    "attention_input": ("attention_qkv", "attention_q_a", "attention_q_b", "attention_kv_a", "attention_kv_b"),
    "attention_output": ("attention_output",),
    "ffn_up": ("ffn_up", "shared_expert_up"),
    "ffn_down": ("ffn_down", "shared_expert_down"),
    "expert_up": ("expert_up",),
    "expert_down": ("expert_down",),
}
_VECTOR_GROUPS = ("norm", "ffn_hidden", "residual", "scores")


@dataclass(frozen=True)
class Choice:
    """One option of a group: the pair of formats, where it runs and what it costs in quality."""

    stationary: str
    moving: str
    compute_class: str
    """Narrowest native class that contains both."""
    dequant_ops: float
    """Vector operations per stationary element."""
    kl_nats: float


@dataclass(frozen=True)
class ChoiceGroup:
    """Modules that share a pair of formats, with their undominated options."""

    name: str
    kind: str
    """linear, head, stored, cache or vector: the group of `candidates.csv`."""
    modules: tuple[str, ...]
    choices: tuple[Choice, ...]

    @property
    def kl_nats(self) -> FloatArray:
        """Error of each option, shape (n_options,) [nat/token]."""
        return np.array([choice.kl_nats for choice in self.choices])


def choice_groups(
    network: LoweredNetwork | int,
    native_classes: Collection[str],
    *,
    kappa: float = 1.0,
    profile: AmplificationProfile | None = None,
) -> tuple[ChoiceGroup, ...]:
    """
    Return the groups of a network with the options that arrays of `native_classes` can run.

    An option drops out when another of its group stores no more bits on either side, runs in the same or a narrower
    class, needs no more widening and adds no more error: no design of this class of arrays could prefer it.

    Raises
    ------
    ValueError
        If no candidate of some group runs on these arrays.
    """
    for name in native_classes:
        require_known("rate class", name, RATE_CLASSES)
    measured = profile or default_profile()
    scale = kappa * constants("precision")["kl_per_squared_error_nats"]
    terms = error_terms(network)
    present = {term.module for term in terms}
    groups = []
    for name, kind, modules in _group_rows(network):
        used = tuple(module for module in modules if module in present)
        if not used:
            continue
        options = []
        for stationary, moving in _candidates(kind):
            runs = _native_class(kind, stationary, moving, native_classes)
            if runs is None:
                continue
            formats = {"weight": stationary, "activation": moving}
            squared = 0.0
            for term in terms:
                number = _format_of(term.site.operand, term.module, name, kind, used, formats)
                if number is not None:
                    squared += squared_error(term, {number: 1.0}, measured, depth_factor(network, measured))
            widening = _widening(stationary, runs, native_classes)
            options.append(Choice(stationary, moving, runs, widening, scale * squared))
        if not options:
            raise ValueError(
                f"no format of {name} runs on arrays with {', '.join(sorted(native_classes)) or 'no rates'}"
            )
        groups.append(ChoiceGroup(name, kind, used, tuple(_undominated(options))))
    return tuple(groups)


def choice_in(mix: PrecisionMix, group: ChoiceGroup, native: Collection[str]) -> Choice:
    """
    Return what a mix chooses in a group as arrays of `native` run it, its own error left out.

    A class that no native one contains counts as the widest native one; blends of a site count as the format below.
    """
    stationary, moving = _pair(mix, group)
    shared = common_classes(number_format(stationary), number_format(moving))
    widest = next(name for name in RATE_CLASSES if name in native)
    runs = "fp32" if group.kind == "vector" else next((name for name in shared if name in native), widest)
    return Choice(stationary, moving, runs, _widening(stationary, runs, native), 0.0)


def _pair(mix: PrecisionMix, group: ChoiceGroup) -> tuple[str, str]:
    """Stationary and moving format of a group under a mix."""
    first = group.modules[0]
    if group.kind == "cache":
        keys = mix.key_format, mix.vector_format["query"]
        return (mix.value_format, mix.vector_format["probabilities"]) if group.name == "value" else keys
    if group.kind == "vector":
        return mix.vector_format[first], mix.vector_format[first]
    return mix.weight_format[first], mix.activation_format[first]


def mix_of(groups: Sequence[ChoiceGroup], picked: Sequence[int], name: str = "") -> PrecisionMix:
    """Return the mix that takes option `picked[i]` of group i; the name says what differs from bf16."""
    weights: dict[str, str] = {}
    activations: dict[str, str] = {}
    vectors: dict[str, str] = {}
    cached = {"key": "bf16", "value": "bf16"}
    labels = []
    for group, index in zip(groups, picked, strict=True):
        choice = group.choices[index]
        if group.kind == "cache":
            cached |= {module: choice.stationary for module in group.modules if module in cached}
            vectors |= {module: choice.moving for module in group.modules if module not in cached}
        elif group.kind == "vector":
            vectors |= dict.fromkeys(group.modules, choice.stationary)
        else:
            weights |= dict.fromkeys(group.modules, choice.stationary)
            activations |= dict.fromkeys(group.modules, choice.moving)
        if (choice.stationary, choice.moving) != ("bf16", "bf16"):
            pair = choice.stationary if choice.stationary == choice.moving else f"{choice.stationary}*{choice.moving}"
            labels.append(f"{group.name}={pair}")
    return precision_mix(
        name or ",".join(labels) or "bf16",
        weights=weights,
        activations=activations,
        kv=(cached["key"], cached["value"]),
        vectors=vectors,
        source="search over mixes",
    )


def _group_rows(network: LoweredNetwork | int) -> list[tuple[str, str, tuple[str, ...]]]:
    """Name, kind and modules of every group; a latent cache serves keys and values, so these take one format."""
    latent = not isinstance(network, int) and any(attention.shared_latent for attention in network.attentions)
    rows = [(name, "linear", modules) for name, modules in _LINEAR_GROUPS.items()]
    rows += [("output_head", "head", ("output_head",)), ("embedding", "stored", ("embedding",))]
    if latent:
        rows += [("latent", "cache", ("key", "query", "value", "probabilities"))]
    else:
        rows += [("key", "cache", ("key", "query")), ("value", "cache", ("value", "probabilities"))]
    return rows + [(name, "vector", (name,)) for name in _VECTOR_GROUPS]


def _candidates(kind: str) -> list[tuple[str, str]]:
    rows = read_rows(DATA / "precision" / "candidates.csv")
    return [(row["stationary"], row["moving"]) for row in rows if row["group"] == kind]


def _format_of(
    operand: str, module: str, group: str, kind: str, modules: tuple[str, ...], formats: Mapping[str, str]
) -> str | None:
    """Format that a group's option gives to a term, None where the term is another group's."""
    if module not in modules:
        return None
    if kind == "cache":
        return formats["weight"] if operand == "cache" else formats["activation"]
    if kind == "vector":
        return formats["weight"] if operand == "vector" else None
    return formats.get(operand)


def _native_class(kind: str, stationary: str, moving: str, native: Collection[str]) -> str | None:
    """
    Array class that an option runs in, None where there is none.

    The moving operand is wide or the class's own: one that had to be rounded and then widened again before the
    product would pay twice for nothing. Vector units run at their own rate whatever the format.
    """
    if kind == "vector":
        return "fp32"
    shared = common_classes(number_format(stationary), number_format(moving))
    runs = next((name for name in shared if name in native), None)
    wide = number_format(moving).code_bits >= 16
    return runs if wide or number_format(moving).native_class == runs else None


def _widening(stationary: str, runs: str, native: Collection[str]) -> float:
    number = number_format(stationary)
    classes = class_code(number.native_class), class_code(number.rate_class), class_code(runs)
    return number.dequantisation_ops if needs_widening(*classes, number.rate_class in native) else 0.0


def _undominated(options: Sequence[Choice]) -> list[Choice]:
    kept: list[Choice] = []
    for option in sorted(options, key=lambda o: (o.kl_nats, number_format(o.stationary).weight_bits)):
        if not any(_dominates(other, option) for other in kept):
            kept.append(option)
    return kept


def _dominates(first: Choice, second: Choice) -> bool:
    bits = [
        (number_format(c.stationary).weight_bits, number_format(c.moving).activation_bits, c.dequant_ops)
        for c in (first, second)
    ]
    no_more = all(a <= b for a, b in zip(*bits, strict=True))
    return no_more and first.kl_nats <= second.kl_nats and contains(second.compute_class, first.compute_class)
