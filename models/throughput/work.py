"""A fixed piece of work, compiled: its program over alternatives and what counts as a unit of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from models.checks import FloatArray, IntArray
from models.evaluation import alternative_windows
from models.operators.program_traits import used_links
from models.operators.step import StepProgram
from models.precision.mix import PrecisionMix
from models.serving.mix_columns import linear_columns
from models.serving.scenario import System
from models.throughput.scenario import FixedWork


@dataclass(frozen=True)
class CompiledWork:
    """
    One piece of work as a program of one chip; arrays of shape (n_alternatives,).

    While a chip runs the program once, the system completes `units_per_step` units on its `system.n_chips` chips.
    """

    scenario: FixedWork
    kind: str
    program: StepProgram
    units_per_step: float
    tokens_per_unit: float
    idle_ratio: FloatArray
    """Time in which a chip waits over the time it works: the bubble of a pipeline."""
    memory_bytes: FloatArray
    """What one chip keeps at once."""
    choices: Mapping[str, Any]
    """Inner choices by name."""
    window_key: IntArray
    """Equal for alternatives that a box of designs holds together."""

    @property
    def name(self) -> str:
        """Name of the scenario."""
        return self.scenario.name

    @property
    def system(self) -> System:
        """Chips that work together."""
        return self.scenario.system

    @property
    def n_alternatives(self) -> int:
        """Number of inner choices."""
        return self.program.n_alternatives

    @property
    def windows(self) -> IntArray:
        """First and last alternative of each run of equal keys, shape (n_windows, 2)."""
        return alternative_windows(self.window_key)

    def used_links(self, alternatives: IntArray) -> frozenset[str]:
        """Links that some of the alternatives send over."""
        return used_links(self.program, alternatives)


@dataclass(frozen=True)
class LinearFormats:
    """How the GEMMs of one module are stored and computed under each mix, arrays of shape (n_mixes,)."""

    weight_bytes: FloatArray
    activation_bytes: FloatArray
    """With scales."""
    code_bytes: FloatArray
    """Of an activation without scales."""
    rate_class: FloatArray
    weight_native: FloatArray
    """Code of the class whose port takes a stored weight as it is."""
    weight_class: FloatArray
    dequant_ops: FloatArray
    """Vector operations per weight on arrays that cannot take it as it is."""


def linear_formats(mixes: tuple[PrecisionMix, ...], module: str) -> LinearFormats:
    """Formats of a module of the mixes [B per element], [code], [operations per weight]."""
    columns = linear_columns(mixes, module)
    return LinearFormats(
        columns["weight_bytes"],
        columns["input_bytes"],
        np.array([mix.operand_formats(module)[1].code_bits / 8.0 for mix in mixes]),
        columns["rate_class"],
        columns["weight_native"],
        columns["weight_class"],
        columns["dequant_ops"],
    )
