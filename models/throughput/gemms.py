"""List of GEMMs -> the program of one pass over it."""

from __future__ import annotations

import numpy as np

from models.architectures.gemm_list import GemmShapes
from models.checks import FloatArray
from models.hardware.rates import class_code
from models.operators.factor_tables import compress
from models.operators.step import Term, step_program, term
from models.precision.formats import number_format
from models.precision.promotion import common_classes
from models.throughput.scenario import GemmListScenario
from models.throughput.work import CompiledWork, linear_formats

MODULE = "ffn_down"
"""Module of a mix that rows without a format follow."""

FOLLOWS_MIX = ""
"""Format of a row that names none."""

MAX_DISTINCT = 2000
"""Most different GEMMs of one list; equal ones are counted."""


def compile_gemm_list(scenario: GemmListScenario) -> CompiledWork:
    """
    Return the program of one pass over the list on one chip; chips make passes of their own.

    Operands come from main memory and results go there unless they fit the shared buffer. A row's stated format is
    that of both its operands; rows without one follow each mix in turn, which are the alternatives.

    Raises
    ------
    ValueError
        If no mix is allowed or the list holds too many different GEMMs.
    """
    if not scenario.mixes:
        raise ValueError("a gemm_list scenario needs at least one precision mix")
    free = FOLLOWS_MIX in scenario.gemms.formats
    mixes = np.arange(len(scenario.mixes) if free else 1)
    terms = [_term(scenario, mixes, i, *row) for i, row in enumerate(_distinct(scenario.gemms))]
    return CompiledWork(
        scenario,
        "gemm_list",
        step_program(terms, overhead_s=0.0, calibration=scenario.calibration),
        units_per_step=float(scenario.system.n_chips),
        tokens_per_unit=1.0,
        idle_ratio=np.zeros(len(mixes)),
        memory_bytes=np.max([_operand_bytes(each) for each in terms], axis=0),
        choices={"mix": mixes},
        window_key=np.zeros(len(mixes), dtype=np.int64),
    )


def _distinct(gemms: GemmShapes) -> list[tuple[str, FloatArray, float]]:
    """Format, (m, n, k, batch) and count of each different GEMM."""
    names = sorted(set(gemms.formats))
    code = np.array([names.index(name) for name in gemms.formats], dtype=np.float64)
    sizes, index = compress(code=code, m=gemms.m, n=gemms.n, k=gemms.k, batch=gemms.batch)
    count = np.bincount(index, weights=gemms.count)
    if len(count) > MAX_DISTINCT:
        raise ValueError(f"a gemm_list must hold at most {MAX_DISTINCT} different GEMMs, got {len(count)}")
    rows = np.stack([sizes[name] for name in ("m", "n", "k", "batch")], axis=1)
    return [(names[int(c)], row, float(n)) for c, row, n in zip(sizes["code"], rows, count, strict=True)]


def _term(
    scenario: GemmListScenario, mixes: np.ndarray, position: int, format_name: str, sizes: FloatArray, count: float
) -> Term:
    weight, activation, rate, dequant = _formats(scenario, mixes, format_name)
    m, n, k, batch = sizes
    return term(
        f"gemm_{position}", "gemm", format_name or MODULE, count,
        m=m, n=n, k=k, weight_bytes=weight, input_bytes=activation, output_bytes=activation,
        rate_class=rate, dequant_ops=dequant, instances=batch, copies=1.0, useful_fraction=1.0,
    )  # fmt: skip


def _formats(scenario: GemmListScenario, mixes: np.ndarray, format_name: str) -> tuple[FloatArray, ...]:
    """Bytes of both operands, rate class and widening of a row under each mix."""
    if format_name == FOLLOWS_MIX:
        formats = linear_formats(scenario.mixes, MODULE)
        columns = (formats.weight_bytes, formats.activation_bytes, formats.rate_class, formats.dequant_ops)
        return tuple(values[mixes] for values in columns)
    number = number_format(format_name)
    computed = common_classes(number, number)[0]
    widening = 0.0 if computed == number.native_class else number.dequantisation_ops
    values = (number.weight_bits / 8.0, number.activation_bits / 8.0, float(class_code(computed)), widening)
    return tuple(np.full(len(mixes), value) for value in values)


def _operand_bytes(each: Term) -> FloatArray:
    """Operands and result of one GEMM, by alternative [B]."""
    c = each.columns
    m, n, k = c["m"], c["n"], c["k"]
    sizes = n * k * c["weight_bytes"] + m * k * c["input_bytes"] + m * n * c["output_bytes"]
    return np.asarray((sizes * c["instances"])[each.index])
