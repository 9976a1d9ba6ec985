"""What a precision mix means for the columns of operator terms: bytes, rate classes and conversions, mix by mix."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from models.checks import FloatArray
from models.precision.formats import Format, number_format
from models.precision.mix import PrecisionMix, rounding_ops
from models.precision.promotion import class_code

Columns = dict[str, FloatArray]
"""Column name -> one value per mix."""

VECTOR_MODULE_OF = {"norm": "norm", "residual": "residual", "activation": "ffn_hidden"}
"""Elementwise operators whose traffic is in the format of a vector module; the others keep 16 bit."""

WIDE_BYTES = 2.0
"""Sixteen bits."""


def linear_columns(mixes: Sequence[PrecisionMix], module: str) -> Columns:
    """Columns of a matrix product with stored weights, arrays of shape (n_mixes,)."""
    weights = [number_format(mix.weight_format[module]) for mix in mixes]
    return {
        "weight_bytes": _each(mixes, lambda mix: mix.weight_bits(module) / 8.0),
        "input_bytes": _each(mixes, lambda mix: mix.activation_bits(module) / 8.0),
        "rate_class": _each(mixes, lambda mix: class_code(mix.compute_class(module))),
        "dequant_ops": np.array([each.dequantisation_ops for each in weights]),
        "weight_native": _native(weights),
        "weight_class": _class(weights),
        "quantise_ops": _each(mixes, lambda mix: mix.quantise_ops_per_activation(module)),
    }


def expert_columns(mixes: Sequence[PrecisionMix], up: str, down: str, gated: bool) -> Columns:
    """Columns of routed MLPs, whose two matrices may differ in format, arrays of shape (n_mixes,)."""
    sides = {"up": linear_columns(mixes, up), "down": linear_columns(mixes, down)}
    share = 2.0 / 3.0 if gated else 0.5
    columns = {
        "weight_bytes": share * sides["up"]["weight_bytes"] + (1.0 - share) * sides["down"]["weight_bytes"],
        "rate_class": sides["up"]["rate_class"],
        "down_class": sides["down"]["rate_class"],
    }
    for side, of_side in sides.items():
        columns[f"{side}_native"] = of_side["weight_native"]
        for name in ("weight_class", "dequant_ops", "quantise_ops"):
            columns[f"{side}_{name}"] = of_side[name]
    return columns


def attention_columns(mixes: Sequence[PrecisionMix]) -> Columns:
    """
    Columns of attention, arrays of shape (n_mixes,).

    `key_ops` and `value_ops` widen one cached element where it must be; `query_ops`, `probability_ops` and
    `cache_ops` round one element of query, one score (as such and as a probability), and one new cache element.
    """
    keys, values = ([number_format(name) for name in names] for names in _cache_formats(mixes))
    return {
        "kv_bytes_per_element": _each(mixes, lambda mix: mix.kv_bits / 8.0),
        "scores_class": _each(mixes, lambda mix: class_code(mix.compute_class("attention_scores"))),
        "context_class": _each(mixes, lambda mix: class_code(mix.compute_class("attention_context"))),
        "key_native": _native(keys),
        "key_class": _class(keys),
        "value_native": _native(values),
        "value_class": _class(values),
        "key_ops": np.array([each.dequantisation_ops for each in keys]),
        "value_ops": np.array([each.dequantisation_ops for each in values]),
        "query_ops": _each(mixes, lambda mix: mix.quantise_ops_per_activation("attention_scores")),
        "probability_ops": _each(
            mixes,
            lambda mix: mix.quantise_ops_per_activation("attention_context") + _vector_rounding(mix, "scores"),
        ),
        "cache_ops": np.array([0.5 * (rounding_ops(k) + rounding_ops(v)) for k, v in zip(keys, values, strict=True)]),
    }


def vector_columns(mixes: Sequence[PrecisionMix], op: str) -> Columns:
    """Bytes of an element that an elementwise operator moves and operations that round it, shape (n_mixes,)."""
    module = VECTOR_MODULE_OF.get(op)
    if module is None:
        return {"element_bytes": np.full(len(mixes), WIDE_BYTES), "round_ops": np.zeros(len(mixes))}
    return {
        "element_bytes": _each(mixes, lambda mix: mix.vector_bits(module) / 8.0),
        "round_ops": _each(mixes, lambda mix: _vector_rounding(mix, module)),
    }


def _cache_formats(mixes: Sequence[PrecisionMix]) -> tuple[list[str], list[str]]:
    return [mix.key_format for mix in mixes], [mix.value_format for mix in mixes]


def _vector_rounding(mix: PrecisionMix, module: str) -> float:
    return rounding_ops(number_format(mix.vector_format[module]))


def _each(mixes: Sequence[PrecisionMix], value: Callable[[PrecisionMix], float]) -> FloatArray:
    return np.array([value(mix) for mix in mixes], dtype=np.float64)


def _native(formats: Sequence[Format]) -> FloatArray:
    return np.array([class_code(each.native_class) for each in formats], dtype=np.float64)


def _class(formats: Sequence[Format]) -> FloatArray:
    return np.array([class_code(each.rate_class) for each in formats], dtype=np.float64)
