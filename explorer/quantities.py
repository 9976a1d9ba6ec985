"""Quantities as people write them ("600 mm2", "192 MiB", "50 ms") -> numbers in the one unit used inside."""

from __future__ import annotations

import functools
import math
import re
from typing import Annotated, Any

import pint
from pydantic import BeforeValidator, Field, PlainSerializer

_AREA = re.compile(r"(?<![A-Za-zµ])([munpckµ]?m)([23])\b")
_NUMBER = r"[-+]?((\d+\.?\d*|\.\d+)([eE][-+]?\d{1,3})?|nan|inf)"
_UNIT = r"[A-Za-zµ]+(\^?[23])?"
_WRITTEN = re.compile(rf"{_NUMBER}\s*({_UNIT})?(\s*/\s*{_UNIT})*")
_LONGEST = 40


@functools.cache
def unit_registry() -> pint.UnitRegistry[float]:
    """The registry of all units, with currency."""
    registry: pint.UnitRegistry[float] = pint.UnitRegistry()
    registry.define("usd = [currency] = USD")
    return registry


def parse_quantity(value: Any, unit: str, example: str) -> float:
    """
    Return a quantity in `unit`.

    Raises
    ------
    ValueError
        If the value carries no unit, another dimension, or is no finite number.

    Examples
    --------
    >>> parse_quantity("50 ms", "s", "50 ms")
    0.05
    >>> parse_quantity("6 cm2", "mm**2", "600 mm2")
    600.0
    """
    if isinstance(value, bool) or not isinstance(value, str):
        raise ValueError(f"must carry a unit, such as '{example}', got {value!r}")
    if len(value) > _LONGEST or not _WRITTEN.fullmatch(value.strip()):
        raise ValueError(f"must be a number with a unit, such as '{example}', got {value[:_LONGEST]!r}")
    registry = unit_registry()
    try:
        quantity: Any = registry.Quantity(_AREA.sub(r"\1**\2", value.strip()))
    except Exception as error:
        raise ValueError(f"must be a number with a unit, such as '{example}', got {value!r}") from error
    if quantity.unitless and unit:
        raise ValueError(f"must carry a unit, such as '{example}', got {value!r}")
    try:
        number = float(quantity.to(unit).magnitude)
    except pint.DimensionalityError as error:
        raise ValueError(f"must have the dimension of '{example}', got {value!r}") from error
    except (TypeError, ValueError) as error:
        raise ValueError(f"must be a number with a unit, such as '{example}', got {value!r}") from error
    if not math.isfinite(number):
        raise ValueError(f"must be finite, got {value!r}")
    return number


def write_quantity(value: float, unit: str) -> str:
    """
    Return a quantity as `parse_quantity` reads it back, to the last digit.

    Examples
    --------
    >>> write_quantity(600.0, "mm**2"), write_quantity(0.05, "s"), write_quantity(20.0, "1/s")
    ('600 mm2', '0.05 s', '20 /s')
    """
    number = repr(float(value)).removesuffix(".0")
    return f"{number} {unit.replace('**', '').removeprefix('1')}"


def _quantity(unit: str, example: str, description: str) -> Any:
    return Annotated[
        float,
        BeforeValidator(lambda value: parse_quantity(value, unit, example), json_schema_input_type=str),
        PlainSerializer(lambda value: write_quantity(value, unit), return_type=str, when_used="json"),
        Field(gt=0, description=f"{description}, a number with a unit such as '{example}'", examples=[example]),
    ]


Area = _quantity("mm**2", "600 mm2", "area")
Power = _quantity("W", "500 W", "power")
Duration = _quantity("s", "50 ms", "duration")
Rate = _quantity("1/s", "20 / s", "rate of requests")
Money = _quantity("usd", "4000 USD", "price")
Size = _quantity("byte", "192 MiB", "amount of data")
Bandwidth = _quantity("byte/s", "3.35 TB/s", "bandwidth, one direction")
Frequency = _quantity("Hz", "1.6 GHz", "clock")
