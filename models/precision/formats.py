"""Number formats: what a value costs to store, which array rates multiply it, and what quantising does to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from models.checks import FloatArray, require_finite, require_known
from models.tables import DATA, read_rows

RATE_CLASSES = ("fp32", "tf32", "bf16", "int8", "fp8", "fp6", "fp4")
"""Array rates a design may have, wide first; each is the `<class>_rate_ratio` column of a design."""

_SEARCHED_SHRINK = (1.0, 0.94, 0.88, 0.82, 0.76, 0.7)
"""Fractions of the full range that the scale search of a k-quant tries."""

AnyFloatArray = NDArray[np.floating[Any]]

_SUPER_BLOCK = 256
"""Values of one k-quant super-block, whose fp16 scale refines the integer scales of its blocks."""


@dataclass(frozen=True)
class Format:
    """One row of `formats.csv`; the columns are explained at the top of that file."""

    name: str
    kind: Literal["float", "int"]
    code_bits: int
    exponent_bits: int
    mantissa_bits: int
    max_value: float
    zero_point: bool
    block: int
    """Values that share a scale along the last axis; 0: no scale, -1: one row, -2: the whole tensor."""
    scale: str
    weight_bits: float
    activation_bits: float
    classes: tuple[str, ...]
    """Array rates whose operands contain this format, its own class first, then ever wider ones."""
    dequantisation_ops: float
    gaussian_sqnr_db: float
    source: str

    @property
    def rate_class(self) -> str:
        """Narrowest array rate that multiplies this format as it is."""
        return self.classes[0]

    @property
    def native_class(self) -> str:
        """Array rate whose operand port takes this format without widening; none for integers below 8 bits."""
        return "" if self.kind == "int" and self.code_bits < 8 else self.rate_class

    @property
    def significand_bits(self) -> int:
        """Bits of the significand with the hidden one, or of the integer magnitude and sign."""
        return self.mantissa_bits + 1 if self.kind == "float" else self.code_bits

    @property
    def gaussian_eps(self) -> float:
        """Relative error of a Gaussian row, ||Q(x) - x|| / ||x|| [1]."""
        return float(10.0 ** (-self.gaussian_sqnr_db / 20.0))


def _read_format(row: Mapping[str, str]) -> Format:
    blocks = {"none": 0, "row": -1, "tensor": -2}
    wider = tuple(name for name in row["wider_classes"].split(";") if name)
    for name in (row["rate_class"], *wider):
        require_known("rate class", name, RATE_CLASSES)
    return Format(
        name=row["name"],
        kind="float" if row["kind"] == "float" else "int",
        code_bits=int(row["code_bits"]),
        exponent_bits=int(row["exponent_bits"] or 0),
        mantissa_bits=int(row["mantissa_bits"] or 0),
        max_value=float(row["max_value"]),
        zero_point=row["zero_point"] == "1",
        block=blocks[row["block"]] if row["block"] in blocks else int(row["block"]),
        scale=row["scale"],
        weight_bits=float(row["weight_bits"]),
        activation_bits=float(row["activation_bits"]),
        classes=(row["rate_class"], *wider),
        dequantisation_ops=float(row["dequantisation_ops"]),
        gaussian_sqnr_db=float(row["gaussian_sqnr_db"]),
        source=row["source"],
    )


FORMATS: Mapping[str, Format] = MappingProxyType(
    {row["name"]: _read_format(row) for row in read_rows(DATA / "formats.csv")}
)


def number_format(name: str) -> Format:
    """Return the format called `name`, or raise with the nearest known name."""
    return FORMATS[require_known("number format", name, FORMATS)]


def fake_quantise(values: ArrayLike, number: Format | str) -> FloatArray:
    """
    Return `values` rounded to a format and widened again, as hardware would see them.

    Elements round to nearest, ties to even, and saturate. Scales are the largest magnitude of the block over the
    largest element (absmax); microscaling uses the power of two of the OCP rule, which clips; NVFP4 rounds the
    scale to E4M3 under one fp32 scale per tensor; k-quants round scales and minima to integers
    and search the scale with the least squared error.

    Parameters
    ----------
    values : array of shape (..., n)
        Blocks run along the last axis; a last block may be short. [1]
    number : Format or str
        Target format or its name.

    Returns
    -------
    array of shape (..., n)
        Values on the grid of the format. [1]

    Raises
    ------
    ValueError
        If a value is NaN or infinite.

    References
    ----------
    .. [1] OCP Microscaling Formats (MX) Specification 1.0, 2023, section 6.3.

    Examples
    --------
    The OCP scale of a block whose largest value is 7 is 1, so FP4 clips it to 6.

    >>> fake_quantise([7.0, 1.0, 0.4], "mxfp4").tolist()
    [6.0, 1.0, 0.5]
    """
    target = number_format(number) if isinstance(number, str) else number
    array = require_finite("values to quantise", values, "")
    if array.size == 0 or target.block == 0:
        return round_to_float(array, target)
    flat = np.atleast_1d(array)
    if target.block == -2:
        return _quantise_blocks(flat.reshape(1, -1), target).reshape(array.shape)
    in_supers = target.scale.startswith("k")
    width = flat.shape[-1] if target.block == -1 else target.block if in_supers else min(target.block, flat.shape[-1])
    padding = -flat.shape[-1] % (_SUPER_BLOCK if in_supers else width)
    padded = np.pad(flat, [(0, 0)] * (flat.ndim - 1) + [(0, padding)], mode="edge")
    supers = (_SUPER_BLOCK // width, width) if in_supers else (width,)
    rounded = _quantise_blocks(padded.reshape(*padded.shape[:-1], -1, *supers), target)
    return rounded.reshape(padded.shape)[..., : flat.shape[-1]].reshape(array.shape)


def relative_error(values: AnyFloatArray, quantised: AnyFloatArray) -> float:
    """
    RMS over rows of ||Q(x) - x|| / ||x||: the error a token sees, however large its neighbours are [1].

    One token can be a hundred times the others; a ratio of sums would report that token alone.
    """
    rows = values.reshape(-1, values.shape[-1])
    difference = quantised.reshape(rows.shape) - rows
    energy = np.einsum("ij,ij->i", rows, rows)
    kept = energy > 0
    noise = np.einsum("ij,ij->i", difference, difference)
    return float(np.sqrt(np.mean(noise[kept] / energy[kept]))) if kept.any() else 0.0


def round_to_float(values: FloatArray, target: Format) -> FloatArray:
    """Round to the nearest element of a floating-point format, ties to even, saturating."""
    if target.name == "fp32":
        return np.asarray(np.clip(values, -target.max_value, target.max_value).astype(np.float32), dtype=np.float64)
    lowest_exponent = 2 - 2 ** (target.exponent_bits - 1)
    _, exponent = np.frexp(values)
    step = np.ldexp(1.0, np.maximum(exponent - 1, lowest_exponent) - target.mantissa_bits)
    rounded: FloatArray = np.clip(np.rint(values / step) * step, -target.max_value, target.max_value)
    return rounded


def _quantise_blocks(blocks: FloatArray, target: Format) -> FloatArray:
    """Quantise blocks along the last axis, each with its own scale."""
    if target.scale.startswith("k"):
        return _quantise_with_searched_scale(blocks, target)
    if target.zero_point:
        return _quantise_with_zero_point(blocks, target)
    return _on_scale(blocks, _block_scale(np.max(np.abs(blocks), axis=-1, keepdims=True), target), target)


def _on_scale(blocks: FloatArray, scale: FloatArray, target: Format) -> FloatArray:
    """Round to multiples of a scale, or to elements of a small float times it."""
    safe = np.where(scale > 0, scale, 1.0)
    if target.kind == "int":
        codes = np.clip(np.rint(blocks / safe), -target.max_value, target.max_value)
    else:
        codes = round_to_float(blocks / safe, target)
    return codes * np.where(scale > 0, scale, 0.0)


def _quantise_with_searched_scale(blocks: FloatArray, target: Format) -> FloatArray:
    """Of several shrunken scales take the one with the least squared error, block by block, as k-quants do."""
    best = np.zeros_like(blocks)
    least = np.full((*blocks.shape[:-1], 1), np.inf)
    for shrink in _SEARCHED_SHRINK:
        if target.zero_point:
            rounded = _quantise_with_zero_point(blocks, target, shrink)
        else:
            amax = np.max(np.abs(blocks), axis=-1, keepdims=True)
            rounded = _on_scale(blocks, _block_scale(amax * shrink, target), target)
        error = np.sum((rounded - blocks) ** 2, axis=-1, keepdims=True)
        better = error < least
        best = np.where(better, rounded, best)
        least = np.where(better, error, least)
    return best


def _block_scale(amax: FloatArray, target: Format) -> FloatArray:
    if target.scale == "e8m0":
        largest_exponent = np.floor(np.log2(target.max_value))
        exponent = np.floor(np.log2(np.where(amax > 0, amax, 1.0))) - largest_exponent
        return np.where(amax > 0, np.exp2(np.clip(exponent, -127, 127)), 0.0)
    if target.scale == "e4m3":
        e4m3 = number_format("fp8_e4m3")
        tensor_scale = float(amax.max()) / (target.max_value * e4m3.max_value) or 1.0
        return round_to_float(amax / target.max_value / tensor_scale, e4m3) * tensor_scale
    if target.scale.startswith("k"):
        return _integer_scale(amax / target.max_value, int(target.scale[1:]) - 1)
    return _stored_scale(amax / target.max_value, target.scale)


def _stored_scale(scale: FloatArray, kind: str) -> FloatArray:
    """Round a scale to the format it is stored in; fp16 keeps its value where it would leave the range."""
    if kind != "fp16":
        return scale
    in_range = (scale > 2.0**-14) & (scale < FORMATS["fp16"].max_value)
    return np.where(in_range, round_to_float(scale, FORMATS["fp16"]), scale)


def _integer_scale(scale: FloatArray, bits: int) -> FloatArray:
    """Round the scales of a super-block to integers of `bits` bits under the largest of them (axis -2)."""
    top = scale.max(axis=-2, keepdims=True) / (2.0**bits - 1.0)
    safe = np.where(top > 0, top, 1.0)
    rounded: FloatArray = np.rint(scale / safe) * top
    return rounded


def _quantise_with_zero_point(blocks: FloatArray, target: Format, shrink: float = 1.0) -> FloatArray:
    """Codes 0..2^b - 1 between the smallest and the largest value of the block, or a shrunken part of that range."""
    low = shrink * np.minimum(blocks.min(axis=-1, keepdims=True), 0.0)
    scale = (shrink * np.maximum(blocks.max(axis=-1, keepdims=True), 0.0) - low) / target.max_value
    if target.scale.startswith("k"):
        bits = int(target.scale[1:])
        scale, low = _integer_scale(scale, bits), -_integer_scale(-low, bits)
    safe = np.where(scale > 0, scale, 1.0)
    rounded: FloatArray = np.clip(np.rint((blocks - low) / safe), 0, target.max_value) * scale + low
    return rounded
